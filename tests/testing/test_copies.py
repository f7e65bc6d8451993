"""Older copies of a directory: put back where the others can do without it, found where they are mixed, cloned."""

from __future__ import annotations

import random

import pytest

from kraftlib.consensus.fetch_leader import WENT_BACK
from kraftlib.testing.campaign import quiet
from kraftlib.testing.copies import Copy, copy_of, is_older_part, may_go_back, put_back
from kraftlib.testing.copy_faults import cloned_disk, mixed_copy, stale_copy
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from kraftlib.types import ElectionState


def running(voters: int = 3) -> tuple[World, SimulatedNode, SimulatedNode]:
    """Return a quorum that has committed a few records, its leader and a follower."""
    world = World(11, voters=voters, real_files=0)
    world.start()
    leader = world.nodes[world.run_until_leader()]
    world.workload.start()
    world.run_for(1_000)
    follower = next(node for node in world.nodes.values() if node is not leader)
    return world, leader, follower


def copied(node: SimulatedNode) -> Copy:
    copy = copy_of(node)
    assert copy is not None
    return copy


def quiet_end(world: World, node: SimulatedNode) -> None:
    """Let everything become durable everywhere, and one node lose power."""
    world.workload.stop()
    world.run_for(3_000)
    node.end(Ending.POWER_LOST)


def test_a_copy_holds_what_was_durable_then() -> None:
    with quiet():
        world, _, follower = running()
        copy, end_offset = copied(follower), follower.flushed_offset
        world.run_for(1_000)

        assert copy.end_offset == end_offset < follower.flushed_offset
        assert [entry.end_offset for entry in copy.entries][-1] == end_offset


def test_who_goes_back_is_impaired_until_it_has_everything_again_and_its_leader_says_so() -> None:
    with quiet():
        world, leader, follower = running()
        copy = copied(follower)
        world.run_for(500)
        quiet_end(world, follower)
        lost = follower.chain.end_offset
        assert may_go_back(world, follower, copy)

        put_back(world, follower, copy)
        assert follower.chain.end_offset == copy.end_offset < lost
        assert follower.is_impaired
        assert len(world.checker.witnesses) == 1
        follower.start()
        world.run_for(3_000)

        assert not follower.is_impaired
        assert follower.chain.end_offset >= lost
        assert leader.process is not None
        assert leader.process.replica.state.refused[WENT_BACK] > 0
        assert not world.checker.witnesses


def test_what_is_on_too_few_other_disks_is_not_taken_back() -> None:
    """Of three voters one is down: what the leader commits now, only it and the follower have."""
    with quiet():
        world, leader, follower = running()
        third = next(node for node in world.nodes.values() if node not in (leader, follower))
        third.end(Ending.KILLED)
        copy = copied(follower)
        world.run_for(1_000)
        quiet_end(world, follower)

        assert not may_go_back(world, follower, copy)
        third.start()
        world.run_for(5_000)  # nobody is elected, or caught up, by the two that are left without the follower's records

        assert may_go_back(world, follower, copy) == third.has(follower.chain.entries[-1])


def test_a_vote_that_may_still_count_is_not_forgotten() -> None:
    with quiet():
        world, leader, follower = running()
        copy = copied(follower)
        quiet_end(world, follower)
        assert may_go_back(world, follower, copy)
        now = follower.elections.read() or ElectionState()
        follower.elections.write(
            ElectionState(epoch=now.epoch + 1, voted_key=leader.key), kraft_version=0
        )  # as if it had voted in the epoch after this one, of which nobody else knows

        assert not may_go_back(world, follower, copy)


def test_an_old_directory_is_not_put_on_another_disk() -> None:
    with quiet():
        world, _, follower = running()
        copy = copied(follower)
        quiet_end(world, follower)
        follower.wipe()

        assert not may_go_back(world, follower, copy)
        assert not is_older_part(follower, copy)


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_of_a_live_directory_is_found_to_lack_records_and_repaired(seed: int) -> None:
    with quiet():
        world, _, _ = running()
        undo = mixed_copy(world, random.Random(seed))
        assert undo is not None
        world.run_for(1_000)
        world.workload.stop()
        world.run_for(2_000)
        undo()

        assert world.deeds["copy of a live directory put back"] == 1
        (damaged,) = (node for node in world.nodes.values() if node.is_damaged)
        world.run_until(lambda: not damaged.is_damaged, 10_000)
        assert not damaged.is_damaged


def test_a_clone_fetches_and_nothing_comes_of_it() -> None:
    with quiet():
        world, _, _ = running()
        undos = [cloned_disk(world, random.Random(seed)) for seed in range(4)]
        world.run_for(8_000)
        fetched = world.deeds["fetched by a clone"]
        for undo in undos:
            assert undo is not None
            undo()
        world.run_for(3_000)

        assert 4 < fetched == world.deeds["fetched by a clone"]


def test_a_stale_copy_that_cannot_be_put_back_is_given_up() -> None:
    """While one of three is down, the follower goes on with the directory that it has."""
    with quiet():
        world, leader, _ = running()
        next(node for node in world.nodes.values() if node is not leader).end(Ending.KILLED)
        undos = [stale_copy(world, random.Random(seed)) for seed in range(4)]
        world.run_for(1_000)
        for undo in undos:
            assert undo is not None
            undo()
        world.run_for(20_000)

        assert world.deeds["older copy put back"] == 0
