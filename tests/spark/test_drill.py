"""Exactly once: a query over a live quorum is killed again and again, commits vanish, leaders change, logs shrink."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.drill import numbers
from tests.spark.quorums import append, voters

PATIENCE_S = 120
KILLS = 5
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "the query ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def query(home: Path, options: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.spark.drill", str(home), json.dumps(options)]
    with (home / "errors").open("ab") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def read_so_far(home: Path) -> list[tuple[int, str]]:
    output = home / "output"
    return [tuple(row) for number in numbers(output) for row in json.loads((output / str(number)).read_text())]


@pytest.mark.slow
def test_each_committed_record_arrives_exactly_once(tmp_path: Path) -> None:
    chance = random.Random(KILLS)
    offsets, commits, output = (tmp_path / name for name in ("offsets", "commits", "output"))
    for directory in (offsets, commits, output):
        directory.mkdir()
    with voters(3) as quorum:
        servers = ",".join(str(client.endpoint) for client in quorum)
        options = {
            "path": str(tmp_path / "spool"),
            "bootstrap": servers,
            "clusterId": "live",
            "maxRecordsPerTrigger": "7",
        }
        for kill in range(KILLS):
            end_offset = append(quorum, [b"%d of %d" % (n, kill) for n in range(chance.randint(1, 9))])
            with query(tmp_path, options) as process:
                # Amid a batch, or after one.
                watched = chance.choice((offsets, output))
                before = len(numbers(watched))
                append(quorum, [b"while it runs"] * chance.randint(1, 20))
                until(lambda watched=watched, before=before: len(numbers(watched)) > before, process)
            if numbers(commits) and chance.random() < 0.5:
                (commits / str(numbers(commits)[-1])).unlink()
            if kill % 3 == 1:
                leader = next((client for client in quorum if client.status().role == "leader"), None)
                if leader is not None:
                    leader.resign(leader.leader_and_epoch().epoch)
            if kill == KILLS // 2:
                with query(tmp_path, options) as process:
                    until(lambda end=end_offset: len(read_so_far(tmp_path)) >= end, process)
                for client in quorum:
                    client.create_snapshot([b"state"], offset=end_offset)
        end_offset = append(quorum, [b"the last one"])
        with query(tmp_path, options) as process:
            until(lambda: len(read_so_far(tmp_path)) >= end_offset, process)

    rows = read_so_far(tmp_path)
    assert [offset for offset, _ in rows] == list(range(end_offset))
    assert bytes.fromhex(rows[-1][1]) == b"the last one"
    assert not (tmp_path / "differs").exists()
