"""The drill: a query of Spark is killed amid its work, commits vanish, leaders change, the log is compacted.

    python -m tests.spark.kills /some/empty/directory --kills 20

The long form is mostly starts of the JVM, one a kill; `dev.py bench-spark --only kills` is the same. A short one is
among the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from tests.spark.drill import numbers
from tests.spark.quorums import append, voters

KILLS: Final = 20
PATIENCE_S: Final = 300
ROOT: Final = Path(__file__).parents[2]


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of it."""

    records: int
    batches: int
    missing: tuple[int, ...]
    doubled: tuple[int, ...]
    differs: bool
    """Whether a batch that ran again held something else."""

    @property
    def wrong(self) -> int:
        """How many records did not arrive exactly once."""
        return len(self.missing) + len(self.doubled) + self.differs


def drill(home: Path, *, kills: int, seed: int) -> Outcome:
    """Append, kill, change leaders, lose commits, compact; at the end let the query come to an end."""
    chance = random.Random(seed)
    offsets, commits, output = home / "checkpoint" / "offsets", home / "checkpoint" / "commits", home / "output"
    for directory in (offsets, commits, output):
        directory.mkdir(parents=True)
    with voters(3) as quorum:
        options = {
            "path": str(home / "spool"),
            "bootstrap": ",".join(str(client.endpoint) for client in quorum),
            "clusterId": "live",
            "maxRecordsPerTrigger": "7",
        }
        for kill in range(kills):
            end_offset = append(quorum, [b"%d of %d" % (n, kill) for n in range(chance.randint(1, 9))])
            with query(home, options) as process:
                if kill == kills // 2:
                    # The archive has to have what a compaction takes away.
                    wait_until(lambda end=end_offset: len(rows_of(home)) >= end, process, home)
                    for client in quorum:
                        client.create_snapshot([b"state"], offset=end_offset)
                # Amid a batch, or after one.
                watched = chance.choice((offsets, output))
                before = len(numbers(watched))
                append(quorum, [b"while it runs"] * chance.randint(1, 20))
                wait_until(lambda watched=watched, before=before: len(numbers(watched)) > before, process, home)
            print(f"  kill {kill + 1} of {kills}, {end_offset} records appended", file=sys.stderr, flush=True)
            if numbers(commits) and kill % 2 == 0:
                for name in (str(numbers(commits)[-1]), f".{numbers(commits)[-1]}.crc"):
                    (commits / name).unlink(missing_ok=True)
            if kill % 3 == 0:
                leader = next((client for client in quorum if client.status().role == "leader"), None)
                if leader is not None:
                    leader.resign(leader.leader_and_epoch().epoch)
        end_offset = append(quorum, [b"the last one"])
        with query(home, options) as process:
            wait_until(lambda: len(rows_of(home)) >= end_offset, process, home)
    counted = Counter(offset for offset, _ in rows_of(home))
    return Outcome(
        records=end_offset,
        batches=len(numbers(output)),
        missing=tuple(offset for offset in range(end_offset) if not counted[offset]),
        doubled=tuple(offset for offset, count in counted.items() if count > 1),
        differs=(home / "differs").exists(),
    )


def rows_of(home: Path) -> list[tuple[int, str]]:
    """Return what all batches held so far."""
    output = home / "output"
    return [tuple(row) for number in numbers(output) for row in json.loads((output / str(number)).read_text())]


@contextmanager
def query(home: Path, options: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the query in a session of processes of its own; kill all of them at the end."""
    command = [sys.executable, "-m", "tests.spark.kill_query", str(home), json.dumps(options)]
    with (home / "errors").open("ab") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes], home: Path) -> None:
    """Wait; a query that ends by itself or gets nowhere is an error that shows what it said."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query got nowhere: {(home / 'errors').read_text()[-3_000:]}")
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill a query of Spark again and again.")
    parser.add_argument("home", type=Path)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=20)
    chosen = parser.parse_args()
    came_of_it = drill(chosen.home, kills=chosen.kills, seed=chosen.seed)
    print(came_of_it)
    sys.exit(1 if came_of_it.wrong else 0)
