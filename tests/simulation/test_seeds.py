"""Whole quorums, with everything going wrong: a few seeds in every run.

`dev.py campaign`, which CI runs, has hundreds, of all profiles, and counts the kinds of trouble that they meet.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.testing.campaign import summarize
from tools.simulate.seeds import run_seeds


def broken(seeds: Iterable[int], profile: str) -> list[str]:
    """Run seeds; return what each broken one says, with the command that shows it again."""
    summary = summarize(run_seeds(seeds, profile=profile))
    return [f"{finding} - replay with: {finding.replay}" for finding in summary.findings]


def test_a_few_seeds_break_no_promise(seeds: Iterable[int]) -> None:
    assert broken(seeds, "swarm") == []
