"""Snapshots, retention and holds of real replicas: nobody asks for them, and nobody waits for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import DirectoryInUseError, RecordTooLargeError, StorageError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime import housekeeping
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Endpoint
from tests.runtime.client.test_raft_client import ENGINES, Counter
from tests.runtime.quorum import PATIENCE_S, TIMING, alone, quorum, until


@ENGINES
async def test_snapshots_are_taken_and_the_log_is_cut_without_being_asked(engine: str) -> None:
    # What a follower downloads stays until it has it: on a busy machine one does, so it is looked at often.
    limits = {"snapshot_interval_records": 5, "retention_bytes": 0, "retention_interval_ms": 100}
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


class Unreadable(MemoryReplicatedLog):
    """A log whose disk says nothing of its space until it `answers`."""

    is_full = answers = False
    looks = 0

    def look_at_space(self) -> None:
        self.looks += 1
        if not self.answers:
            raise StorageError("statvfs: Input/output error")


async def test_a_look_at_the_disk_that_fails_is_told_once_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "SPACE_PERIOD_S", 0.01)
    log = Unreadable()
    async with alone({"log": log}):
        await until(lambda: log.looks > 3)
        log.answers, looks = True, log.looks
        await until(lambda: log.looks > looks + 3)
    assert [record.getMessage() for record in caplog.records if "its disk" in record.getMessage()] == [
        "replica 1: cannot look at its disk: statvfs: Input/output error"
    ]


async def test_a_hold_is_still_there_after_a_restart(tmp_path: Path) -> None:

    def client() -> RaftClient[int]:
        parts = {"state_machine": Counter(), "serde": JsonSerde()}
        return alone(parts, directory=tmp_path, snapshot_interval_records=3, retention_bytes=0)

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


@ENGINES
async def test_a_hold_that_is_released_at_the_end_or_after_it_is_gone_after_a_restart(
    engine: str, tmp_path: Path
) -> None:
    def stored() -> list[str]:
        document = json.loads((tmp_path / names.PARTITION_DIRECTORY / names.HOLDS).read_bytes())
        return [hold["name"] for hold in document["holds"]]

    async with alone(directory=tmp_path, engine=engine) as first:
        await first.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        at_end, after_end, later = (first.hold_log(name) for name in ("at the end", "after the end", "later"))
        at_end.release()
    assert stored() == ["after the end", "later"]
    after_end.release()
    assert stored() == ["later"]
    async with alone(directory=tmp_path, engine=engine) as second:
        with pytest.raises(DirectoryInUseError):
            later.release()
        second.hold_log("of the second life")
    later.release()
    later.release()
    assert stored() == ["of the second life"]


class Rows(StateMachine):
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.rows.append(record.value)

    def snapshot(self) -> Iterable[Any]:
        return list(self.rows)

    def restore(self, values: Iterable[Any]) -> None:
        self.rows = list(values)


async def test_a_download_goes_on_after_restarts_of_the_follower(tmp_path: Path) -> None:
    """Each life gets a part of it; all together it sends hardly more than the snapshot has."""
    hub = MemoryHub()
    voters = tuple(StaticVoter(node_id, Endpoint("replica", node_id)) for node_id in (1, 2))
    machines: dict[int, Rows] = {}

    def client(node_id: int, **more: Any) -> RaftClient[str]:
        directory = tmp_path / str(node_id)
        known = [1, 2] if node_id < 3 else []
        format_directory(directory, node_id=node_id, cluster_id="c", static_voters=known, ignore_formatted=True)
        machines[node_id] = Rows()
        config = RaftConfig(
            node_id=node_id,
            directory=directory,
            voters=voters if node_id < 3 else (),
            bootstrap_servers=() if node_id < 3 else tuple(voter.endpoint for voter in voters),
            retention_bytes=0,
            **TIMING,
            **more,
        )
        transport = MemoryTransport(hub, Endpoint("replica", node_id))
        return RaftClient(config, transport=transport, state_machine=machines[node_id], serde=JsonSerde())

    async with client(1) as one, client(2) as two:
        await one.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        leader = one if one.leader_and_epoch().leader_id == 1 else two
        for number in range(40):
            await leader.append([f"{number}" * 2_000 for _ in range(10)])
        for _ in range(2):  # the second lets retention drop the log below the first
            await leader.append(["last"], wait="applied")
            snapshot_id = await leader.create_snapshot()
        await until(lambda: leader.status().log_start_offset == snapshot_id.offset)
        size = (tmp_path / str(leader.node_id) / names.PARTITION_DIRECTORY / names.checkpoint_name(snapshot_id)).stat()

        # As much a second as the snapshot has, in chunks of 64 KiB: every life of this observer is cut short.
        part = tmp_path / "3" / names.PARTITION_DIRECTORY / names.download_name(snapshot_id)
        sizes = [0]
        for _ in range(3):
            observer = client(3, snapshot_max_bytes=65_536, snapshot_rate_bytes=size.st_size)
            async with observer:
                await until(lambda: part.exists() and part.stat().st_size > sizes[-1] + 65_536)
                await observer.shutdown(timeout_ms=0)
            sizes.append(part.stat().st_size)
        assert sizes == sorted(set(sizes)), "every life went on where the last one ended"
        async with client(3) as observer:
            await observer.wait_for_offset(snapshot_id.offset - 1, timeout_ms=int(PATIENCE_S * 1_000))
            assert observer.latest_snapshot_id() == snapshot_id
            assert machines[3].rows == machines[leader.node_id].rows
            assert not part.exists()
