"""Incremental snapshots of a real replica: small, merged in the background, as good as full ones after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tests.storage.crash.every_module  # noqa: F401 - else not all is watched
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import CorruptBatchError
from kraftlib.records.serde import JsonSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, Increments
from kraftlib.runtime.snapshots.writing import SnapshotPlan
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.new_quorum import begin_new_quorum
from kraftlib.storage.snapshots.increment_files import IncrementFiles
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import Endpoint, OffsetAndEpoch
from tests.runtime.quorum import PATIENCE_S, TIMING, alone, until
from tools.storage_proof.file_trace import FileTrace


class Table(IncrementalStateMachine):
    """Keys and values; None forgets a key."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.changed: set[str] = set()
        self.applied: list[int] = []
        self.frozen: list[str] = []

    def apply(self, record: CommittedRecord) -> Any:
        key, value = record.value
        self.items.pop(key, None)
        if value is not None:
            self.items[key] = value
        self.changed.add(key)
        self.applied.append(record.offset)

    def key_of(self, value: Any) -> bytes:
        return str(value[0]).encode()

    def freeze(self) -> Iterable[Any]:
        self.frozen.append("all")
        self.changed = set()
        copy = dict(self.items)
        return ([key, value] for key, value in copy.items())

    def freeze_changes(self) -> Iterable[tuple[bytes, Any | None]]:
        self.frozen.append("changes")
        changed, self.changed = self.changed, set()
        return [(key.encode(), [key, self.items[key]] if key in self.items else None) for key in changed]

    def restore(self, values: Iterable[Any]) -> None:
        self.items = dict(values)
        self.changed = set()


def client(directory: Path, machine: Table, **more: Any) -> RaftClient[Any]:
    settings = {"snapshot_interval_records": 10, "retention_bytes": 0, **more}
    return alone({"state_machine": machine, "serde": JsonSerde()}, directory=directory, **settings)


def stored(directory: Path, suffix: str) -> list[OffsetAndEpoch]:
    partition = directory / names.PARTITION_DIRECTORY
    parse = names.parse_increment_name if suffix == "increment" else names.parse_checkpoint_name
    found = [parse(path.name) for path in partition.glob(f"*.{suffix}")]
    return sorted(one for one in found if one is not None)


async def begin(running: RaftClient[Any]) -> OffsetAndEpoch:
    """Take a first checkpoint, whose large value keeps increments small beside it: they are not merged at once."""
    await running.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
    await running.propose(["large", "x" * 20_000])
    return await running.create_snapshot()


async def fill(running: RaftClient[Any], start: int, end: int) -> None:
    await running.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
    for number in range(start, end):
        await running.propose([f"k{number % 17}", None if number % 5 == 0 else number])


async def test_a_restart_takes_checkpoint_and_increments_and_only_then_the_log(tmp_path: Path) -> None:
    table = Table()
    async with client(tmp_path, table) as running:
        await begin(running)
        for start in range(0, 40, 10):
            await fill(running, start, start + 10)
            await until(lambda count=start // 10 + 1: len(stored(tmp_path, "increment")) >= count)  # type: ignore[misc]
        assert table.frozen[0] == "all"
        assert set(table.frozen[1:]) == {"changes"}
    checkpoints, increments = stored(tmp_path, "checkpoint"), stored(tmp_path, "increment")
    assert (len(checkpoints), len(increments)) == (1, 4)
    again = Table()
    async with client(tmp_path, again) as running:
        await fill(running, 40, 41)
        expected = dict(table.items)
        expected.pop("k6", None)
        assert again.items == expected
        assert min(again.applied) >= increments[-1].offset, "what the increments have was not applied again"


async def test_a_new_quorum_begins_without_the_increments_of_the_old_one(tmp_path: Path) -> None:
    """What was applied may have been flushed elsewhere only: after a power cut an increment reaches beyond the log."""
    old, live, again = Table(), Table(), Table()
    async with client(tmp_path, old) as running:
        await begin(running)
        await fill(running, 0, 10)
        await until(lambda: len(stored(tmp_path, "increment")) == 1)
    (increment,) = stored(tmp_path, "increment")
    partition = tmp_path / names.PARTITION_DIRECTORY
    log = FileReplicatedLog.open(partition)
    log.truncate(increment.offset - 5)
    log.close()
    begin_new_quorum(partition, epoch=9, timestamp_ms=0, static_voters=[1])
    async with client(tmp_path, live, snapshot_interval_records=0) as running:
        await running.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        for number in range(8):
            await running.propose([f"new {number}", number])
    async with client(tmp_path, again, snapshot_interval_records=0) as running:
        await running.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        await running.propose(["last", 1])
    assert again.items == {**live.items, "last": 1}


async def test_a_long_chain_is_merged_into_a_checkpoint_and_the_log_is_cut_on_its_word_only(tmp_path: Path) -> None:
    table = Table()
    async with client(tmp_path, table, increments_max=3) as running:
        first = await begin(running)
        for start in range(0, 60, 10):
            await fill(running, start, start + 10)
            assert running.status().log_start_offset in (0, *(one.offset for one in stored(tmp_path, "checkpoint")))
        await until(lambda: (running.latest_snapshot_id() or first) > first)
        await until(lambda: all(one > running.latest_snapshot_id() for one in stored(tmp_path, "increment")))  # type: ignore[operator]
        assert table.frozen.count("all") == 1, "the merge needs no state machine"
    again = Table()
    async with client(tmp_path, again) as running:
        await fill(running, 60, 61)
        table.apply(CommittedRecord(0, 0, 0, [f"k{60 % 17}", None]))
        assert again.items == table.items


async def test_after_a_failure_the_next_one_is_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table()
    async with client(tmp_path, table) as running:
        await begin(running)

        def fails(*_: object, **__: object) -> None:
            raise OSError("no")

        monkeypatch.setattr(IncrementFiles, "write", fails)
        await fill(running, 0, 10)
        await until(lambda: "no snapshot was taken" in caplog.text)
        await fill(running, 10, 20)
        await until(lambda: table.frozen.count("all") == 2)


async def test_no_increment_leads_on_from_a_checkpoint_that_the_application_has_written(tmp_path: Path) -> None:
    """Its values are in any order, and a chain on it could not be merged: not by the next start, nor by any other."""
    table = Table()
    async with client(tmp_path, table) as running:
        await begin(running)
        await fill(running, 0, 10)
        await until(lambda: len(stored(tmp_path, "increment")) == 1)
        with running.begin_snapshot() as snapshot:
            snapshot.append(sorted(([key, value] for key, value in table.items.items()), reverse=True))
        await fill(running, 10, 20)
        await until(lambda: table.frozen.count("all") == 2)
        await fill(running, 20, 23)
    again = Table()
    async with client(tmp_path, again) as running:
        await fill(running, 23, 24)
        table.apply(CommittedRecord(0, 0, 0, [f"k{23 % 17}", 23]))
        assert again.items == table.items


async def test_a_chain_on_a_checkpoint_in_another_order_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process ended when the application had written it, and before the increments on it were removed."""
    table = Table()
    async with client(tmp_path, table, snapshot_interval_records=0) as running:
        await fill(running, 0, 10)
        with running.begin_snapshot() as snapshot:
            snapshot.append(sorted(([key, value] for key, value in table.items.items()), reverse=True))
        await fill(running, 10, 12)
        end = OffsetAndEpoch(offset=running.status().high_watermark or 0, epoch=snapshot.snapshot_id.epoch)
    files = IncrementFiles(tmp_path / names.PARTITION_DIRECTORY)
    files.write(end, [], base=snapshot.snapshot_id, timestamp_ms=0, kraft_version=0, voters=None, step=lambda: None)
    again = Table()
    async with client(tmp_path, again) as running:
        await fill(running, 12, 13)
        table.apply(CommittedRecord(0, 0, 0, [f"k{12 % 17}", 12]))
        assert again.items == table.items
    assert "cannot be read, the log is applied instead" in caplog.text
    assert stored(tmp_path, "increment") == []


CHANGES = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 9), min_size=1, max_size=4), max_size=6
)


def test_of_a_chain_that_is_damaged_nothing_stays_open(tmp_path: Path) -> None:
    with FileTrace(tmp_path) as trace:
        log, files, table = FileReplicatedLog.open(tmp_path), IncrementFiles(tmp_path), Table()
        increments = Increments(log, files, table, JsonSerde(), chain_max=1)
        ids = [OffsetAndEpoch(offset=offset, epoch=1) for offset in (1, 2, 3)]
        plans = [SnapshotPlan(snapshot_id=one, timestamp_ms=5, kraft_version=0, voters=None) for one in ids]
        plans[0].write(log, [])
        for base, plan in pairwise(plans):
            increments.write(plan, [], base.snapshot_id)
        increments.written(ids[0], is_ordered=True)
        (tmp_path / names.increment_name(ids[2])).write_bytes(b"")

        with pytest.raises(CorruptBatchError):
            increments.merge_if_due()
        with SnapshotReader(log.open_snapshot(ids[0])) as reader:
            assert increments.loaded(ids[0], 3, reader, lambda: None) is None
        log.close()
        assert trace.open_paths == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES, st.integers(1, 4))
def test_a_merged_chain_has_the_bytes_of_a_full_snapshot(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, int | None]], chain_max: int
) -> None:
    directory = tmp_path_factory.mktemp("chain")
    log, files, table = FileReplicatedLog.open(directory), IncrementFiles(directory), Table()
    increments = Increments(log, files, table, JsonSerde(), chain_max=chain_max)

    def plan(offset: int) -> SnapshotPlan:
        return SnapshotPlan(
            snapshot_id=OffsetAndEpoch(offset=offset, epoch=1), timestamp_ms=5, kraft_version=0, voters=None
        )

    base = plan(1)
    base.write(log, increments.sorted_values(table.freeze()))
    increments.written(base.snapshot_id, is_ordered=True)
    at = base.snapshot_id
    for number, changes in enumerate(rounds, 2):
        for key, value in changes.items():
            table.apply(CommittedRecord(number, 1, 0, [key, value]))
        increments.write(plan(number), table.freeze_changes(), at)
        at = plan(number).snapshot_id
        merged = increments.merge_if_due()
        if merged is not None:
            increments.written(merged, is_ordered=True)
            full = FileReplicatedLog.open(tmp_path_factory.mktemp("full"))
            plan(number).write(full, increments.sorted_values(table.freeze()))
            ours, theirs = log.open_snapshot(merged), full.open_snapshot(merged)
            assert ours.read_at(0, 1 << 20) == theirs.read_at(0, 1 << 20)
            full.close()
        newest = log.snapshots()[-1]
        source = FileSnapshotSource(directory / names.checkpoint_name(newest))
        reader = SnapshotReader(source, epoch=1)
        loaded = increments.loaded(newest, 100, reader, lambda: None)
        again = Table()
        if loaded is not None:
            again.restore(loaded.values())
            assert loaded.snapshot_id == at
            loaded.close()
        else:
            again.restore(JsonSerde().from_bytes(value) for batch in reader.batches() for value in batch.values())
            reader.close()
        assert again.items == table.items
    log.close()


class Compared(Table):
    """A table whose states are compared. A faulty one keeps something else, and says nothing."""

    is_faulty = False

    def apply(self, record: CommittedRecord) -> Any:
        super().apply(record._replace(value=[record.value[0], "?"]) if self.is_faulty else record)

    def snapshot(self) -> Iterable[Any]:
        return [[key, self.items[key]] for key in sorted(self.items)]


async def test_the_increments_of_a_state_that_is_wrong_go(tmp_path: Path) -> None:
    """A start during the quarantine would load them, and show the wrong state until it is found once more."""
    hub, tables = MemoryHub(), {number: Compared() for number in (1, 2, 3)}
    voters = tuple(StaticVoter(number, Endpoint("replica", number)) for number in tables)
    async with AsyncExitStack() as running:
        clients = {}
        for number, table in tables.items():
            home = tmp_path / str(number)
            format_directory(home, node_id=number, cluster_id="c", static_voters=list(tables))
            config = RaftConfig(
                node_id=number, directory=home, voters=voters, snapshot_interval_records=10, digest_interval_ms=100,
                **TIMING,
            )  # fmt: skip
            transport = MemoryTransport(hub, Endpoint("replica", number))
            client_ = RaftClient(config, transport=transport, state_machine=table, serde=JsonSerde())
            clients[number] = await running.enter_async_context(client_)
        leader = clients[(await clients[1].wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))).leader_id]
        wrong = leader.node_id % 3 + 1
        await leader.propose(["large", "x" * 20_000])
        await fill(leader, 0, 12)
        await clients[wrong].create_snapshot()
        await fill(leader, 12, 24)
        await until(lambda: stored(tmp_path / str(wrong), "increment"))
        tables[wrong].is_faulty = True
        await fill(leader, 24, 26)
        await until(lambda: clients[wrong].metrics()["state-quarantines-total"])
        await until(lambda: not stored(tmp_path / str(wrong), "increment"))
