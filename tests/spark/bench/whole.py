"""Runs a program and prints the processor seconds of it and of all its descendants: driver, JVM and Python workers.

    python -m tests.spark.bench.whole PYTHON-MODULE [WORD ...]

The last line of the program, a JSON object, is printed with `processor_s` added. Processes whose parent has ended come
to this one (PR_SET_CHILD_SUBREAPER), so none is missed: a JVM ends after its driver, and its workers after it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_SET_CHILD_SUBREAPER: Final = 36
_TIMEOUT_S: Final = 900.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def whole(module: str, *words: str, processors: int | None = None) -> dict[str, Any]:
    """Run a module as a program, on the first so many processors; return what it printed, and its processor seconds."""
    chosen = set(sorted(os.sched_getaffinity(0))[:processors])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.bench.whole", module, *words],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(words)} failed: {done.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def spent() -> float:
    """Return the processor seconds of this process and its descendants so far, those that ended included."""
    parent_of, seconds_of = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parent_of[int(place.parent.name)] = int(fields[1])
        seconds_of[int(place.parent.name)] = sum(map(int, fields[11:15])) / _TICKS
    ours = {os.getpid()}
    while more := {pid for pid, parent in parent_of.items() if parent in ours and pid not in ours}:
        ours |= more
    return sum(seconds_of[pid] for pid in ours)


def main() -> None:
    """Run the program, and wait until nothing is left of it."""
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")
    done = subprocess.run([sys.executable, "-m", *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({**json.loads(done.stdout.splitlines()[-1]), "processor_s": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
