"""An independent opinion on batches: kafka-python reads what we write, and we read what it writes."""

from __future__ import annotations

import random
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import cramjam
import pytest

from kraftlib.records.batch import encode_batch, read_batch
from kraftlib.records.compression import Codec
from kraftlib.records.record import Header, Record


@pytest.fixture
def kafka_python(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its module of batches, with snappy from the package that python-snappy wraps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its own, at import
        import kafka.codec
        from kafka.record import default_records
    raw = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(bytes(data))),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(bytes(data))),
    )
    monkeypatch.setattr(kafka.codec, "snappy", raw)
    return default_records


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_what_we_write(codec: Codec, kafka_python: Any) -> None:
    values = [random.Random(7).randbytes(size) for size in (1, 63, 64, 70, 8_192, 40_000)] * 20
    batch = encode_batch(values, timestamp_ms=1_700_000_000_000, base_offset=500, epoch=9, codec=codec)
    theirs = kafka_python.DefaultRecordBatch(bytes(batch.data))

    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.leader_epoch, theirs.compression_type) == (500, 9, codec)
    read = [(record.offset, record.timestamp, record.key, record.value) for record in theirs]
    assert read == [(offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values, 500)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("transactional", [False, True])
def test_we_read_what_kafka_python_writes(codec: Codec, transactional: bool, kafka_python: Any) -> None:
    builder = kafka_python.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=123,
        producer_epoch=4,
        base_sequence=77,
        batch_size=1_000_000,
    )
    written = []
    for offset in range(70):
        fields = (offset, 1_000 + offset * 37, b"key" if offset % 3 else None, b"value %d" % offset * 50)
        headers = [("h", b"x")] if offset % 2 else []
        builder.append(*fields, headers=headers)
        written.append(Record(*fields, tuple(Header(*header) for header in headers)))
    batch = read_batch(bytes(builder.build()))

    assert batch.codec is codec
    assert list(batch.records()) == written
