"""`dev.py bench --observers`: figures of real observers, in a process of their own."""

from __future__ import annotations

import json

from tests.tools.bench.conftest import Bench


def test_all_observers_have_each_record(bench: Bench) -> None:
    result = bench("--observers", "0,12", "--seconds", 0.2, "--engine", "inline", "--output", "json")
    assert result.status == 0, result.err
    none, some = map(json.loads, result.out.splitlines())

    assert (none["observers"], none["commits"], none["records_told"]) == (0, 10, 0)
    assert (some["observers"], some["commits"], some["records_told"]) == (12, 10, 10)
    assert some["answers_per_commit"] > 0
    assert bench("--observers", "-1").status == 1


def test_text_is_for_people(bench: Bench) -> None:
    text = bench("--observers", 1, "--seconds", 0.05, "--engine", "thread").out

    assert "1 observers, thread: a commit cost the leader" in text
    assert "all observers had a record after" in text


def test_observers_behind_a_tree_have_each_record_from_replicas_of_their_own(bench: Bench) -> None:
    result = bench(
        "--observers", 8, "--tree", 2, "--seconds", 0.2, "--engine", "inline", "--output", "json"
    )  # fmt: skip
    assert result.status == 0, result.err
    found = json.loads(result.out)

    assert (found["observers"], found["tree"], found["commits"], found["records_told"]) == (8, 2, 10, 10)
    assert found["upstreams_cpu_s"] > 0
    assert bench("--observers", 1, "--tree", "-1").status == 1
