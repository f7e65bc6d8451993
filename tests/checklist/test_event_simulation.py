"""Checklist section 13: the scenarios of Kafka's RaftEventSimulationTest, in our simulator.

Its timing: election timeout 1000, fetch timeout 3000, retry backoff 50, request timeout 3000, fetch max wait 100. Its
invariants are among ours (`kraftlib.testing.invariants`), which are checked at everything that happens: a violation is
raised where it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.testing import histories, liveness
from kraftlib.testing.campaign import quiet
from kraftlib.testing.process import Ending
from kraftlib.testing.world import World
from tools.rules import Referee

KAFKAS: dict[str, Any] = {
    "election_timeout_ms": 1_000,
    "fetch_timeout_ms": 3_000,
    "retry_backoff_ms": 50,
    "request_timeout_ms": 3_000,
    "fetch_max_wait_ms": 100,
}
LIMIT_MS = 120_000

SIZES = [(3, 0), (4, 2), pytest.param(5, 5, marks=pytest.mark.slow)]
ANY_SIZE = [(1, 0), (2, 1), *SIZES]


def started(seed: int, voters: int, observers: int) -> World:
    """A quorum under load, with its first ten records committed everywhere."""
    world = World(seed, voters=voters, observers=observers, config=KAFKAS, judge=Referee)
    world.workload.rate = 50.0
    world.start()
    world.workload.start()
    all_reach(world, world.nodes, 10)
    return world


def reached(world: World, node_id: int) -> int:
    """The high watermark of a node."""
    process = world.nodes[node_id].process
    return 0 if process is None else process.replica.high_watermark or 0


def all_reach(world: World, node_ids: Iterable[int], high_watermark: int) -> None:
    """Let time pass until all of them know that this is committed."""
    ids = list(node_ids)

    def everybody() -> bool:
        return all(reached(world, node_id) >= high_watermark for node_id in ids)

    assert world.run_until(everybody, LIMIT_MS), [(node_id, reached(world, node_id)) for node_id in ids]


def go_on(world: World, more: int = 10) -> None:
    """Everybody that runs gets that much further."""
    all_reach(world, [number for number, node in world.nodes.items() if node.is_up], world.committed_end + more)


def cut_off(world: World, node_id: int, *, cut: bool = True) -> None:
    """Drop everything from and to a node, or nothing any more."""
    for other in world.nodes:
        if other != node_id:
            world.network.link(node_id, other).cut = cut
            world.network.link(other, node_id).cut = cut


@pytest.fixture(autouse=True)
def silent() -> Any:
    """Worlds in trouble log a lot."""
    with quiet():
        yield


@pytest.mark.parametrize(("voters", "observers"), ANY_SIZE)
def test_a_first_leader_is_elected(voters: int, observers: int) -> None:
    """canElectInitialLeader."""
    world = started(1, voters, observers)
    leaders = {node.process.replica.leader_and_epoch.leader_id for node in world.nodes.values() if node.process}

    assert len(leaders) == 1


@pytest.mark.parametrize(("voters", "observers"), SIZES)
@pytest.mark.parametrize("ending", [Ending.POWER_LOST, Ending.SHUT_DOWN])
def test_a_leader_that_ends_is_replaced_and_comes_back(voters: int, observers: int, ending: Ending) -> None:
    """canElectNewLeaderAfterOldLeaderFailure."""
    world = started(2, voters, observers)
    old = world.run_until_leader()
    world.nodes[old].end(ending)
    rest = [node_id for node_id in world.nodes if node_id != old]
    all_reach(world, rest, world.committed_end + 10)
    assert world.run_until_leader() != old
    world.nodes[old].start()

    go_on(world)


@pytest.mark.parametrize(("voters", "observers"), ANY_SIZE)
def test_a_quorum_whose_machines_all_lost_power_goes_on(voters: int, observers: int) -> None:
    """canRecoverAfterAllNodesKilled: a majority suffices."""
    world = started(3, voters, observers)
    for node in world.nodes.values():
        node.end(Ending.POWER_LOST)
    for number in range(1, voters // 2 + 2):
        world.nodes[number].start()

    go_on(world)


@pytest.mark.parametrize(("voters", "observers"), SIZES)
def test_a_leader_that_is_cut_off_is_replaced(voters: int, observers: int) -> None:
    """canElectNewLeaderAfterOldLeaderPartitionedAway."""
    world = started(4, voters, observers)
    old = world.run_until_leader()
    cut_off(world, old)

    all_reach(world, [node_id for node_id in world.nodes if node_id != old], world.committed_end + 10)


@pytest.mark.parametrize("observers", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_the_side_with_the_majority_goes_on_and_after_healing_everybody(observers: int) -> None:
    """canMakeProgressIfMajorityIsReachable: {1, 2} and {3, 4, 5}."""
    world = started(5, 5, observers)
    few, many = (1, 2), [node_id for node_id in world.nodes if node_id > 2]
    for one in few:
        for other in many:
            world.network.link(one, other).cut = True
            world.network.link(other, one).cut = True
    all_reach(world, many, 2 * world.committed_end)
    assert all(reached(world, one) < reached(world, other) for one in few for other in many)
    for one in few:
        for other in many:
            world.network.link(one, other).cut = False
            world.network.link(other, one).cut = False

    all_reach(world, world.nodes, 2 * world.committed_end)


@pytest.mark.parametrize(("voters", "observers"), SIZES)
def test_leaders_that_fail_one_after_the_other_are_replaced(voters: int, observers: int) -> None:
    """canMakeProgressAfterBackToBackLeaderFailures."""
    world = started(6, voters, observers)
    first = world.run_until_leader()
    cut_off(world, first)

    def another_leads() -> bool:
        leader = world.leader()
        return leader is not None and leader.key.id != first

    assert world.run_until(another_leads, LIMIT_MS)
    second = world.run_until_leader()
    cut_off(world, first, cut=False)
    cut_off(world, second)

    all_reach(world, [node_id for node_id in world.nodes if node_id != second], world.committed_end + 10)


def test_what_all_agree_on_in_the_end_is_what_callers_were_told() -> None:
    """ConsistentCommittedData: for each offset below the high watermark all nodes agree, at all times."""
    world = started(7, 3, 2)
    world.nodes[world.run_until_leader()].end(Ending.POWER_LOST)
    world.run_for(5_000)
    world.start()
    go_on(world)
    world.workload.stop()
    liveness.settle(world)
    histories.i10_log_holds_what_callers_were_told(world)

    ends = {node.chain.end_offset for node in world.nodes.values()}
    assert ends == {world.committed_end}
    assert len({node.chain.covering(world.committed_end - 1) for node in world.nodes.values()}) == 1


@pytest.mark.parametrize(("voters", "observers"), [(3, 0), (3, 2), (5, 1)])
def test_a_voter_that_lost_its_disk_is_filled_again(voters: int, observers: int) -> None:
    """canRecoverFromSingleNodeCommittedDataLoss: with a static quorum, once another leads."""
    world = started(8, voters, observers)
    lost = world.run_until_leader()
    world.nodes[lost].end(Ending.POWER_LOST)
    world.nodes[lost].wipe()
    assert world.run_until_leader() != lost
    all_reach(world, [node_id for node_id in world.nodes if node_id != lost], world.committed_end + 10)
    world.nodes[lost].start()

    go_on(world)
