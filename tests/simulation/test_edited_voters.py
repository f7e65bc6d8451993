"""Two lists of static voters in one cluster: the replicas of the one give those of the other no vote, and get none."""

from __future__ import annotations

import random

import pytest

from kraftlib.consensus.extensions.misconfiguration import OTHER_VOTERS
from kraftlib.consensus.roles import Role
from kraftlib.testing.campaign import quiet
from kraftlib.testing.list_faults import edited_voters, new_replicas_with_another_list
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from tools.rules import Referee

OLD, NEW = (1, 2, 3), (4, 5)


@pytest.mark.parametrize("seed", range(6))
def test_who_was_added_to_a_list_by_hand_leads_nobody(seed: int) -> None:
    """1, 2 and 3 run with {1, 2, 3}; 4 and 5 are started with {1, 2, 3, 4, 5}, of which {3, 4, 5} is a majority.

    They would fetch, have everything, and be elected by 3 when the others are down, while {1, 2} elect somebody else.
    """
    with quiet():
        world = World(seed, voters=3, observers=2, real_files=0, judge=Referee)
        for number in NEW:
            world.nodes[number].use_voters((*OLD, *NEW))
        for number in OLD:
            world.nodes[number].start()
        world.run_until(lambda: world.leader() is not None, 10_000)
        for number in NEW:
            world.nodes[number].start()
        world.workload.start()
        world.run_for(3_000)
        leader = world.leader()
        assert leader is not None
        leader.end(Ending.KILLED)
        world.run_until(lambda: world.leader() not in (None, leader), 10_000)
        second = world.leader()
        assert second is not None
        assert second.key.id in OLD

        second.end(Ending.KILLED)
        world.run_for(10_000)  # one of the three is left: nobody is to lead, however willing the new ones are

        for number in NEW:
            process = world.nodes[number].process
            assert process is not None
            assert process.replica.role is not Role.LEADER
            assert process.replica.state.log.end_offset == 0
            assert process.replica.state.refused[OTHER_VOTERS] > 0
        (last,) = (world.nodes[number].process for number in OLD if world.nodes[number].process is not None)
        assert last is not None
        assert last.replica.state.refused[OTHER_VOTERS] > 0
        leader.start()
        world.run_until(lambda: world.leader() is not None, 10_000)
        served = world.leader()
        assert served is not None
        assert served.key.id in OLD


def running(**more: int) -> World:
    """A quorum of three that has committed a few records."""
    world = World(7, voters=3, real_files=0, **more)
    world.start()
    world.run_until_leader()
    world.workload.start()
    world.run_for(1_000)
    return world


@pytest.mark.parametrize("ids", [(1, 2, 3, 4), (1, 2), (1, 2, 9)])
def test_a_replica_that_has_run_does_not_start_with_another_list(ids: tuple[int, ...]) -> None:
    with quiet():
        world = running()
        node = world.nodes[1]
        node.end(Ending.KILLED)
        node.use_voters(ids)
        node.start()

        assert (node.is_up, node.refusals) == (False, 1)
        node.use_voters(())
        node.start()

        assert (node.is_up, node.refusals) == (True, 1)
        world.run_for(1_000)


def test_the_order_of_the_list_does_not_count() -> None:
    with quiet():
        world = running()
        node = world.nodes[2]
        node.end(Ending.KILLED)
        node.use_voters((3, 1, 2))
        node.start()

        assert (node.is_up, node.edited_voters) == (True, ())
        world.run_for(1_000)


def test_in_a_dynamic_quorum_the_list_has_no_effect() -> None:
    with quiet():
        world = running(kraft_version=1)
        for node in world.nodes.values():
            node.end(Ending.KILLED)
            node.use_voters((1, 4, 5))
        world.start()
        world.run_until_leader()
        world.run_for(1_000)

        assert sorted(key.id for key in world.current_voters()) == list(OLD)


def test_new_replicas_that_are_a_majority_of_their_own_list_are_not_drawn() -> None:
    """A quorum of one, and two new ones with {1, 2, 3}: these two could elect each other, and nobody could tell."""
    with quiet():
        world = World(3, voters=1, observers=2, real_files=0)
        world.start()
        world.run_until_leader()
        drawn = []
        for seed in range(40):
            undo = new_replicas_with_another_list(world, random.Random(seed))
            drawn.append(sum(bool(node.edited_voters) for node in world.nodes.values()))
            if undo is not None:
                undo()

        assert set(drawn) == {0, 1}


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_replica_whose_disk_names_no_voters_is_given_no_other_list(kraft_version: int) -> None:
    """It would take that list for its own, and be refused with the right one for ever."""
    with quiet():
        world = World(3, voters=3, real_files=0, kraft_version=kraft_version)
        for node in world.nodes.values():
            node.start()

        assert [edited_voters(world, random.Random(seed)) for seed in range(20)] == [None] * 20
        assert [node.is_up for node in world.nodes.values()] == [True] * 3
