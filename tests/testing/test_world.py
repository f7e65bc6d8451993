"""A quorum on simulated time."""

from __future__ import annotations

import pytest

from kraftlib.errors import InvariantError
from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.listener import Listener
from kraftlib.testing.process import Ending, Process
from kraftlib.testing.world import World
from tests.testing.worlds import world


@pytest.mark.parametrize(("voters", "observers"), [(1, 0), (2, 0), (3, 2), (5, 0)])
def test_a_quorum_of_any_size_elects_and_serves(voters: int, observers: int) -> None:
    with world(voters=voters, observers=observers) as made:
        made.workload.start()
        made.run_for(1_000)
        made.workload.stop()
        made.run_for(1_000)

        assert len(made.nodes) == voters + observers
        assert {node.chain.end_offset for node in made.nodes.values()} == {made.committed_end}
        assert made.workload.acknowledged > 0


def test_the_same_seed_gives_the_same_world_and_another_seed_another() -> None:
    hashes = []
    for seed in (1, 1, 2):
        with world(seed) as made:
            made.workload.start()
            made.run_for(500)
            hashes.append(made.trace.hash)

    assert hashes[0] == hashes[1] != hashes[2]


def test_without_a_majority_there_is_no_leader() -> None:
    with world() as made:
        for number in (1, 2):
            made.nodes[number].end(Ending.POWER_LOST)
        made.run_for(10_000)
        assert made.leader() is None
        with pytest.raises(InvariantError, match="no leader within 100 ms"):
            made.run_until_leader(100)


def test_a_leader_is_one_of_the_newest_epoch_that_has_committed() -> None:
    made = World(1)
    made.start()
    assert made.leader() is None
    leader = made.run_until_leader()

    assert made.nodes[leader].leads == made.checker.facts.latest_epoch


def test_a_listener_of_ones_own_hears_what_every_replica_is_given() -> None:
    heard: dict[int, list[bytes]] = {}

    class Collecting(Listener):
        def __init__(self, process: Process) -> None:
            self._values = heard.setdefault(process.node_id, [])

        def handle_commit(self, reader: BatchReader) -> None:
            for batch in reader:
                self._values.extend(batch.values)

    with world(listener=Collecting) as made:
        made.workload.start()
        made.run_for(500)
        made.workload.stop()
        made.run_for(1_000)

    assert sorted(heard) == [1, 2, 3]
    assert heard[1] == heard[2] == heard[3] != []


def test_configuration_is_taken_over() -> None:
    made = World(1, config={"election_timeout_ms": 77})
    assert {node.config.election_timeout_ms for node in made.nodes.values()} == {77}
