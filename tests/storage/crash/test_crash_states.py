"""Every state that a power cut may leave is one from which a replica goes on, with all that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.storage.crash.damage_states import prove_damages
from tests.storage.crash.judge import Verdict
from tests.storage.crash.planted import PLANTED, Bug
from tests.storage.crash.proof import Effort, prove

SHORT = Effort(most=4, again=1, interruptions=1)
"""A look at a few protocols: `dev.py storage`, which CI runs, has all of them, and more of each."""
HUNT = Effort(most=60, again=1, interruptions=40, until_bad=True)


@pytest.mark.parametrize("protocol", ["append", "vote"])
def test_no_crash_loses_what_was_acknowledged_or_brings_back_a_vote(protocol: str, place: Path) -> None:
    tallies = prove(place, SHORT, only=[protocol])

    assert [bad for tally in tallies for bad in tally.bad] == []
    assert sum(tally.states for tally in tallies) > 70
    assert any(tally.verdicts[Verdict.OPENED] for tally in tallies)


@pytest.mark.parametrize("damage", ["lost_identity"])
def test_no_crash_amid_what_is_done_about_damage_loses_what_was_acknowledged(damage: str, place: Path) -> None:
    (tally,) = prove_damages(place, SHORT, only=[damage])

    assert tally.bad == []
    assert tally.states > 20


@pytest.mark.parametrize(
    "bug",
    # In a vote there are few states to look at.
    [pytest.param(bug, id=bug.name, marks=[] if bug.shows_in == "vote" else pytest.mark.slow) for bug in PLANTED],
)
def test_a_planted_bug_is_found(bug: Bug, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge of the storage is judged: each of these bugs must show in a state that is allowed."""
    bug.plant(monkeypatch)

    # Only where it can show: the other states would be looked at in vain.
    hunt = attrs.evolve(HUNT, kinds=(bug.after,), failing_after=bug.failing_after)
    tallies = prove(place, hunt, only=[bug.shows_in])

    assert sum(tally.verdicts[Verdict.BAD] for tally in tallies) > 0
