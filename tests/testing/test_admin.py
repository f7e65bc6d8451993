"""Dynamic quorums in a simulation: formatted, changed, and the operator's answers checked."""

from __future__ import annotations

import random

from kraftlib.testing.faults import FAULTS
from kraftlib.types import BOOTSTRAP_SNAPSHOT
from tests.testing.worlds import world


def test_the_first_voters_stand_in_the_bootstrap_checkpoint_and_then_in_the_log() -> None:
    with world(voters=3, observers=1, kraft_version=1) as made:
        made.run_for(1_000)

        assert made.nodes[1].log.snapshots() == [BOOTSTRAP_SNAPSHOT]
        assert made.nodes[4].log.snapshots() == []
        assert list(made.current_voters()) == made.voter_keys
        assert [made.is_voter(node) for node in made.nodes.values()] == [True, True, True, False]


def test_an_observer_becomes_a_voter_and_a_voter_an_observer() -> None:
    with world(voters=3, observers=1, kraft_version=1) as made:
        made.run_for(3_000)
        assert made.admin.add(made.nodes[4])
        made.run_for(3_000)
        assert made.is_voter(made.nodes[4])
        leader = made.leader()
        assert leader is not None
        assert made.admin.remove(leader.key)
        made.run_for(8_000)

        assert [change.error_code for change in made.admin.changes] == [0, 0]
        assert not made.is_voter(leader)
        assert made.leader() is not leader
        assert len(made.current_voters()) == 3


def test_a_replaced_disk_is_another_replica_until_it_is_added() -> None:
    with world(2, voters=3, kraft_version=1) as made:
        made.run_for(3_000)
        undo = FAULTS["replace-disk"].begin(made, random.Random(1))
        (node,) = [node for node in made.nodes.values() if node.disks == 2]
        assert undo is not None
        undo()
        made.run_for(10_000)
        assert not made.is_voter(node)
        assert node.chain.end_offset == made.committed_end
        assert FAULTS["replace-disk"].begin(made, random.Random(1)) is None  # another one would be one too many
        FAULTS["remove-voter"].begin(made, random.Random(1))
        made.run_for(3_000)
        FAULTS["add-voter"].begin(made, random.Random(1))
        made.run_for(3_000)

        assert made.is_voter(node)
        assert [change.error_code for change in made.admin.changes] == [0, 0]


def test_without_a_leader_there_is_nobody_to_ask() -> None:
    with world(voters=1, kraft_version=1) as made:
        made.nodes[1].process.pause()  # type: ignore[union-attr]

        assert not made.admin.add(made.nodes[1])
