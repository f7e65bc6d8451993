"""The checker asks the right invariant when something happens. Planted bugs: tests/simulation/test_mutants.py."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.consensus.events import ResignRequested
from kraftlib.testing.process import Ending
from kraftlib.testing.violation import InvariantViolation
from kraftlib.types import ElectionState
from tests.testing.logs import batch
from tests.testing.worlds import world


def test_a_healthy_quorum_breaks_nothing() -> None:
    with world() as made:
        made.workload.start()
        made.run_for(3_000)

        assert made.violation is None
        assert made.checker.facts.committed_end > 20
        assert made.checker.elections == 1


def test_what_nobody_led_is_not_written() -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        made.checker.appended(process, [batch(process.node.chain.end_offset, 99)])

        assert made.violation is not None
        assert made.violation.invariant == "I13"


def test_a_truncation_without_a_reason_is_seen() -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        made.checker.truncated(process, 0)

        assert made.violation is not None
        assert made.violation.invariant in ("I11", "I13")


def test_a_vote_that_vanishes_from_the_disk_is_seen() -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        before = ElectionState(epoch=5, voted_key=made.nodes[2].key)
        made.checker.persisted(process, before, attrs.evolve(before, voted_key=None))

        assert made.violation is not None
        assert made.violation.invariant == "I3"


def test_committed_records_that_vanish_from_the_disks_are_seen() -> None:
    with world() as made:
        made.workload.start()
        made.run_for(500)
        for node in list(made.nodes.values())[:2]:
            node.chain.truncate(1)
        made.checker.crashed(made.nodes[1])

        assert made.violation is not None
        assert made.violation.invariant == "I9"


def test_the_first_complaint_counts_and_is_raised_when_its_event_is_over() -> None:
    with world() as made:
        made.violated("I1", "first")
        made.violated("I2", "second")
        with pytest.raises(InvariantViolation, match=r"I1 is violated at .* ms: first"):
            made.run_for(1)


def test_an_epoch_that_a_sole_voter_won_and_never_wrote_down_is_none() -> None:
    """Its disk fails before anybody hears of it: it wins the same epoch again, or an earlier one."""
    with world(voters=1) as made:
        node, facts = made.nodes[1], made.checker.facts
        epoch = node.leads or 0
        facts.leaders[epoch + 2] = node.key
        assert made.leader() is None
        node.end(Ending.KILLED)
        assert max(facts.leaders) == epoch
        node.start()
        made.run_for(3_000)

        assert made.leader() is node


def test_an_epoch_that_others_have_granted_is_remembered_whatever_its_leader_has_lost() -> None:
    """A core that does not write down its own candidacy must not get away with a second leader of that epoch."""
    with world(voters=3) as made:
        made.run_until_leader()
        node, facts = next(node for node in made.nodes.values() if node.leads), made.checker.facts
        epoch = (node.leads or 0) + 2
        facts.leaders[epoch] = node.key
        node.end(Ending.KILLED)
        assert facts.leaders[epoch] == node.key


def test_what_a_winner_wrote_before_it_gave_up_at_once_is_no_follower_s_append_to_a_full_disk() -> None:
    """A leader that is shut down as it wins writes the first record of its epoch, and has resigned by then (S6)."""
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        state, epoch = leader.process.replica.state, leader.leads or 0
        leader.process.executor.submit(ResignRequested(epoch))
        state.disk_full = True
        assert leader.leads is None
        end_offset = leader.chain.end_offset
        made.checker.appended(leader.process, [batch(end_offset, epoch)])
        assert made.violation is None

        follower = next(node for node in made.nodes.values() if node is not leader)
        assert follower.process is not None
        follower.process.replica.state.disk_full = True
        made.checker.appended(follower.process, [batch(end_offset, epoch)])
        assert made.violation is not None
        assert made.violation.invariant == "S6"
