"""What listeners are handed: batches that decode once, readers that close, snapshots that are verified."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.records.serde import BytesSerde, TextSerde
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.runtime.listener import (
    BatchReader,
    CommittedBatch,
    CommittedRecord,
    Listener,
    LoadedSnapshot,
    StateMachine,
    StateMachineListener,
)
from kraftlib.types import LeaderAndEpoch, OffsetAndEpoch


class CountingSerde(TextSerde):
    decoded = 0

    def from_bytes(self, data: bytes) -> str:
        self.decoded += 1
        return super().from_bytes(data)


def committed(*values: bytes, base_offset: int = 5, serde: Any = None) -> CommittedBatch:
    batch = encode_batch(values, timestamp_ms=77, base_offset=base_offset, epoch=3)
    return CommittedBatch(batch, serde or TextSerde())


def test_a_batch_says_where_it_stands_and_what_it_holds() -> None:
    batch = committed(b"a", b"b")

    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.append_timestamp_ms) == (5, 6, 3, 77)
    assert batch.values == ["a", "b"]
    assert list(batch.records) == [CommittedRecord(5, 3, 77, "a"), CommittedRecord(6, 3, 77, "b")]
    assert (batch.is_control, batch.control_records) == (False, ())
    assert batch.size > 61
    assert "[5, 7) epoch 3 data" in repr(batch)


def test_a_batch_is_decoded_when_first_asked_for_and_once() -> None:
    serde = CountingSerde()
    batch = committed(b"a", b"b", serde=serde)
    assert serde.decoded == 0
    assert batch.values is batch.values
    list(batch.records)

    assert serde.decoded == 2


def test_a_control_batch_has_control_records_and_no_values() -> None:
    leader_change = LeaderChangeMessage(leader_id=4)
    batch = CommittedBatch(encode_control_batch([leader_change], timestamp_ms=1, base_offset=0, epoch=1), BytesSerde())

    assert (list(batch.values), list(batch.records)) == ([], [])
    (record,) = batch.control_records
    assert isinstance(record, LeaderChangeMessage)
    assert record.leader_id == 4


def test_a_reader_is_read_once_and_tells_once_that_it_is_closed() -> None:
    told: list[None] = []
    batches = [committed(b"a"), committed(b"b", b"c", base_offset=6)]
    reader = BatchReader(batches, on_close=lambda: told.append(None))

    assert (reader.base_offset, reader.last_offset) == (5, 7)
    with reader:
        assert list(reader) == batches
        assert list(reader) == []
    reader.close()
    assert len(told) == 1


class Machine(StateMachine):
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.leaders: list[LeaderAndEpoch] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.values.append(record.value)
        return len(self.values)

    def restore(self, values: Iterable[Any]) -> None:
        self.values = list(values)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


@pytest.mark.parametrize("wanted", [True, False])
def test_results_are_delivered_per_batch_and_only_when_somebody_wants_them(wanted: bool) -> None:
    machine, delivered = Machine(), []
    listener = StateMachineListener(
        machine,
        deliver=lambda end, base, results: delivered.append((end, base, list(results))),
        wants_results=lambda: wanted,
    )
    control = encode_control_batch([LeaderChangeMessage(leader_id=4)], timestamp_ms=1, base_offset=7, epoch=3)
    batches = [committed(b"a", b"b"), CommittedBatch(control, TextSerde()), committed(b"c", base_offset=8)]
    listener.handle_commit(BatchReader(batches, on_close=lambda: None))
    listener.handle_leader_change(LeaderAndEpoch(1, 3))

    assert machine.values == ["a", "b", "c"]
    assert delivered == ([(7, 5, [1, 2]), (9, 8, [3])] if wanted else [])
    assert machine.leaders == [LeaderAndEpoch(1, 3)]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_bare_next_in_apply_is_an_error_and_skips_no_record(wanted: bool) -> None:
    class Careless(Machine):
        def apply(self, record: CommittedRecord) -> Any:
            return next(iter(())) if record.value == "b" else super().apply(record)

    machine, delivered = Careless(), []
    listener = StateMachineListener(
        machine, deliver=lambda *results: delivered.append(results), wants_results=lambda: wanted
    )
    with pytest.raises(StopIteration):
        listener.handle_commit(BatchReader([committed(b"a", b"b", b"c")], on_close=lambda: None))

    assert (machine.values, delivered) == (["a"], [])


def test_a_bare_next_in_a_serde_drops_no_value() -> None:
    class Careless(TextSerde):
        def from_bytes(self, data: bytes) -> str:
            return next(iter(())) if data == b"b" else super().from_bytes(data)

    with pytest.raises(StopIteration):
        _ = committed(b"a", b"b", b"c", serde=Careless()).values


def snapshot_bytes(*values: bytes) -> bytes:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=2, last_contained_log_timestamp=55)
    writer.append(values)
    writer.freeze()
    return bytes(out)


def loaded(data: bytes) -> LoadedSnapshot:
    reader = SnapshotReader(StreamSource(io.BytesIO(data)), epoch=2)
    return LoadedSnapshot(OffsetAndEpoch(epoch=2, offset=9), reader, TextSerde())


def test_a_snapshot_gives_its_values_decoded() -> None:
    snapshot = loaded(snapshot_bytes(b"a", b"b"))

    assert list(snapshot.values()) == ["a", "b"]
    assert [batch.values for batch in snapshot] == [["a", "b"]]
    assert snapshot.last_contained_log_timestamp_ms == 55
    assert snapshot.snapshot_id.offset == 9


def test_a_state_machine_is_restored_from_a_snapshot() -> None:
    machine = Machine()
    machine.values = ["old"]
    listener = StateMachineListener(machine, deliver=lambda *_: None, wants_results=lambda: False)
    listener.handle_load_snapshot(loaded(snapshot_bytes(b"a", b"b")))

    assert machine.values == ["a", "b"]


def test_a_snapshot_without_its_end_is_not_taken_for_whole() -> None:
    data = snapshot_bytes(b"a", b"b")
    with pytest.raises(CorruptBatchError):
        list(loaded(data[:-10]).values())


def test_a_bare_listener_may_be_told_everything() -> None:
    listener = Listener()
    listener.handle_commit(BatchReader([committed(b"a")], on_close=lambda: None))
    listener.handle_load_snapshot(loaded(snapshot_bytes(b"a")))
    listener.handle_load_bootstrap(loaded(snapshot_bytes()))
    listener.handle_leader_change(LeaderAndEpoch(1, 1))
    listener.begin_shutdown()
