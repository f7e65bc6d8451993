"""Every story of `tools.scenarios`, under its id; and bugs that the story of their kind must find.

Longer: `dev.py simulate --scenario all --seeds 0:100`.
"""

from __future__ import annotations

import contextlib
import random as chance
from typing import Final

import pytest

from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.testing.campaign import quiet
from kraftlib.testing.violation import InvariantViolation
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tools.scenarios import SCENARIOS, run_scenario
from tools.scenarios.scenario import Chapter, NotProvokedError
from tools.scenarios.story import Story

SEEDS_TO_PROVOKE: Final = 12
SEEDS_TO_FIND_A_BUG: Final = 8

FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "E1": ("vote-is-not-written", "vote-is-spoken-first", "vote-is-forgotten-at-start", "second-vote-in-an-epoch"),
    "E2": ("epoch-is-not-written",),
    "E3": ("amnesiac-votes", "amnesia-ends-with-a-majority"),
    "E4": ("leader-resumes", "leader-resumes-at-once", "leadership-is-not-written"),
    "E5": ("stale-log-wins",),
    "E6": ("answers-are-counted-not-voters", "less-than-half-of-the-votes"),
    "E7": ("leader-never-gives-up",),
    "E8": ("stalled-leader-stays",),
    "E9": ("healthy-leader-is-deposed",),
    "E16": ("strangers-are-believed",),
    "L1": ("answer-used-twice", "unmatched-answer-used"),
    "L2": ("truncates-to-its-own-end", "wrong-end-of-an-epoch", "longer-logs-are-valid", "every-log-is-valid"),
    "L4": ("old-epoch-commit", "epoch-start-off-by-one"),
    "L6": ("high-watermark-of-a-follower-falls",),
    "L7": ("high-watermark-of-a-leader-falls",),
    "L8": ("acknowledged-before-flushed",),
    "L9": ("leader-counts-what-is-not-flushed", "one-less-is-enough-to-commit"),
    "L10": ("checksum-is-not-looked-at",),
    "L13": ("acknowledged-when-flushed",),
    "L14": ("parked-fetches-are-forgotten",),
    "C1": ("snapshot-lacks-the-records",),
    "C2": ("reads-ask-nobody", "reads-do-not-wait-until-applied"),
    "C3": ("acknowledged-when-flushed",),
    "C5": ("acknowledged-when-flushed",),
    "N2": ("installed-snapshot-keeps-the-log",),
    "N4": ("download-is-not-verified",),
    "N12": ("snapshot-forgets-the-voters",),
    "M1": ("change-before-own-commit",),
    "M2": ("second-change-at-once",),
    "M3": ("voters-survive-truncation",),
    "M4": ("removed-leader-counts-itself",),
    "M5": ("removed-leader-stays",),
    "M7": ("a-new-disk-is-the-old-voter",),
    "M8": ("voters-are-read-when-committed",),
    "M11": ("strangers-are-believed",),
    "S1": ("damaged-log-stands",),
    "S11": ("acknowledged-before-flushed",),
    "P1": ("old-epoch-commit",),
}
"""Bugs of `mutants` that a scenario finds within a few seeds."""

PLANTED: Final = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("first", [0, pytest.param(SEEDS_TO_PROVOKE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario_id", SCENARIOS)
def test_scenario(scenario_id: str, first: int) -> None:
    """A seed in which the trouble does not come about shows nothing; others then must."""
    for seed in range(first, first + SEEDS_TO_PROVOKE):
        with quiet(), contextlib.suppress(NotProvokedError):
            if run_scenario(scenario_id, seed).provoked:
                return
    pytest.fail(f"the trouble of {scenario_id} came about in none of {SEEDS_TO_PROVOKE} seeds")


class Lying(MemoryReplicatedLog):
    """A log on a disk that says it has flushed, and has not."""

    def crash(self, random: chance.Random, *, torn_tail: bool = False) -> MemoryReplicatedLog:
        return self._recovered(len(self._batches) // 2)


def test_s12_an_fsync_that_lies_is_noticed() -> None:
    """One of the two copies of what is committed was never there, and the third replica is slow (I9)."""
    chapter = Chapter()

    @chapter("S12", "a disk lies", expected="it is noticed", real_files=0.0)
    def told(story: Story) -> None:
        leader = story.leader()
        liar, slow = story.followers(leader)
        story.crash(liar)
        lying = Lying()
        lying.append(liar.log.batches())
        lying.flush()
        liar.log = lying
        story.start(liar)
        story.everybody_has_everything()
        story.cut(slow)
        story.append(6)
        story.happened("records on two of three disks", story.committed - slow.flushed_offset)
        story.crash(liar)
        story.pass_ms(1)

    with pytest.raises(InvariantViolation, match="I9"), quiet():
        Story(chapter.scenarios[0], 1).run()


@pytest.mark.parametrize(
    ("scenario_id", "name"), [(scenario_id, name) for scenario_id, names in FOUND_BY.items() for name in names]
)
def test_a_planted_bug_is_found_by_the_scenario_of_its_kind(scenario_id: str, name: str) -> None:
    found: list[str] = []
    with planted(PLANTED[name]), quiet():
        for seed in range(SEEDS_TO_FIND_A_BUG):
            try:
                run_scenario(scenario_id, seed)
            except NotProvokedError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever the bug does: it shows
                found.append(repr(error))
                break

    assert found, f"{scenario_id} does not notice: {PLANTED[name].what}"
