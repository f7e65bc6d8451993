"""One life of a replica: pauses, deaths between actions, ends."""

from __future__ import annotations

from kraftlib.consensus.events import ShutdownRequested
from kraftlib.testing.process import Ending, doom_after
from tests.testing.worlds import world


def test_a_paused_process_does_nothing_and_then_everything_that_has_come() -> None:
    with world() as made:
        follower = next(node for node in made.nodes.values() if node.leads is None)
        process = follower.process
        assert process is not None
        process.pause()
        turns = process.turns
        made.run_for(1_000)
        assert (process.turns, process.running, process.paused) == (turns, False, True)
        process.resume()
        made.run_for(3_000)

        assert process.turns > turns
        assert follower.chain.tail is made.checker.facts.committed.tail


def test_a_process_dies_between_two_actions() -> None:
    """Wherever that is: nothing acknowledged is lost, and somebody else leads."""
    for doom in range(10):
        with world(doom) as made:
            leader = made.leader()
            assert leader is not None
            assert leader.process is not None
            leader.process.doom = doom_after(doom, leader.random)
            made.workload.start()
            made.run_until(lambda node=leader: not node.is_up, 2_000)  # type: ignore[misc]
            assert leader.ended in (Ending.KILLED, Ending.POWER_LOST)
            made.run_until_leader()


def test_a_graceful_end_ends_the_process_and_another_leads_at_once() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        began_ms = made.now_ms
        leader.process.executor.submit(ShutdownRequested(1_000))
        made.run_until_leader()
        assert made.now_ms - began_ms < leader.config.election_timeout_ms
        made.run_for(100)

        assert leader.ended is Ending.SHUT_DOWN
        assert made.checker.elections == 2


def test_a_failed_disk_ends_the_process_and_is_no_violation() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        leader.disk.failing = True
        made.workload.append_to(leader)
        made.run_for(100)

        assert leader.ended is Ending.FAILED


def test_an_error_of_the_core_is_a_violation() -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        process.executor.submit("no event at all")  # type: ignore[arg-type]
        assert made.violation is not None
        assert made.violation.invariant == "I22"
