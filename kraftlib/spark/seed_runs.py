"""The simulation seeds of one task, run in child processes; each seed becomes a row.

A child is `kraftlib simulate --output json`, which prints a line for each seed. A child that dies, or prints nothing
for too long, names the seed at fault by the line that is missing; the seeds after it go on in a new child. A seed that
took its worker along would fail the whole job instead.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import attrs
import pyarrow as pa

SEED_TIMEOUT_S: Final = 300.0
RESULTS: Final = pa.schema(
    [
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("invariant", pa.string()),
        ("what", pa.string()),
        ("simulated_ms", pa.int64()),
        ("seconds", pa.float64()),
        ("replay", pa.string()),
    ]
)
"""`outcome` is `ok`, `violation`, `crash` or `hang`; `replay` is the command that shows it again."""


@attrs.frozen(kw_only=True)
class SweepOptions:
    """The seeds that a sweep runs, and how."""

    profile: str = "swarm"
    subject: str | None = None
    """FILE.py:NAME of a state machine of your own; the executors must find the file."""
    until_ms: int | None = None
    seed_timeout_s: float = SEED_TIMEOUT_S

    def command(self, seeds: range) -> list[str]:
        """Return the command line of a child."""
        words = [sys.executable, "-m", "kraftlib.cli", "simulate", "--output", "json", "--profile", self.profile]
        words += ["--seeds", f"{seeds.start}:{seeds.stop}"]
        words += [] if self.subject is None else ["--subject", self.subject]
        return words + ([] if self.until_ms is None else ["--until-ms", str(self.until_ms)])

    def replay(self, seed: int) -> str:
        """Return the command that runs one seed again."""
        words = ["kraftlib", "simulate", "--seed", str(seed), "--profile", self.profile]
        words += [] if self.subject is None else ["--subject", self.subject]
        return " ".join(words + ([] if self.until_ms is None else ["--until-ms", str(self.until_ms)]))


def parts_of(seeds: range, many: int) -> list[range]:
    """Return `seeds` cut into `many` ranges of about one size."""
    edges = [seeds.start + len(seeds) * number // many for number in range(many + 1)]
    return [range(first, end) for first, end in pairwise(edges)]


def results(seeds: range, options: SweepOptions) -> Iterator[dict[str, Any]]:
    """Run seeds in children, and yield a row for each as it comes."""
    left = seeds
    while left:
        for row in _child(left, options):
            yield row
            left = range(row["seed"] + 1, seeds.stop)


def _child(seeds: range, options: SweepOptions) -> Iterator[dict[str, Any]]:
    """Run one child on `seeds`; yield their rows, up to the first one that it does not survive."""
    expected = iter(seeds)
    # On an executor kraftlib may be an archive that only the worker's own path names.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        options.command(seeds),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        lines = _Lines(child)
        began = time.monotonic()
        try:
            for seed in expected:
                line = lines.next(options.seed_timeout_s)
                seconds, began = time.monotonic() - began, time.monotonic()
                if line is None:
                    yield _row(seed, "hang", options, what="it said nothing in time", seconds=seconds)
                    return
                if not line:
                    yield _row(seed, "crash", options, what=f"exit status {child.wait()}", seconds=seconds)
                    return
                said = json.loads(line)
                outcome = "ok" if said["ok"] else "violation"
                yield _row(
                    seed,
                    outcome,
                    options,
                    invariant=said.get("invariant"),
                    what=said.get("what"),
                    simulated_ms=said.get("simulated_ms"),
                    seconds=seconds,
                )
        finally:
            child.kill()


def _row(seed: int, outcome: str, options: SweepOptions, **said: Any) -> dict[str, Any]:
    return {**dict.fromkeys(RESULTS.names), "seed": seed, "outcome": outcome, "replay": options.replay(seed), **said}


class _Lines:
    """The lines of a child, each waited for a limited time."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.stream = child.stdout.fileno() if child.stdout else -1
        self.buffer = b""

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line; an empty one at the end of the output, None when the time is over."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.stream], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                return None
            piece = os.read(self.stream, 65_536)
            if not piece:
                return b""
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line
