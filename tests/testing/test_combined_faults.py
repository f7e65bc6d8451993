"""Several pieces of trouble in one: each does what it says, and finds a bug that is planted for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kraftlib.testing import network_faults as net
from kraftlib.testing.faults import FAULTS
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tests.testing.worlds import world
from tools.rules import Referee


def strike(made: World, name: str, seed: int, *, times: int) -> None:
    """Make one kind of trouble, again and again, and nothing else."""
    dice = random.Random(seed)
    made.workload.start()
    for _ in range(times):
        made.run_for(400)
        undo = FAULTS[name].begin(made, dice)
        made.run_for(400)
        if undo is not None:
            undo()
        made.run_for(1_500)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "bug", "more"),
    [
        ("damage-several", "repair-ends-with-the-first-hole", {"voters": 5}),
        ("snapshot-amid-change", "voters-before-the-log-are-forgotten", {"observers": 2, "kraft_version": 1}),
        ("uneven-connections", "reads-where-the-log-is", {}),
        ("stale-copy", "going-back-is-not-said", {}),
        ("mixed-copy", "shorter-copy-opens", {}),
        ("edited-voters", "edited-list-starts", {}),
        ("new-replicas-with-another-list", "lists-are-not-compared", {"observers": 1}),
    ],
)
def test_it_finds_the_bug_that_is_planted_for_it(fault: str, bug: str, more: dict[str, int]) -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == bug)
    found: list[str] = []
    for seed in range(12):
        with planted(mutant), world(seed, judge=Referee, **more) as made:
            try:
                strike(made, fault, seed, times=8)
            except InvariantViolation as violation:
                found.append(violation.invariant)
                break

    assert found


def lost(made: World) -> Sequence[int]:
    """Return which nodes have lost records, or their votes."""
    return [number for number, node in made.nodes.items() if node.is_impaired]


def test_records_are_lost_on_a_minority_only_and_come_back() -> None:
    sizes = set()
    for seed in range(8):
        with world(seed, voters=5) as made:
            made.workload.start()
            made.run_for(2_000)
            undo = FAULTS["damage-several"].begin(made, random.Random(seed))
            sizes.add(len(lost(made)))
            assert FAULTS["damage-several"].begin(made, random.Random(seed)) is None  # one time after the other
            assert undo is not None
            undo()
            made.workload.stop()
            made.run_for(20_000)

            assert not lost(made)

    assert sizes == {1, 2}


@pytest.mark.parametrize("slows_log", [True, False])
def test_of_two_connections_between_one_pair_one_is_late(slows_log: bool) -> None:
    """Reads have a connection of their own beside the one for the log."""
    with world() as made:
        leader = made.leader()
        assert leader is not None
        follower = next(number for number in made.nodes if number != leader.key.id)
        for pair in ((follower, leader.key.id), (leader.key.id, follower)):
            link = made.network.link(*pair)
            link.uneven_us, link.slows_log = 300_000, slows_log
        port = made.network.ports[follower]
        arrived: list[int] = []
        made.network.meddler = None
        for number in (leader.key.id, -5):
            connection = type(port.connections[leader.key.id])(port, number, leader.key.id, made.timeline.now_us)
            made.network.transmit(follower, leader.key.id, connection, arrived.append, (number,))
        made.run_for(100)
        assert arrived == [-5 if slows_log else leader.key.id]
        made.run_for(400)

        assert len(arrived) == 2


def test_the_links_are_even_again_afterwards() -> None:
    with world() as made:
        undo = net.uneven_connections(made, random.Random(1))
        assert any(link.uneven_us for link in made.network.links.values())
        undo()

        assert not any(link.uneven_us for link in made.network.links.values())
