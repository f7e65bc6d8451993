"""What must be true at the end of a run, and that it is seen if it is not."""

from __future__ import annotations

import pytest

from kraftlib.consensus.state import Read
from kraftlib.testing import final_checks, liveness
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def write_snapshot(made: World) -> None:
    """Append for a while, and let node 1 write a snapshot of it."""
    made.workload.start()
    made.run_for(500)
    made.workload.stop()
    liveness.settle(made)
    process = made.nodes[1].process
    assert process is not None
    assert process.take_snapshot(0)
    made.run_for(1)


def test_elections_in_an_idle_quorum_are_a_violation() -> None:
    with world() as made:
        made.timeline.after(500_000, setattr, made.checker, "elections", 9)
        with pytest.raises(InvariantViolation, match=r"V2 .*8 elections"):
            final_checks.i20_idle_quorum_is_quiet(made)


def test_a_request_that_its_core_knows_of_is_not_left_over() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        leader.process.port.requests[77] = ReadBarrierRequest(cluster_id="c", replica_id=2, timeout_ms=9)
        waiting = Read(request_id=77, deadline_ms=made.now_ms + 9, remote=True)
        leader.process.replica.state.reads.append(waiting)
        final_checks.i19_nothing_is_left_over(made)

        leader.process.replica.state.reads.remove(waiting)
        with pytest.raises(InvariantViolation, match=r"I19 .*forgotten the requests"):
            final_checks.i19_nothing_is_left_over(made)


@pytest.mark.parametrize("waits", [False, True])
def test_a_snapshot_that_nothing_needs_goes_soon(waits: bool) -> None:
    bug = Edit("runtime.snapshots.retention.Retention.look", "len(ids) < 2", "True" if waits else "len(ids) < 2")
    settings = {"retention_bytes": 0, "retention_interval_ms": 500}
    with planted(Mutant("one", "nothing goes", (bug,))), world(voters=1, config=settings) as made:
        for _ in range(2):
            write_snapshot(made)
        if waits:
            with pytest.raises(InvariantViolation, match=r"V11 .*are kept that are too much"):
                final_checks.v11_old_snapshots_go(made)
        else:
            final_checks.v11_old_snapshots_go(made)
            assert len(made.nodes[1].log.snapshots()) == 1


@pytest.mark.parametrize("begins_with", [0, 1])
def test_as_many_hashes_are_told_as_may_wait(begins_with: int) -> None:
    one = Edit("runtime.snapshots.sending.SnapshotSender.__init__", "_hashing = 0", f"_hashing = {begins_with}")
    with planted(Mutant("one", "one less", (one,))), world(voters=1) as made:
        final_checks.v12_hashes_are_told(made)  # there is no snapshot yet
        write_snapshot(made)
        if begins_with:
            with pytest.raises(InvariantViolation, match=r"V12 .*with the errors"):
                final_checks.v12_hashes_are_told(made)
        else:
            final_checks.v12_hashes_are_told(made)
