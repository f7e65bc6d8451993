"""Every kind of trouble can be made, ended and survived."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing import liveness
from kraftlib.testing.disk_faults import lose_vote
from kraftlib.testing.faults import FAULTS
from kraftlib.testing.process import Ending
from kraftlib.testing.trace import Step
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import Outcome
from kraftlib.testing.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_begun_and_ended_and_the_quorum_goes_on(name: str) -> None:
    with world(3, voters=3) as made:
        made.workload.start()
        for number in range(4):
            undo = FAULTS[name].begin(made, random.Random(number))
            made.run_for(300)
            if undo is not None:
                undo()
            made.run_for(300)
        made.start()
        made.run_until_leader()
        acknowledged = made.workload.acknowledged
        made.run_for(3_000)

        assert made.workload.acknowledged > acknowledged
        assert made.trace.counts[Step.ROLE] > 0


def test_a_full_disk_refuses_appends_and_takes_nothing_and_has_space_again() -> None:
    """Reliability S6: the leader says so, and the follower stays one."""
    with world(voters=3) as made:
        leader = made.leader()
        assert leader is not None
        follower = next(node for node in made.nodes.values() if node is not leader)
        follower.disk.full = leader.disk.full = True
        for node in (follower, leader):
            assert node.process is not None
            node.process.look_at_space()
        made.run_for(100)
        refused = made.workload.append_to(leader)
        assert refused is None
        assert made.workload.appends[-1].outcome is Outcome.REFUSED

        leader.disk.full = False
        assert leader.process is not None
        leader.process.look_at_space()
        made.run_for(100)
        end_offset = follower.chain.end_offset
        taken = made.workload.append_to(leader)
        made.run_for(1_000)
        assert taken is not None
        assert taken.outcome is Outcome.ACKNOWLEDGED
        assert follower.chain.end_offset == end_offset
        follower.disk.full = False
        assert follower.process is not None
        follower.process.look_at_space()
        made.run_for(5_000)

        assert follower.chain.end_offset == leader.chain.end_offset
        assert made.checker.elections == 1


def test_no_disk_is_replaced_while_the_voters_are_being_changed() -> None:
    """Whoever is left of them may need it: the removal of one of three and the loss of another leave one of two."""
    with world(voters=3, kraft_version=1) as made:
        leader = made.leader()
        assert leader is not None
        assert made.admin.remove(leader.key)
        assert made.admin.is_changing
        assert FAULTS["replace-disk"].begin(made, random.Random(1)) is None
        made.run_for(10_000)

        assert not made.admin.is_changing
        assert len(made.current_voters()) == 2


def test_no_disk_is_taken_from_an_observer_that_is_about_to_be_needed() -> None:
    """One voter and another one that is being added: without its disk neither can commit anything, ever."""
    with world(voters=1, observers=1, kraft_version=1) as made:
        assert made.admin.add(made.nodes[2])
        assert made.admin.is_changing
        assert FAULTS["wipe-observer"].begin(made, random.Random(1)) is None

    with world(voters=3, observers=1, kraft_version=1) as made:
        assert made.admin.add(made.nodes[4])
        assert made.admin.is_changing
        assert FAULTS["wipe-observer"].begin(made, random.Random(1)) is not None


def test_a_quorum_that_has_lost_its_majority_for_good_is_stuck_and_breaks_no_promise() -> None:
    """KIP-853: the second voter is added, and its disk is gone before it has acknowledged that."""
    with world(voters=1, observers=1, kraft_version=1) as made:
        leader, joiner = made.nodes[1], made.nodes[2]
        made.run_for(1_000)
        assert made.admin.add(joiner)
        assert made.run_until(lambda: len(made.checker.voters_of(leader)) == 2, 1_000)
        assert len(made.current_voters()) == 1
        joiner.end(Ending.POWER_LOST)
        joiner.wipe()
        joiner.start()
        with pytest.raises(liveness.StuckError):
            liveness.v7_service_resumes(made)

        assert made.violation is None


def test_the_names_are_those_of_the_table() -> None:
    assert {name: fault.name for name, fault in FAULTS.items()} == {name: name for name in FAULTS}
    assert len(FAULTS) >= 14


def snapshots(made: World, count: int) -> None:
    """Let node 1 append and write a snapshot, again and again."""
    for _ in range(count):
        made.workload.append_to(made.nodes[1])
        made.run_for(200)
        process = made.nodes[1].process
        assert process is not None
        assert process.take_snapshot(0)
        made.run_for(200)


def test_what_a_reader_holds_is_not_deleted_until_the_hold_expires() -> None:
    """The real retention: it looks after each snapshot, and wants the log gone at once here."""
    with world(voters=1, config={"retention_bytes": 0}) as made:
        (node,) = made.nodes.values()
        assert node.process is not None
        hold = node.process.retention.hold("reader", None, 1 << 30)
        snapshots(made, 4)
        assert node.log.start_offset == 0
        node.end(Ending.KILLED)
        node.start()
        made.run_until_leader()
        assert node.process is not None
        assert [kept.name for kept in node.process.retention.holds] == ["reader"]
        node.process.retention.hold("reader", None, 1 << 30).release()
        made.run_for(1_000)

        assert hold.offset == 0
        assert node.log.start_offset > 0


def test_a_deletion_of_what_is_held_is_a_violation() -> None:
    careless = Edit("runtime.snapshots.retention.Retention._is_held", "held = True", "held = False")
    with (
        planted(Mutant("one", "holds are not looked at", (careless,))),
        world(voters=1, config={"retention_bytes": 0}) as made,
    ):
        (node,) = made.nodes.values()
        assert node.process is not None
        node.process.retention.hold("reader", None, 1 << 30)
        with pytest.raises(InvariantViolation, match="HOLD"):
            snapshots(made, 4)


def lose_votes(made: World) -> None:
    """Let voters lose their votes, and come back."""
    dice = random.Random(2)
    for _ in range(4):
        made.run_for(300)
        undo = lose_vote(made, dice)
        made.run_for(500)
        if undo is not None:
            undo()
        made.run_for(8_000)


def test_a_voter_that_has_lost_its_vote_is_asked_for_one() -> None:
    """The leader dies when it comes back: whoever gave its vote then would be seen."""
    forgetful = next(mutant for mutant in MUTANTS if mutant.name == "amnesiac-votes")
    with planted(forgetful), world(seed=2) as made, pytest.raises(InvariantViolation, match=r"I3 .*forgotten"):
        lose_votes(made)


@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_damage_that_nobody_reads_is_found_by_the_scrub_alone(interval_ms: int) -> None:
    with world(config={"scrub_interval_ms": interval_ms, "retention_interval_ms": 1_000}) as made:
        made.workload.start()
        made.run_for(2_000)
        made.workload.stop()
        made.run_for(500)
        leader = made.leader()
        follower = next(node for node in made.nodes.values() if node is not leader)
        assert follower.process is not None
        assert follower.process.take_snapshot(0)  # its next life begins with that and does not read what is below
        made.run_for(100)
        follower.end(Ending.KILLED)
        assert follower.damage_log(latent=True)
        follower.start()
        made.run_for(10_000)

        assert follower.is_damaged is (interval_ms == 0)
