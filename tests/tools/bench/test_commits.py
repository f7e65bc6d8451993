"""The bench, in miniature: real processes, real syncs, one line a point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlib.cli.cluster import RefusedError
from tests.tools.bench.conftest import Bench
from tools.bench import commits
from tools.bench.commits import _point, _trial
from tools.bench.machine import Machine

NAMES = (
    "engine callers api commits_per_s p50_us p99_us fdatasync_us round_trip_us leader_cpu leader_cpu_us event_loop "
    "limit_per_s of_limit"
).split()


def test_json_is_one_line_a_point_with_the_promised_names(bench: Bench, tmp_path: Path) -> None:
    words = "--callers 2 --appender 3 --seconds 0.05 --trials 1 --output json --profile --directory".split()
    result = bench(*words, tmp_path)
    points = [json.loads(line) for line in result.out.splitlines()]

    assert result.status == 0
    apis = [("append_one", 2), ("appender", 3)]
    assert [(point["engine"], point["api"], point["callers"]) for point in points] == [
        (engine, *api) for engine in ("thread", "inline") for api in apis
    ]
    for point in points:
        assert list(point) == NAMES
        assert point["event_loop"] in ("asyncio", "uvloop")
        silent = ("p50_us", "p99_us") if point["api"] == "appender" else ()
        assert all(
            point[name] is None if name in silent else point[name] > 0 for name in NAMES[3:] if name != "event_loop"
        )
    assert result.err.count("Ordered by: internal time") == 4
    assert list(tmp_path.iterdir()) == []


def test_tls_is_measured_beside_plaintext(bench: Bench, long_path: Path) -> None:
    words = "--callers 2 --seconds 0.05 --trials 1 --engine inline --tls --output json --directory".split()
    result = bench(*words, long_path)

    assert result.status == 0
    assert [json.loads(line)["engine"] for line in result.out.splitlines()] == ["inline"] * 2 + ["inline+tls"] * 2


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(140.0, 60.0)
    trial = {"commits_per_s": 2_500.0, "p50_us": 380.0, "p99_us": 900.0, "leader_cpu": 0.7, "event_loop": "asyncio"}
    points = [_point(("inline", number, api), [trial], machine) for number, api in ((1, "append_one"), (9, "appender"))]
    commits._print_table(points, machine)
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == "this machine: fdatasync 140 µs, loopback round trip 60 µs (medians); event loop: asyncio"
    assert lines[-2].split() == ["inline", "1", "2,500", "380", "900", "0.70", "280.0", "0.50"]
    assert lines[-1].split() == ["inline", "appender", "9", "2,500", "-", "-", "0.70", "280.0", "0.06"]


def test_the_median_trial_by_rate_is_shown() -> None:
    trials = [
        {"commits_per_s": rate, "p50_us": rate, "p99_us": rate, "leader_cpu": 0.5, "event_loop": "asyncio"}
        for rate in (300.0, 100.0, 200.0)
    ]
    point = _point(("inline", 1, "append_one"), trials, Machine(140.0, 60.0))

    assert (point["commits_per_s"], point["p50_us"]) == (200.0, 200.0)
    assert point["leader_cpu_us"] == round(0.5e6 / 300, 2)


class Leader:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def ask(self, name: str, load: Any, *, timeout_ms: int) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return {"commits": 1}


class Cluster:
    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    async def leader(self) -> tuple[Leader, int]:
        return self._leader, 1


@pytest.mark.parametrize("error", [RefusedError({"error": "NotLeaderError"}), ConnectionResetError()])
async def test_a_leader_that_is_lost_meanwhile_is_no_result(error: Exception) -> None:
    assert await _trial(Cluster(Leader(error, error)), {}, 0.1) == {"commits": 1}  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        await _trial(Cluster(Leader(error, error, error)), {}, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [["--callers", "0"], ["--callers", "x"], ["--engine", "warp"]])
def test_bad_words_are_a_usage_error(words: list[str], bench: Bench) -> None:
    assert bench(*words).status == 2


def test_a_directory_that_is_not_there_is_named(bench: Bench, tmp_path: Path) -> None:
    result = bench("--directory", tmp_path / "nowhere")

    assert (result.status, result.err) == (1, f"bench: --directory {tmp_path / 'nowhere'} is no directory\n")
