"""The walk from batch to batch, over anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.cli import dump_batches
from kraftlib.cli.dump_batches import FoundBatch, InvalidTail, walk
from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import encode_batch
from kraftlib.records.compression import Codec


def test_what_was_encoded_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log"
    batches = [
        encode_batch([b"a", b"bc"], timestamp_ms=7, base_offset=3, epoch=2),
        encode_batch([b"d" * 500], timestamp_ms=8, base_offset=5, epoch=4, codec=Codec.LZ4),
    ]
    path.write_bytes(b"".join(bytes(batch.data) for batch in batches))

    first, second = walk(path)

    assert isinstance(first, FoundBatch)
    assert isinstance(second, FoundBatch)
    assert (first.position, first.base_offset, first.last_offset, first.epoch, first.count) == (0, 3, 4, 2, 2)
    assert (first.max_timestamp, first.timestamp_type, first.codec_name) == (7, "CreateTime", "none")
    assert (first.producer_id, first.base_sequence, first.delete_horizon_ms) == (-1, -1, None)
    assert [record.value for record in first.records()] == [b"a", b"bc"]
    assert (second.position, second.codec_name, second.is_valid) == (first.size, "lz4", True)
    assert [record.value for record in second.records()] == [b"d" * 500]


@given(data=st.binary(max_size=400))
def test_no_bytes_break_the_walk(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every byte belongs to a batch or to the invalid tail, which comes last."""
    path = tmp_path_factory.mktemp("walk") / "log"
    path.write_bytes(data)
    end = 0
    for found in walk(path):
        assert found.position == end
        end += found.size
        if isinstance(found, FoundBatch):
            assert len(found.data) == found.size
    assert end == len(data)


@given(at=st.integers(0, 200), value=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_stands_outside_the_checksum(
    at: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(encode_batch([b"value"] * 20, timestamp_ms=7).data)
    before, data[at] = data[at], value
    path = tmp_path_factory.mktemp("walk") / "log"
    path.write_bytes(data)
    (*_, found) = walk(path)

    outside = at < 8 or 12 <= at < 17
    assert isinstance(found, InvalidTail) or found.is_valid == (outside or before == value)


def test_a_batch_too_large_to_be_decoded_is_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_batches, "DECODED_MAX_BYTES", 1_000)
    monkeypatch.setattr(dump_batches, "READ_SIZE", 300)
    path = tmp_path / "log"
    data = bytearray(encode_batch([bytes(2_000)], timestamp_ms=7).data)

    path.write_bytes(data * 2)
    assert [(found.is_valid, found.size) for found in walk(path) if isinstance(found, FoundBatch)] == [
        (True, len(data)),
        (True, len(data)),
    ]
    (first, _) = walk(path)
    assert isinstance(first, FoundBatch)
    with pytest.raises(CorruptBatchError, match="too large"):
        list(first.records())

    data[-5] ^= 1
    path.write_bytes(data)
    assert [found.is_valid for found in walk(path) if isinstance(found, FoundBatch)] == [False]


def test_sequence_numbers_wrap_as_kafka_lets_them() -> None:
    import attrs

    with_producer = attrs.evolve(_any_batch(), base_sequence=2**31 - 1)

    assert [with_producer.sequence(delta) for delta in range(3)] == [2**31 - 1, 0, 1]
    assert _any_batch().sequence(5) == -1


def _any_batch() -> FoundBatch:
    return FoundBatch(
        position=0, size=61, base_offset=0, last_offset=0, count=1, epoch=0, magic=2, crc=0, attributes=0,
        base_timestamp=0, max_timestamp=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, is_valid=True, data=b"",
    )  # fmt: skip


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StorageError, match="fifo is a FIFO, and a regular file is expected"):
        list(walk(tmp_path / "fifo"))
    with pytest.raises(StorageError, match="is a directory, and a regular file is expected"):
        list(walk(tmp_path))
