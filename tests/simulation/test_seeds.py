"""Whole quorums, with everything going wrong: a few seeds in every run.

`dev.py campaign`, which CI runs, has thousands, of all profiles.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kraftlib.testing.campaign import summarize
from tools.simulate.seeds import run_seeds


def broken(seeds: Iterable[int], profile: str) -> list[str]:
    """Run seeds; return what each broken one says, with the command that shows it again."""
    summary = summarize(run_seeds(seeds, profile=profile))
    return [f"{finding} - replay with: {finding.replay}" for finding in summary.findings]


def test_a_few_seeds_break_no_promise(seeds: Iterable[int]) -> None:
    assert broken(seeds, "swarm") == []


@pytest.mark.slow
def test_a_dozen_seeds_meet_most_kinds_of_trouble() -> None:
    """A fault that is never made finds nothing."""
    summary = summarize(run_seeds(range(1_000, 1_012), profile="swarm"))

    assert len(+summary.faults) >= 25
    assert summary.elections > 12
    assert summary.acknowledged > 500
