"""Committed batches decode once, readers close once, and snapshots are verified as they are read."""

from __future__ import annotations

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.records.serde import BytesSerde, TextSerde
from kraftlib.runtime.committed import BatchReader, CommittedBatch, CommittedRecord
from tests.runtime.fakes import committed, loaded, snapshot_bytes


class CountingSerde(TextSerde):
    decoded = 0

    def from_bytes(self, data: bytes) -> str:
        self.decoded += 1
        return super().from_bytes(data)


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


def test_a_bare_next_in_a_serde_drops_no_value() -> None:
    class Careless(TextSerde):
        def from_bytes(self, data: bytes) -> str:
            return next(iter(())) if data == b"b" else super().from_bytes(data)

    with pytest.raises(StopIteration):
        _ = committed(b"a", b"b", b"c", serde=Careless()).values


def test_a_snapshot_gives_its_values_decoded() -> None:
    snapshot = loaded(snapshot_bytes(b"a", b"b"))

    assert list(snapshot.values()) == ["a", "b"]
    assert [batch.values for batch in snapshot] == [["a", "b"]]
    assert snapshot.last_contained_log_timestamp_ms == 55
    assert snapshot.snapshot_id.offset == 9


def test_a_snapshot_without_its_end_is_not_taken_for_whole() -> None:
    data = snapshot_bytes(b"a", b"b")
    with pytest.raises(CorruptBatchError):
        list(loaded(data[:-10]).values())
