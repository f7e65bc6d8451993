"""Snapshots, retention and holds of real replicas: nobody asks for them, and nobody waits for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import RecordTooLargeError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.client import RaftClient
from kraftlib.runtime.memory_transport import MemoryHub, MemoryTransport
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from tests.runtime.quorum import PATIENCE_S, TIMING, quorum, until
from tests.runtime.test_client import ENGINES, Counter


@ENGINES
async def test_snapshots_are_taken_and_the_log_is_cut_without_being_asked(engine: str) -> None:
    limits = {"snapshot_interval_records": 5, "retention_bytes": 0}
    async with quorum(
        make=lambda node_id: {"state_machine": Counter(), "serde": JsonSerde()}, engine=engine, **limits
    ) as three:
        three.probe = 0
        leader = await three.leader()
        for number in range(40):
            await leader.propose(number)
        for client in three.clients.values():
            await until(lambda client=client: client.status().log_start_offset > 20)  # type: ignore[misc]
        assert await leader.propose(0) == sum(range(40))
        hold = leader.hold_log("reader")
        held = hold.offset
        for number in range(20):
            await leader.propose(number)
        await until(lambda: leader.latest_snapshot_id().offset > held + 15)  # type: ignore[union-attr]
        assert leader.status().log_start_offset == held
        hold.release()
        await until(lambda: leader.status().log_start_offset > held)


@ENGINES
async def test_a_snapshot_is_written_value_by_value_or_not_at_all(engine: str) -> None:
    async with quorum(voters=1, make=lambda node_id: {"serde": JsonSerde()}, engine=engine) as alone:
        alone.probe = 0
        leader = await alone.leader()
        end = (await leader.append(list(range(10)))).last_offset + 1
        await leader.wait_for_offset(end - 1)
        snapshot = leader.begin_snapshot(offset=end)
        snapshot.append([1])
        snapshot.abort()
        assert leader.latest_snapshot_id() is None
        with pytest.raises(RecordTooLargeError), leader.begin_snapshot(offset=end) as snapshot:
            snapshot.append(["x" * (9 << 20)])
        with leader.begin_snapshot() as snapshot:
            for number in range(10):
                snapshot.append([number])
            assert leader.latest_snapshot_id() is None
        await until(lambda: leader.latest_snapshot_id() == snapshot.snapshot_id)
        assert snapshot.snapshot_id.offset == end


async def test_a_hold_is_still_there_after_a_restart(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id=1, cluster_id="cluster", static_voters=[1])
    config = RaftConfig(
        node_id=1,
        directory=tmp_path,
        voters=(StaticVoter(1, Endpoint("replica", 1)),),
        snapshot_interval_records=3,
        retention_bytes=0,
        **TIMING,
    )

    def client() -> RaftClient[int]:
        transport = MemoryTransport(MemoryHub(), Endpoint("replica", 1))
        return RaftClient(config, transport=transport, state_machine=Counter(), serde=JsonSerde())

    async with client() as first:
        await first.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        await first.append_one(1)
        first.hold_log("feed", offset=1)
    async with client() as second:
        await second.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        for number in range(20):
            await second.propose(number)
        await until(lambda: second.latest_snapshot_id().offset > 15)  # type: ignore[union-attr]
        assert second.status().log_start_offset <= 1
        hold = second.hold_log("feed")
        assert hold.offset == 1
        hold.release()
        await until(lambda: second.status().log_start_offset > 1)
