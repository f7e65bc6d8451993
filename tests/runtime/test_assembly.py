"""One assembly: the simulator runs the parts that a node runs, housekeeping included."""

from __future__ import annotations

import inspect

from kraftlib.runtime import executor, housekeeping, router
from kraftlib.runtime.client import node
from kraftlib.testing import process
from kraftlib.testing.process import Ending
from tests.testing.worlds import world

LIMITS = {"retention_bytes": 0, "retention_interval_ms": 1_000}


def test_nobody_wires_a_replica_but_the_assembly() -> None:
    wired = {executor.Executor, housekeeping.Housekeeping}
    for module in (node, process):
        assert "Assembly(" in inspect.getsource(module)
        assert not [part for part in wired if part in vars(module).values()], module.__name__
        assert vars(module)["Router"] is router.Router


def test_a_simulated_replica_takes_snapshots_and_cuts_its_log_by_itself() -> None:
    with world(config=LIMITS, snapshot_interval_records=10) as made:
        made.workload.start()
        made.run_for(5_000)

        for machine in made.nodes.values():
            assert machine.log.start_offset > 0
        assert {node_id for node_id, _, _ in made.snapshots} == set(made.nodes)


def test_a_simulated_replica_restores_its_state_from_its_own_snapshot() -> None:
    with world(config=LIMITS, snapshot_interval_records=10) as made:
        made.workload.start()
        made.run_for(3_000)
        machine = made.nodes[1]
        machine.end(Ending.KILLED)
        machine.start()
        made.run_for(3_000)
        made.workload.stop()
        made.run_for(1_000)

        assert machine.log.start_offset > 0
        assert machine.process is not None
        assert machine.process.applier.applied_offset == made.committed_end


def test_a_failed_replica_looks_after_nothing_any_more() -> None:
    with world(voters=1, config=LIMITS, snapshot_interval_records=10) as made:
        made.workload.start()
        made.run_for(1_000)
        running = made.nodes[1].process
        assert running is not None
        made.nodes[1].disk.failing = True
        made.run_for(1_000)
        assert running.executor.failure is not None
        taken = len(made.snapshots)
        running.running = True  # its timers would come now
        made.run_for(5_000)

        assert len(made.snapshots) == taken
