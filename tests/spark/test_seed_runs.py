"""The seeds of one task: what a seed does is a row, whatever it does to its process."""

from __future__ import annotations

import sys

import pytest

from kraftlib.spark.seed_runs import SweepOptions, parts_of, results


def test_a_seed_that_kills_or_hangs_its_process_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os, sys, time\n"
        "first, last = map(int, sys.argv[1:])\n"
        "for seed in range(first, last):\n"
        "    if seed == 3: os.kill(os.getpid(), 9)\n"
        "    if seed == 5: time.sleep(60)\n"
        '    print(\'{"ok": %s, "invariant": "I1", "simulated_ms": 7}\' % str(seed != 1).lower(), flush=True)\n'
    )
    monkeypatch.setattr(
        SweepOptions, "command", lambda self, seeds: [sys.executable, "-c", program, str(seeds.start), str(seeds.stop)]
    )
    found = list(results(range(8), SweepOptions(seed_timeout_s=2.0)))
    assert [(row["seed"], row["outcome"]) for row in found] == [
        (0, "ok"), (1, "violation"), (2, "ok"), (3, "crash"), (4, "ok"), (5, "hang"), (6, "ok"), (7, "ok"),
    ]  # fmt: skip
    assert found[1]["invariant"] == "I1"
    assert found[3]["what"] == "exit status -9"


def test_seeds_are_shared_out() -> None:
    assert parts_of(range(3, 10), 3) == [range(3, 5), range(5, 7), range(7, 10)]
    assert parts_of(range(2), 2) == [range(1), range(1, 2)]
