"""A state machine that errs, in simulated quorums: its replica is found and healed, and no other one is suspected."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kraftlib.errors import KraftError, ReplicaFailedError
from kraftlib.runtime.waiters import COMMITTED
from kraftlib.testing import final_checks, liveness
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Process
from kraftlib.testing.world import World
from tests.testing.worlds import world

INTERVAL_MS = 500
MINUTE_MS = 60_000


def process_of(node: SimulatedNode) -> Process:
    assert node.process is not None
    return node.process


def quarantines(made: World) -> Counter[int]:
    """How often the process of each node was quarantined."""
    return Counter(
        {number: process_of(node).replica.status().quarantines for number, node in made.nodes.items() if node.process}
    )


def run_until_healed(made: World, number: int) -> None:
    """Run until this node was quarantined and is well again."""
    for _ in range(MINUTE_MS // 100):
        made.run_for(100)
        status = process_of(made.nodes[number]).replica.status()
        if status.quarantines and status.quarantined_at is None:
            return
    raise AssertionError(f"node {number} was not healed within a minute: {status}")


def check_states(made: World) -> None:
    """All replicas have the same state in the end, and none but the wrong one was ever suspected (U4)."""
    made.workload.stop()
    liveness.settle(made)
    final_checks.u3_states_are_equal(made)
    made.raise_violation()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("role", ["leader", "follower", "observer"])
def test_a_machine_that_errs_is_found_and_healed_within_a_minute(seed: int, role: str) -> None:
    config = {"digest_interval_ms": INTERVAL_MS, "retention_bytes": (-1, 0)[seed % 2]}
    with world(seed, voters=3, observers=1, config=config, snapshot_interval_records=(0, 20)[seed % 2]) as made:
        leader = made.run_until_leader()
        wrong = {"leader": leader, "follower": leader % 3 + 1, "observer": 4}[role]
        made.workload.reads_share = 0.0  # what is read before the difference is found is wrong
        made.workload.start()
        made.run_for(3_000)
        process_of(made.nodes[wrong]).machine.errs = True
        run_until_healed(made, wrong)
        assert quarantines(made) == Counter({wrong: 1})
        made.run_for(3_000)
        check_states(made)
        assert quarantines(made)[wrong] == 1


class Told:
    """A caller, and what it was told."""

    def __init__(self) -> None:
        self.outcome: Any = None

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        self.outcome = result

    def set_exception(self, exception: BaseException, /) -> None:
        self.outcome = exception


def test_a_quarantined_replica_serves_no_reads_takes_no_appends_and_writes_no_snapshot() -> None:
    with world(1, voters=3, config={"digest_interval_ms": INTERVAL_MS}) as made:
        leader = made.run_until_leader()
        node, process = made.nodes[leader], process_of(made.nodes[leader])
        made.workload.reads_share = 0.0
        made.workload.start()
        made.run_for(1_000)
        process.machine.errs = True
        while process.replica.status().quarantined_at is None:
            made.run_for(1)
        before = process.log.snapshots()
        read = Told()
        process.executor.read_barrier(read, 1_000)
        with pytest.raises(KraftError):
            node.append([b"x"], level=COMMITTED, promise=Told())
        with pytest.raises(ReplicaFailedError, match="differs from that of the majority"):
            process.housekeeping.create(lambda *_: None, None, None)
        made.run_for(20)
        assert process.replica.status().quarantined_at is not None
        assert set(process.log.snapshots()) <= set(before)
        run_until_healed(made, leader)
        assert not isinstance(read.outcome, int)
        check_states(made)
