"""A cluster under which executors die and hang, and a driver dies, while it reads a log in an object store.

The store is a stand-in on loopback. In each job it holds back its answers after a third of the segments, and meanwhile
an executor is killed, or stopped, so that its tasks run once more beside it. A stream over the same log loses an
executor and then its driver, which is started again. Whatever happens: the answers are those of one process, and no
record is twice.

Only processes that this trial started are ended, by their ids: executors are found by the directory that they work in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.reading import read_table
from kraftlib.records.batch import encode_batch
from tests.analysis.object_store import BUCKET, object_store
from tests.spark.clusters import PATIENCE_S, ROOT, bare_python, environment, standalone
from tests.spark.drill import numbers

JOB: Final = ROOT / "tests" / "spark" / "store_job.py"
PER_SEGMENT: Final = 5
BATCHES: Final = 6
"""Of the stream, at least."""
KEYS: Final = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_EC2_METADATA_DISABLED": "true"}
HARM: Final = {
    "scan": signal.SIGKILL,
    "audit": signal.SIGKILL,
    "compact": signal.SIGKILL,
    "write": signal.SIGKILL,
    "write twice": signal.SIGSTOP,
}
"""Job -> what an executor gets in the midst of it. What runs on one that is stopped runs once more beside it."""

HOLD_S: Final = 2.0
"""How long an answer is held back at most: a client that waits longer asks once more."""


class Gate:
    """Lets a number of requests pass, and holds the others back until it is opened."""

    def __init__(self) -> None:
        self.left = 0
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.opened.set()

    def close_after(self, requests: int) -> None:
        self.left = requests
        self.reached.clear()
        self.opened.clear()

    def pass_through(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.opened.is_set():
            self.reached.set()
            self.opened.wait(HOLD_S)


def store(home: Path, segments: int) -> dict[str, Any]:
    """Run the jobs and the stream, and do harm to them; return what they found."""
    log, gate, bare = home / "store" / "log-0", Gate(), bare_python(home / "bare")
    write_segments(log, segments)
    with (
        object_store(home / "store", before=gate.pass_through) as (place, _),
        standalone(home, workers=2, **KEYS) as master,
    ):
        uri = f"s3://{BUCKET}?scheme=http&endpoint_override={place}&region=nowhere"
        words = ["jobs", master, uri, str(home / "written"), "20"]
        with driver(home, bare, *words) as process:
            found = harmed(process, home, gate, segments)
        return {**found, **streamed(home, bare, master, log, segments)}


def harmed(process: subprocess.Popen[str], home: Path, gate: Gate, segments: int) -> dict[str, Any]:
    """Let a driver run its jobs, and do harm in the midst of each; return what it found."""
    harm, began, stopped = 0, time.monotonic(), contextlib.ExitStack()
    assert process.stdin is not None
    for told in lines(process):
        if "begin" in told:
            gate.close_after(segments // 3)
            process.stdin.write("go\n")
            process.stdin.flush()
            if not gate.reached.wait(PATIENCE_S):
                raise TimeoutError(f"the job {told['begin']} did not get as far as a third of the log")
            victim, what = executors(home)[0], HARM[told["begin"]]
            os.kill(victim, what)
            harm += 1
            if what == signal.SIGSTOP:
                stopped.callback(go_on, victim)
            gate.opened.set()
        elif "end" in told:
            stopped.close()
            print(f"  {told['end']}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        else:
            return {**told, "harm": harm, "lost": told["lost"] > 0, "speculative": told["speculative"] > 0}
    raise RuntimeError(f"the driver ended too early: {(home / 'driver.log').read_text()[-3_000:]}")


def go_on(executor: int) -> None:
    """Let an executor go on that was stopped; a master gives up one that is silent, so it may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(executor, signal.SIGCONT)


def streamed(home: Path, bare: Path, master: str, log: Path, segments: int) -> dict[str, Any]:
    """Run a stream, kill an executor of it and then its driver; let another one end it. Return what arrived."""
    output, commits = home / "stream" / "output", home / "stream" / "checkpoint" / "commits"
    output.mkdir(parents=True)
    words = ["stream", master, str(log), str(home / "stream"), str(segments * PER_SEGMENT // BATCHES)]
    with driver(home, bare, *words) as process:
        wait_until(lambda: numbers(output), process, home)
        before = len(numbers(output))
        os.kill(executors(home)[0], signal.SIGKILL)
        wait_until(lambda: len(numbers(output)) > before, process, home)
    if numbers(commits):  # as if it had not come to the commit of its last batch
        for name in (str(numbers(commits)[-1]), f".{numbers(commits)[-1]}.crc"):
            (commits / name).unlink(missing_ok=True)
    amid = len(numbers(output))
    with driver(home, bare, *words) as process:
        process.wait(PATIENCE_S)
        if process.returncode:
            raise RuntimeError(f"the stream failed: {(home / 'driver.log').read_text()[-3_000:]}")
    offsets = [offset for number in numbers(output) for offset, _ in json.loads((output / str(number)).read_text())]
    return {
        "killed amid its batches": 0 < amid < len(numbers(output)),
        "stream": [len(offsets), len(set(offsets)), max(offsets)],
        "a batch that ran again differed": (home / "stream" / "differs").exists(),
    }


def expected_of_store(home: Path, segments: int) -> dict[str, Any]:
    """What one process says of the same log on a disk."""
    table = read_table(home / "store", columns="offset,value")
    log = table.to_pylist()
    last = {row["value"][:1]: row["value"].hex() for row in log}
    offsets = [row["offset"] for row in log]
    scan = [len(log), len(set(offsets)), sum(offsets), sum(zlib.crc32(row["value"]) for row in log)]
    options = parse_checkpoint_options({"path": str(home / "twin"), "endOffset": "100000", "epoch": "1"})
    written = write_table(table.select(["value"]).append_column("key", table["value"]), options).path.read_bytes().hex()
    return {
        "scan": scan,
        "audit": [0, segments],
        "compact": sorted(last.values()),
        "write": written,
        "write twice": written,
        "harm": len(HARM),
        "lost": True,
        "speculative": True,
        "killed amid its batches": True,
        "stream": [len(log), len(log), max(offsets)],
        "a batch that ran again differed": False,
    }


def write_segments(directory: Path, segments: int) -> None:
    """Write a log with a batch in each segment, of values that are all different."""
    directory.mkdir(parents=True)
    for segment in range(segments):
        first = PER_SEGMENT * segment
        values = [b"%d%032d" % (number % 7, number) for number in range(first, first + PER_SEGMENT)]
        batch = encode_batch(values, timestamp_ms=segment, base_offset=first, epoch=1)
        (directory / f"{first:020d}.log").write_bytes(bytes(batch.data))


@contextlib.contextmanager
def driver(home: Path, python: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a driver, with its JVM, in a session of processes of its own; kill all of them at the end."""
    more = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    with (home / "driver.log").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, str(JOB), *words],
            cwd=home,
            env=environment(**KEYS, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a driver says."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def executors(home: Path) -> list[int]:
    """Return the executors of this cluster: JVMs below the directories in which our workers let them work."""
    work, found = str(home / "work"), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = os.readlink(place / "cwd").startswith(work)
            if is_ours and b"CoarseGrainedExecutorBackend" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    if not found:
        raise RuntimeError(f"no executor works below {work}")
    return sorted(found)


def wait_until(condition: Any, process: subprocess.Popen[str], home: Path) -> None:
    """Wait; a driver that ends by itself, or gets nowhere, is an error that shows what it said."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the driver got nowhere: {(home / 'driver.log').read_text()[-3_000:]}")
        time.sleep(0.02)
