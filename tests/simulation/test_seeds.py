"""Whole quorums, with everything going wrong: a few hundred seeds in every run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kraftlib.testing.campaign import run_seeds, summarize
from kraftlib.testing.profiles import PROFILES


def test_no_seed_breaks_a_promise(seeds: Iterable[int]) -> None:
    summary = summarize(run_seeds(seeds, profile="swarm"))

    assert [f"{finding} - {finding.replay}" for finding in summary.findings] == []


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("swarm", "calm")])
def test_no_seed_of_a_profile_breaks_a_promise(profile: str, seeds: Iterable[int]) -> None:
    """Fewer seeds of each: they are for the search of one kind of bug."""
    summary = summarize(run_seeds(list(seeds)[:12], profile=profile))

    assert [f"{finding} - {finding.replay}" for finding in summary.findings] == []


def test_the_seeds_of_every_run_meet_every_kind_of_trouble(seeds: Iterable[int]) -> None:
    """A fault that is never made finds nothing."""
    summary = summarize(run_seeds(range(1_000, 1_012), profile="swarm"))

    assert len(+summary.faults) >= 20
    assert summary.elections > 12
    assert summary.acknowledged > 500
