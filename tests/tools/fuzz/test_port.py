"""The fuzzer of a replica's port: a short run holds, a seed repeats its frames, and what does not hold is said."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from tools.fuzz.mutation import mutated
from tools.fuzz.port import complaints, corpus, run

HELD: dict[str, Any] = {
    "before": {"commits": 100, "resident_bytes": 50_000_000, "faults": []},
    "during": {"commits": 100, "resident_bytes": 90_000_000, "faults": []},
    "after": {"commits": 100, "resident_bytes": 55_000_000, "faults": []},
}


@pytest.mark.parametrize("kind", ["replica", "controller"])
def test_a_few_thousand_mutated_frames_are_survived(kind: str) -> None:
    found = run(seconds=3, seed=20261123, rate=1_000, kind=kind)
    assert found["frames"] > 100
    assert complaints(found) == []


def test_a_seed_repeats_its_frames() -> None:
    frames = corpus()
    once, again = ([mutated(frames[number], frames, random.Random(number)) for number in range(100)] for _ in range(2))
    assert once == again
    assert sum(frame != frames[number] for number, frame in enumerate(once)) > 50


@pytest.mark.parametrize(
    ("phase", "key", "value", "said"),
    [
        ("after", "faults", ["Traceback"], "a fault: Traceback"),
        ("after", "commits", 0, "stopped committing"),
        ("during", "commits", 0, "stopped committing"),
        ("after", "resident_bytes", 65_000_000, "65000000 bytes stay resident"),
    ],
)
def test_what_does_not_hold_is_said(phase: str, key: str, value: object, said: str) -> None:
    assert complaints(HELD) == []
    found = copy.deepcopy(HELD)
    found[phase][key] = value
    assert [said in line for line in complaints(found)] == [True]
