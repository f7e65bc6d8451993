"""Our judge of a chaos run, with histories that a register can and cannot have. Each run asks porcupine the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.history import Operation
from tests.chaos.judges import KNOWN_HISTORIES, Judgement, judge_ourselves


@pytest.mark.parametrize(("history", "sound"), KNOWN_HISTORIES)
def test_our_judge_is_right_about_known_histories(history: Sequence[Operation], *, sound: bool) -> None:
    assert judge_ourselves(history) == {"k": sound}


def test_one_judge_that_rejects_is_a_violation_and_two_that_differ_a_disagreement() -> None:
    judgement = Judgement({"a": True, "b": False, "c": None, "d": None}, {"a": True, "b": True, "c": False, "d": None})

    assert judgement.violations == ["b", "c"]
    assert judgement.disagreements == ["b"]
    assert judgement.undecided == 1
