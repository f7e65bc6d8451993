"""What shows only over time: leaders without listeners, replicas that spin."""

from __future__ import annotations

import pytest

from kraftlib.consensus.events import ResignRequested, TimeoutReached
from kraftlib.testing.monitor import BURST
from kraftlib.testing.violation import InvariantViolation
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def test_a_leader_whom_nobody_asks_must_give_up() -> None:
    """Here it cannot, for its timer is put off; in test_mutants.py the core forgets to."""
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        role = leader.process.replica.state.role_state
        for other in made.nodes:
            if other != leader.key.id:
                made.network.link(other, leader.key.id).cut = True
        made.run_for(100)  # what is on its way still arrives
        role.check_quorum_deadline_ms += 10**9  # type: ignore[union-attr]
        with pytest.raises(InvariantViolation, match=r"E7 .*still leads") as caught:
            made.run_for(10_000)

        assert caught.value.invariant == "E7"


def test_a_leader_whose_followers_ask_and_get_nowhere_must_give_up() -> None:
    """With the rule of E8 it does; without it, it is seen."""
    with world() as made:
        leader = made.leader()
        assert leader is not None
        made.network.withholding.add(leader.key.id)
        made.workload.append_to(leader)
        made.run_for(10_000)
        assert leader.leads is None

    never = Edit("consensus.deadlines.stall_deadline_ms", "if others_needed <= 0:", "if True:")
    with planted(Mutant("one", "a leader that gets nowhere stays", (never,))), world() as made:
        leader = made.leader()
        assert leader is not None
        made.network.withholding.add(leader.key.id)
        made.workload.append_to(leader)
        with pytest.raises(InvariantViolation, match=r"E8 .*committed no waiting record"):
            made.run_for(20_000)


def test_whoever_has_everything_need_not_get_on() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        wait_us = 2_000 * leader.config.fetch_max_wait_ms
        made.run_for(10_000)
        others = [number for number in made.nodes if number != leader.key.id]

        assert all(made.timeline.now_us - leader.process.moved_us[number] < wait_us for number in others)


def test_a_core_that_wants_to_be_called_for_nothing_is_seen() -> None:
    due = Edit("consensus.poll.deadline_ms", "return min(", "return state.now_ms or min(")
    with (
        planted(Mutant("one", "something is always due", (due,))),
        pytest.raises(InvariantViolation, match=r"I20 .*is due since"),
        world() as made,
    ):
        made.run_for(1_000)


def test_a_leader_that_is_cut_off_and_gives_up_is_fine() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        for other in made.nodes:
            if other != leader.key.id:
                made.network.link(other, leader.key.id).cut = True
        made.run_for(10_000)

        assert leader.leads is None


def test_a_leader_that_outlives_its_disk_is_seen() -> None:
    """A core that does not look at its disk, as one without the rule of S10 would be."""
    never = Edit("consensus.poll.poll", "state.flush_waiting_since_ms = state.now_ms", "pass")
    with planted(Mutant("one", "a leader keeps a hung disk", (never,))), world() as made:
        leader = made.leader()
        assert leader is not None
        leader.disk.hung = True
        made.workload.append_to(leader)
        with pytest.raises(InvariantViolation, match=r"S10 .*nothing durable"):
            made.run_for(20_000)


def test_a_leader_whose_disk_hangs_and_comes_back_in_time_goes_on() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        leader.disk.hung = True
        made.workload.append_to(leader)
        made.run_for(leader.config.fetch_timeout_ms // 2)
        leader.disk.unhang()
        made.run_for(5_000)

        assert made.leader() is leader


def test_a_core_that_is_called_without_end_is_seen() -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        for _ in range(BURST + 1):
            process.executor.submit(TimeoutReached())
        with pytest.raises(InvariantViolation, match="I20"):
            made.run_for(2_000)


def test_an_application_that_is_not_told_of_the_end_of_its_leadership_is_a_violation() -> None:
    """As long as no other replica is elected: that would be told."""
    leader_of_the_core = "self.leader = self.core.leader_and_epoch"
    edits = [
        Edit(f"runtime.executor.Executor.{one}", leader_of_the_core, "pass") for one in ("note_role", "leadership_over")
    ]
    with world() as made, planted(Mutant("one", "the end stays in the core", tuple(edits))):
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        for other in made.nodes:
            if other != leader.key.id:
                made.network.link(leader.key.id, other).cut = True
        leader.process.executor.submit(ResignRequested(leader.process.replica.epoch))
        with pytest.raises(InvariantViolation, match=r"V9 .*the core of .* knows"):
            made.run_for(5_000)


def test_a_listener_that_is_not_told_of_a_leader_is_a_violation() -> None:
    never = Edit("runtime.applier.Applier._feed", "feed.is_news(leader)", "False")
    mutant = Mutant("one", "no leader is news", (never,))
    with planted(mutant), world() as made, pytest.raises(InvariantViolation, match=r"V9 .*the core of .* knows"):
        made.run_for(5_000)


def test_an_election_that_the_metrics_do_not_tell_of_is_a_violation() -> None:
    never = Edit("runtime.executor.Executor.note_role", "self._metrics.role_changed(role)", "pass")
    mutant = Mutant("one", "the metrics hear of no role", (never,))
    with planted(mutant), world() as made, pytest.raises(InvariantViolation, match=r"V9 .*how long that took"):
        made.run_for(5_000)
