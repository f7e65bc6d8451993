"""Batches: golden bytes, real logs, round trips, damage. Another implementation speaks in `test_kafka_python.py`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.batch import (
    APPEND_TIME,
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    Batch,
    assemble,
    batch_size,
    check_kraft,
    check_kraft_header,
    encode_batch,
    is_incomplete,
    parse_header,
    read_batch,
    read_batches,
)
from kraftlib.records.checksum import crc32c
from kraftlib.records.compression import Codec, compress
from kraftlib.records.record import Header, Record, encode_block
from tests.records.captured import captured, dump_of, name, sizes

NO_OP = bytes.fromhex("01140000")
GOLDEN = bytes.fromhex(
    "0000000000000001 0000003c 00000001 02 b03bfe3d 0000 00000000 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000001"
    "14 00 00 00 01 08 01140000 00"
)
LOGS = [*captured("*.log"), *captured("*.checkpoint")]
VALUES = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=80)


def small_batch(count: int = 3, *, base_offset: int = 10, epoch: int = 4) -> Batch:
    values = [b"value %d" % index for index in range(count)]
    return encode_batch(values, timestamp_ms=1_700_000_000_000, base_offset=base_offset, epoch=epoch)


def foreign_batch(records: list[Record], *, attributes: int = 0, last_offset: int | None = None) -> Batch:
    """Write what a producer that is not KRaft may write; offsets begin at 100, timestamps at 1,000."""
    block = encode_block(records, base_offset=100, base_timestamp=1_000)
    if attributes & 7:
        block = compress(Codec(attributes & 7), block)
    batch = assemble((block,), len(records), attributes, 1_000, 5_000, 100, 3)
    data = bytearray(batch.data)
    struct.pack_into(">i", data, 23, (records[-1].offset if last_offset is None else last_offset) - 100)
    return read_batch(with_crc(data))


def with_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


# Bytes --------------------------------------------------------------------------------------------


def test_a_data_batch_has_the_golden_bytes() -> None:
    batch = encode_batch([NO_OP], timestamp_ms=1_700_000_000_000, base_offset=1, epoch=1)

    assert batch.data == GOLDEN
    assert read_batch(GOLDEN) == batch


@pytest.mark.parametrize("path", LOGS, ids=name)
def test_a_real_file_reads_to_what_kafkas_dump_says(path: Path) -> None:
    data, position = path.read_bytes(), 0
    batches, dumped = read_batches(data), dump_of(path)

    assert len(batches) == len(dumped) > 1
    for batch, expected in zip(batches, dumped, strict=True):
        found = (batch.base_offset, batch.last_offset, batch.record_count, batch.epoch, batch.is_control, position)
        assert found == (
            expected.base_offset,
            expected.last_offset,
            expected.count,
            expected.epoch,
            expected.is_control,
            expected.position,
        )
        assert (batch.base_timestamp, batch.max_timestamp) == (expected.timestamp, expected.timestamp)
        assert (batch.size, batch.crc, batch.codec) == (expected.size, expected.crc, Codec.NONE)
        records = [
            (r.offset, r.timestamp, -1 if r.key is None else len(r.key), len(r.value or b"")) for r in batch.records()
        ]
        assert records == list(sizes(expected))
        check_kraft(batch)
        position += batch.size
    assert position == len(data)


@pytest.mark.parametrize("path", LOGS, ids=name)
def test_a_real_data_batch_encodes_again_to_the_same_bytes(path: Path) -> None:
    for batch in read_batches(path.read_bytes()):
        if not batch.is_control:
            again = encode_batch(
                batch.values(), timestamp_ms=batch.max_timestamp, base_offset=batch.base_offset, epoch=batch.epoch
            )
            assert again == batch
            assert batch.values() == [record.value for record in batch.records()]


@given(VALUES, st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**45))
def test_what_was_encoded_is_read(values: list[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> None:
    data = encode_batch(values, timestamp_ms=timestamp_ms, base_offset=base_offset, epoch=epoch).data
    batch = read_batch(data)

    assert batch.data is data
    assert (batch.base_offset, batch.end_offset, batch.epoch) == (base_offset, base_offset + len(values), epoch)
    assert (batch.last_offset, batch.record_count, batch.size) == (batch.end_offset - 1, len(values), len(data))
    assert (batch.is_control, batch.max_timestamp, batch.base_timestamp) == (False, timestamp_ms, timestamp_ms)
    assert batch.values() == values
    assert list(batch.records()) == [
        Record(offset, timestamp_ms, None, value) for offset, value in enumerate(values, base_offset)
    ]


@given(VALUES, st.sampled_from(Codec))
def test_a_compressed_batch_reads_to_the_same_values(values: list[bytes], codec: Codec) -> None:
    batch = read_batch(encode_batch(values, timestamp_ms=1, base_offset=7, codec=codec).data)

    assert batch.codec is codec
    assert batch.values() == values
    assert [record.value for record in batch.records()] == values
    check_kraft_header(batch)


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one record"):
        encode_batch([], timestamp_ms=1)


@given(VALUES, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_stamping_is_as_good_as_encoding_with_the_stamp(values: list[bytes], base_offset: int, epoch: int) -> None:
    expected = encode_batch(values, timestamp_ms=5, base_offset=base_offset, epoch=epoch)
    stamped = encode_batch(values, timestamp_ms=5).stamp(base_offset=base_offset, epoch=epoch)

    assert stamped == expected == read_batch(stamped.data)
    assert (stamped.base_offset, stamped.last_offset, stamped.epoch) == (base_offset, expected.last_offset, epoch)
    assert stamped.stamp(base_offset=base_offset, epoch=epoch) is stamped


def test_batches_share_the_bytes_that_they_were_read_from() -> None:
    data = b"".join([small_batch(base_offset=0).data, small_batch(base_offset=3).data])

    for batch in read_batches(data):
        assert isinstance(batch.data, memoryview)
        assert batch.data.obj is data


def test_equal_bytes_are_equal_batches() -> None:
    batch = small_batch()
    other = read_batch(memoryview(bytes(batch.data)))

    assert batch == other
    assert hash(batch) == hash(other)
    assert batch != small_batch(epoch=5)
    assert batch != "batch"
    assert repr(batch) == "<Batch [10, 13) epoch 4 data 103 bytes>"


def test_a_header_can_be_read_before_the_rest_is_there() -> None:
    batch = small_batch()
    header = parse_header(memoryview(batch.data)[:HEADER_SIZE])

    assert (header.base_offset, header.last_offset, header.epoch, header.size) == (10, 12, 4, batch.size)
    assert (header.record_count, header.crc, header.max_timestamp) == (3, batch.crc, batch.max_timestamp)
    assert not header.is_control
    assert header.attributes == batch.attributes == 0
    assert batch_size(batch.data) == batch.size


# Damage -------------------------------------------------------------------------------------------


def test_each_flipped_bit_that_matters_is_detected() -> None:
    """All but base offset and epoch: those stand outside the CRC, and are the log's and the epoch file's to check."""
    whole = bytearray(small_batch().data)
    undetected = set()
    for index in range(len(whole)):
        for bit in range(8):
            whole[index] ^= 1 << bit
            try:
                read_batch(bytes(whole))
                undetected.add(index)
            except CorruptBatchError as error:
                assert error.position == 0  # noqa: PT017 - one of very many
            whole[index] ^= 1 << bit

    assert undetected <= {*range(8), *range(12, 16)}


def test_a_batch_cut_anywhere_is_refused() -> None:
    data = bytes(small_batch().data)
    for size in range(len(data)):
        with pytest.raises(CorruptBatchError, match=r"at byte 0 (has|claims)"):
            read_batch(data[:size])


def test_an_incomplete_batch_at_the_end_is_dropped_or_reported() -> None:
    first, second = small_batch(base_offset=0), small_batch(base_offset=3)
    data = bytes(first.data) + bytes(second.data)
    for size in range(first.size + 1, len(data)):
        assert read_batches(data[:size], drop_incomplete=True) == (first,)
        with pytest.raises(CorruptBatchError, match=rf"at byte {first.size} "):
            read_batches(data[:size])
    assert read_batches(data, drop_incomplete=True) == (first, second)


def test_what_is_damaged_is_never_taken_for_incomplete() -> None:
    zeros = bytes(small_batch().data) + bytes(100)

    with pytest.raises(CorruptBatchError, match="at byte 103 has magic 0"):
        read_batches(zeros, drop_incomplete=True)
    assert not is_incomplete(bytes(12))


def test_positions_in_errors_count_from_the_origin() -> None:
    data = bytearray(small_batch().data)
    data[-1] ^= 1

    for read in (read_batch, read_batches):
        with pytest.raises(CorruptBatchError, match="the batch at byte 4096 has CRC") as caught:
            read(bytes(data), origin=4_096)
        assert caught.value.position == 4_096


def test_base_offsets_that_do_not_ascend_are_refused() -> None:
    data = bytes(small_batch(base_offset=0).data) + bytes(small_batch(base_offset=2).data)

    with pytest.raises(CorruptBatchError, match="base offset 2, below 3"):
        read_batches(data)


@pytest.mark.parametrize(
    ("at", "form", "value", "reason"),
    [
        (8, ">i", 48, "claims a length of 48, below 49"),
        (8, ">i", -1, "claims a length of -1, below 49"),
        (8, ">i", 2**31 - 1, "claims 2147483659 bytes, 103 are there"),
        (16, ">b", 1, "has magic 1, only 2 is supported"),
        (0, ">q", -1, "base offset -1"),
        (0, ">q", 2**63 - 2, "do not fit"),
        (23, ">i", -1, "last offset delta -1"),
        (23, ">i", 1, "record count 3, which do not fit"),
        (57, ">i", -1, "record count -1"),
        (57, ">i", 4, "record count 4, which do not fit"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_even_with_a_good_crc(
    at: int, form: str, value: int, reason: str
) -> None:
    data = bytearray(small_batch().data)
    struct.pack_into(form, data, at, value)
    corrupt = with_crc(data)

    with pytest.raises(CorruptBatchError, match=reason):
        read_batch(corrupt)
    if at != 8 or value < 49:
        with pytest.raises(CorruptBatchError, match=reason):
            parse_header(corrupt)


def test_a_record_count_that_lies_is_found_when_decoding() -> None:
    data = bytearray(small_batch().data)
    struct.pack_into(">i", data, 57, 2)
    batch = read_batch(with_crc(data))

    with pytest.raises(CorruptBatchError, match="left over after the last of 2 records"):
        list(batch.records())
    with pytest.raises(CorruptBatchError, match="left over"):
        batch.values()


def test_a_batch_of_two_billion_records_that_are_not_there_costs_nothing() -> None:
    data = bytearray(small_batch().data)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    batch = read_batch(with_crc(data))

    with pytest.raises(CorruptBatchError, match=r"record \d of 2147483647"):
        batch.values()


def test_a_codec_that_does_not_exist_is_refused() -> None:
    batch = assemble((b"",), 1, 5, 0, 0, 0, 0)

    for use in (lambda: batch.codec, batch.values, lambda: check_kraft_header(batch)):
        with pytest.raises(CorruptBatchError, match="codec 5 does not exist"):
            use()


def test_a_compressed_batch_grows_only_to_the_limit() -> None:
    batch = encode_batch([bytes(100_000)], timestamp_ms=1, codec=Codec.ZSTD)

    assert len(batch.values(max_bytes=101_000)[0]) == 100_000
    for read in (lambda: batch.values(max_bytes=100_000), lambda: list(batch.records(max_bytes=100_000))):
        with pytest.raises(CorruptBatchError, match="beyond the limit of 100000 bytes"):
            read()


# What others write, and what KRaft refuses --------------------------------------------------------

FOREIGN = [
    Record(100, 1_000, b"key", b"value", (Header("name", b"x"), Header("none", None))),
    Record(103, 900, None, None),
    Record(104, 5_000, b"", b""),
]


@pytest.mark.parametrize("attributes", [*Codec, TRANSACTIONAL, TRANSACTIONAL | Codec.LZ4])
def test_records_of_any_producer_are_read(attributes: int) -> None:
    batch = foreign_batch(FOREIGN, attributes=attributes)

    assert list(batch.records()) == FOREIGN
    assert (batch.last_offset, batch.record_count, batch.max_timestamp) == (104, 3, 5_000)


def test_append_time_overrides_the_timestamps_of_records() -> None:
    batch = foreign_batch(FOREIGN, attributes=APPEND_TIME)

    assert [record.timestamp for record in batch.records()] == [5_000, 5_000, 5_000]


@pytest.mark.parametrize(
    ("record", "attributes", "reason"),
    [
        (Record(100, 1_000, b"key", b"value"), 0, "has a key"),
        (Record(100, 1_000, None, None), 0, "has no value"),
        (Record(100, 1_000, None, b""), 0, "has no value"),
        (Record(100, 1_001, None, b"value"), 0, "has timestamp delta 1"),
        (Record(100, 1_000, None, b"value", (Header("name", None),)), 0, "has headers"),
        (Record(100, 1_000, None, b"value"), CONTROL, "has no control key"),
        (Record(100, 1_000, b"123", b"value"), CONTROL, "has no control key"),
        (Record(100, 1_000, b"1234", b""), CONTROL, "has no value"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_record_that_kraft_does_not_write_is_refused(
    record: Record, attributes: int, reason: str, codec: Codec
) -> None:
    batch = foreign_batch([record], attributes=attributes | (0 if attributes else codec))

    with pytest.raises(CorruptBatchError, match=f"record 100 of .* {reason}"):
        check_kraft(batch)
    if attributes:
        assert batch.values() == []
    else:
        with pytest.raises(CorruptBatchError, match=reason):
            batch.values()


def test_a_gap_between_offsets_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="claims 2 records for 3 offsets"):
        check_kraft_header(foreign_batch([Record(100, 1_000, None, b"a"), Record(102, 1_000, None, b"b")]))


def test_offsets_that_leave_their_batch_are_refused() -> None:
    batch = foreign_batch([Record(100, 1_000, None, b"a"), Record(105, 1_000, None, b"b")], last_offset=101)

    check_kraft_header(batch)
    for use in (batch.values, lambda: check_kraft(batch), lambda: list(batch.records())):
        with pytest.raises(CorruptBatchError, match=r"offset 105 is not within \[101, 101\]"):
            use()


@pytest.mark.parametrize("bit", [TRANSACTIONAL, APPEND_TIME, 0x40, 0x80, 0x4000])
def test_attributes_that_kraft_never_sets_are_refused(bit: int) -> None:
    with pytest.raises(CorruptBatchError, match="are not those of a KRaft batch"):
        check_kraft_header(foreign_batch([Record(100, 1_000, None, b"a")], attributes=bit))


def test_a_compressed_control_batch_is_refused() -> None:
    with pytest.raises(CorruptBatchError, match="is a control batch, and compressed"):
        check_kraft_header(foreign_batch([Record(100, 1_000, b"1234", b"a")], attributes=CONTROL | Codec.ZSTD))
