"""When all is mended the quorum gets on, unless too many have lost something."""

from __future__ import annotations

from random import Random

import pytest

from tools.core_fuzz import healing
from tools.core_fuzz.promises import BrokenPromiseError
from tools.core_fuzz.themes import Theme
from tools.core_fuzz.world import CoreWorld

THREE = Theme(name="three", what="three voters", voters=(3,), replicas=(4,), dynamic=1.0)


def test_a_quorum_that_is_left_alone_elects_and_commits() -> None:
    world = CoreWorld(1, THREE)
    world.hosts[2].crash()

    assert 0 < healing.get_well(world) < healing.LONGEST_MS
    assert all((host.running.high_watermark or 0) >= 3 for host in world.hosts.values())


def test_whoever_lost_its_election_votes_again_in_the_end() -> None:
    world = CoreWorld(1, THREE)
    healing.get_well(world)
    world.hosts[1].crash()
    world.hosts[1].store.lose_election(Random(1))
    healing.get_well(world)

    assert not world.hosts[1].store.is_amnesiac


def test_nobody_is_asked_to_lead_where_the_majority_is_impaired() -> None:
    world = CoreWorld(1, THREE)
    for number in (1, 2):
        world.hosts[number].crash()
        world.hosts[number].store.lose_election(Random(1))

    assert healing.get_well(world) == -1


def test_a_quorum_that_does_not_get_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoreWorld(1, THREE)
    monkeypatch.setattr(CoreWorld, "hand", lambda *_: None)
    with pytest.raises(BrokenPromiseError, match=r"V1: does not get on after 60000 ms: 1 .* voters .1, 2, 3.; 2 "):
        healing.get_well(world)


def test_no_leader_is_asked_for_where_a_wrong_state_that_is_found_leaves_no_majority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its snapshots are set aside, so a quarantined replica may lack what they have replaced."""
    world, answers = CoreWorld(1, THREE), [True, False]
    monkeypatch.setattr(CoreWorld, "hand", lambda *_: None)
    monkeypatch.setattr(healing, "electable", lambda _: answers.pop(0))
    assert healing.get_well(world) == -1
    assert answers == []
