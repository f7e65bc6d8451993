"""Whole quorums, with everything going wrong: a few hundred seeds in every run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kraftlib.testing.campaign import summarize
from kraftlib.testing.profiles import PROFILES
from tools.simulate.seeds import run_seeds

PARTS = 4
"""The seeds are spread over several tests, so that several workers share them."""


def broken(seeds: Iterable[int], profile: str) -> list[str]:
    """Run seeds; return what each broken one says, with the command that shows it again."""
    summary = summarize(run_seeds(seeds, profile=profile))
    return [f"{finding} - replay with: {finding.replay}" for finding in summary.findings]


def test_a_few_seeds_break_no_promise(seeds: Iterable[int]) -> None:
    assert broken(list(seeds)[:15], "swarm") == []


PROFILE_PARTS = [
    (name, part, parts)
    for name, profile in PROFILES.items()
    if name not in ("swarm", "calm")
    for parts in (5 if profile.trouble_ms[1] > 100_000 else 1,)
    for part in range(parts)
]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_a_promise(part: int, seeds: Iterable[int]) -> None:
    assert broken(list(seeds)[part::PARTS], "swarm") == []


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "part", "parts"), PROFILE_PARTS)
def test_no_seed_of_a_profile_breaks_a_promise(profile: str, part: int, parts: int, seeds: Iterable[int]) -> None:
    """Fewer seeds of each: they are for the search of one kind of bug. An hour of simulated time takes many seconds."""
    assert broken(list(seeds)[:15][part::parts], profile) == []


@pytest.mark.slow
def test_a_dozen_seeds_meet_most_kinds_of_trouble() -> None:
    """A fault that is never made finds nothing."""
    summary = summarize(run_seeds(range(1_000, 1_012), profile="swarm"))

    assert len(+summary.faults) >= 25
    assert summary.elections > 12
    assert summary.acknowledged > 500
