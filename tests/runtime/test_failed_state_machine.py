"""A replica whose own state machine has failed hands over, says so, and does not lead until it is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.errors import KraftError, NotLeaderError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from tests.runtime.quorum import Quorum, quorum, until

POISON = b"poison"

FETCH_TIMEOUT_MS = 10_000
"""A busy machine deposes no leader, and the leader that has failed waits for the slowest voter."""


class Serde:
    """Bytes; where it is broken it cannot read one value."""

    broken = False

    def to_bytes(self, value: bytes) -> bytes:
        return value

    def from_bytes(self, data: bytes) -> bytes:
        if self.broken and data == POISON:
            raise ValueError("what is this?")
        return bytes(data)


class Machine(StateMachine):
    """Counts values; where it is broken it raises at one of them."""

    broken = False

    def __init__(self) -> None:
        self.count = 0

    def apply(self, record: CommittedRecord) -> Any:
        if self.broken and record.value == POISON:
            raise ValueError("out of order")
        self.count += 1
        return self.count

    def snapshot(self) -> Iterable[Any]:
        return [b"%d" % self.count]

    def restore(self, values: Iterable[Any]) -> None:
        (count,) = values
        self.count = int(count)


class Replicas:
    """The machine and the serde of each replica."""

    def __init__(self) -> None:
        self.machines: dict[int, Machine] = {}
        self.serdes: dict[int, Serde] = {}

    def make(self, node_id: int) -> dict[str, Any]:
        self.machines[node_id], self.serdes[node_id] = Machine(), Serde()
        return {"state_machine": self.machines[node_id], "serde": self.serdes[node_id]}

    def break_down(self, node_id: int, *, undecodable: bool) -> None:
        part: Machine | Serde = self.serdes[node_id] if undecodable else self.machines[node_id]
        part.broken = True


async def wait_for_failure(client: RaftClient[Any]) -> None:
    await until(lambda: client.status().failure is not None)


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("undecodable", [False, True])
async def test_a_leader_that_cannot_apply_hands_over_and_says_so(engine: str, undecodable: bool) -> None:
    replicas = Replicas()
    async with quorum(engine=engine, make=replicas.make, fetch_timeout_ms=FETCH_TIMEOUT_MS) as nodes:
        failed = await nodes.leader()
        replicas.break_down(failed.node_id, undecodable=undecodable)
        with pytest.raises(OutcomeUnknownError):
            await failed.propose(POISON)

        leader = await nodes.leader(not_id=failed.node_id)
        assert "raised ValueError" in (failed.status().failure or "")
        assert failed.status().abstains == "state machine failed"
        assert failed.metrics()["state-machine-failed"] == 1
        assert leader.metrics()["state-machine-failed"] == 0
        with pytest.raises(ReplicaFailedError, match="state machine of replica"):
            await failed.wait_closed()
        with pytest.raises(NotLeaderError):
            await failed.append_one(b"value", timeout_ms=0)
        # It replicates, and its vote counts: with a third replica away the two of them go on.
        third = next(node_id for node_id in nodes.ids if node_id not in (failed.node_id, leader.node_id))
        await nodes.stop(third)
        appended = await leader.append_one(b"value")
        await until(lambda: failed.log_end_offset() > appended.last_offset)


async def test_it_is_not_elected_again_until_it_is_restarted() -> None:
    replicas = Replicas()
    async with quorum(make=replicas.make, fetch_timeout_ms=FETCH_TIMEOUT_MS) as nodes:
        failed = await nodes.leader()
        replicas.break_down(failed.node_id, undecodable=False)
        with pytest.raises(OutcomeUnknownError):
            await failed.propose(POISON)
        leader = await nodes.leader(not_id=failed.node_id)
        leader.resign(leader.leader_and_epoch().epoch)
        await until(lambda: leader.leader_and_epoch().epoch > 0)
        after = await nodes.leader()
        assert after.node_id != failed.node_id

        await nodes.stop(failed.node_id)
        await nodes.start(failed.node_id)  # with a machine that is not broken
        await lead(nodes, failed.node_id)
        assert nodes.clients[failed.node_id].status().failure is None


async def lead(nodes: Quorum, node_id: int) -> None:
    """Hand the leadership to a voter, which takes a few attempts on a busy machine."""
    while True:
        leader = await nodes.leader()
        if leader.node_id == node_id:
            return
        try:
            await leader.transfer_leadership(node_id, timeout_ms=2_000)
        except (KraftError, TimeoutError):
            await asyncio.sleep(0.05)


async def test_a_record_that_no_state_machine_can_apply_leaves_nobody_to_lead_until_a_restart() -> None:
    """Everything behind it would be appended for nobody."""
    replicas = Replicas()
    async with quorum(make=replicas.make, fetch_timeout_ms=FETCH_TIMEOUT_MS) as nodes:
        leader = await nodes.leader()
        for node_id in nodes.ids:
            replicas.break_down(node_id, undecodable=False)
        with pytest.raises(OutcomeUnknownError):
            await leader.propose(POISON)
        for client in nodes.clients.values():
            await wait_for_failure(client)
        await until(lambda: not any(client.status().role == "leader" for client in nodes.clients.values()))

        for node_id in nodes.ids:
            await nodes.stop(node_id)
        await nodes.start()
        after = await nodes.leader()
        await after.propose(b"value")
        assert replicas.machines[after.node_id].count >= 2, "the record was committed, and is applied now"


async def test_the_only_voter_takes_nothing_that_it_cannot_apply() -> None:
    replicas = Replicas()
    async with quorum(voters=1, make=replicas.make) as nodes:
        alone = await nodes.leader()
        replicas.break_down(1, undecodable=False)
        with pytest.raises(OutcomeUnknownError):
            await alone.propose(POISON)
        end_offset = alone.log_end_offset()
        with pytest.raises(NotLeaderError, match="restart this replica"):
            await alone.append_one(b"value", timeout_ms=0)
        with pytest.raises(ReplicaFailedError):
            await alone.propose(b"value")
        assert alone.log_end_offset() == end_offset
