"""Snapshots: Kafka's own read and written again, equal state to equal bytes, and every kind of damage found."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, CorruptBatchError, InvariantError, RecordTooLargeError
from kraftlib.records.batch import CONTROL, HEADER_SIZE, Batch, assemble, encode_batch, read_batches
from kraftlib.records.compression import Codec
from kraftlib.records.control import ControlRecord, decode_control_batch, encode_control_batch
from kraftlib.records.control_messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlib.records.record import Record, encode_block
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from tests.records.captured import captured, dump_of, name

TIME = 1_700_000_000_000
VOTERS = VotersRecord(voters=(VotersRecord.Voter(voter_id=1),))
VALUES = st.lists(st.binary(min_size=1, max_size=60), max_size=60)


def write(values: list[bytes], *, batch_max_bytes: int = 8 * 1024 * 1024, codec: Codec = Codec.NONE) -> bytes:
    out = io.BytesIO()
    writer = SnapshotWriter(
        out.write, epoch=7, last_contained_log_timestamp=TIME, batch_max_bytes=batch_max_bytes, codec=codec
    )
    writer.append(values)
    writer.freeze()
    assert writer.size == len(out.getvalue())
    return out.getvalue()


def reader(data: bytes, *, epoch: int | None = None) -> SnapshotReader:
    return SnapshotReader(StreamSource(io.BytesIO(data)), epoch=epoch)


def read(data: bytes) -> list[bytes]:
    return [value for batch in reader(data).batches() for value in batch.values()]


# Kafka's ------------------------------------------------------------------------------------------

CHECKPOINTS = captured("*.checkpoint")


@pytest.mark.parametrize("path", CHECKPOINTS, ids=name)
def test_a_real_checkpoint_reads_to_what_kafkas_dump_says(path: Path) -> None:
    header, *data, footer = dump_of(path)
    said = dict(record.control for record in header.records if record.control)
    with path.open("rb") as file:
        snapshot = SnapshotReader(StreamSource(file), epoch=header.epoch)

        assert snapshot.header.last_contained_log_timestamp == said["SnapshotHeader"]["lastContainedLogTimestamp"]
        assert snapshot.kraft_version == said.get("KRaftVersion", {}).get("kRaftVersion", 0)
        ids = [voter.voter_id for voter in snapshot.voters.voters] if snapshot.voters else None
        assert ids == ([voter["voterId"] for voter in said["KRaftVoters"]["voters"]] if "KRaftVoters" in said else None)
        found = [(batch.base_offset, batch.last_offset, batch.size, batch.crc) for batch in snapshot.batches()]
        assert found == [(batch.base_offset, batch.last_offset, batch.size, batch.crc) for batch in data]
        assert snapshot.verify() == sum(batch.count for batch in data)
        assert snapshot.size == footer.position + footer.size


@pytest.mark.parametrize("path", CHECKPOINTS, ids=name)
def test_a_real_checkpoint_is_written_again_with_the_same_bytes(path: Path) -> None:
    """Kafka stamps each batch with the time of writing: that is set, and all else follows."""
    whole = path.read_bytes()
    header, *data, footer = read_batches(whole)
    snapshot = reader(whole)
    out = io.BytesIO()
    writer = SnapshotWriter(
        out.write,
        epoch=snapshot.epoch,
        last_contained_log_timestamp=snapshot.header.last_contained_log_timestamp,
        kraft_version=snapshot.kraft_version,
        voters=snapshot.voters,
        timestamp_ms=header.max_timestamp,
    )
    for batch in data:
        writer.timestamp_ms = batch.max_timestamp
        writer.append(batch.values())
    writer.timestamp_ms = footer.max_timestamp
    writer.freeze()

    assert out.getvalue() == whole


# Ours ---------------------------------------------------------------------------------------------


@given(VALUES, st.integers(HEADER_SIZE + 14 + 60, 1_000), st.sampled_from([Codec.NONE, Codec.ZSTD]))
def test_what_was_written_is_read_in_batches_within_the_limit(values: list[bytes], limit: int, codec: Codec) -> None:
    data = write(values, batch_max_bytes=limit, codec=codec)

    assert read(data) == values
    assert reader(data).verify() == len(values)
    if codec is Codec.NONE:
        assert all(batch.size <= limit for batch in reader(data).batches())


@given(VALUES, st.lists(st.integers(0, 60), max_size=10))
def test_equal_state_is_equal_bytes_however_it_is_appended(values: list[bytes], cuts: list[int]) -> None:
    out = io.BytesIO()
    writer = SnapshotWriter(out.write, epoch=7, last_contained_log_timestamp=TIME, batch_max_bytes=300)
    for start, end in pairwise([0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]):
        writer.append(values[start:end])
    writer.freeze()

    assert out.getvalue() == write(values, batch_max_bytes=300)


def test_the_parts_are_header_data_footer_of_one_epoch_and_time() -> None:
    out = io.BytesIO()
    writer = SnapshotWriter(
        out.write, epoch=7, last_contained_log_timestamp=TIME, kraft_version=1, voters=VOTERS, batch_max_bytes=100
    )
    writer.append([b"a" * 20, b"b" * 20])
    writer.freeze()
    header, first, second, footer = read_batches(out.getvalue())

    assert [record for _, record in decode_control_batch(header)] == [
        SnapshotHeaderRecord(last_contained_log_timestamp=TIME),
        KRaftVersionRecord(kraft_version=1),
        VOTERS,
    ]
    assert list(decode_control_batch(footer)) == [(5, SnapshotFooterRecord())]
    assert (first.base_offset, first.values(), second.values()) == (3, [b"a" * 20], [b"b" * 20])
    assert {(b.epoch, b.max_timestamp) for b in (header, first, second, footer)} == {(7, TIME)}
    assert writer.next_offset == 6


def test_voters_stand_there_from_kraft_version_1_on_and_need_not_be_read() -> None:
    """With version 0 there are none, whatever is handed over; Kafka may write version 1 without them."""
    for version, found in ((0, None), (1, VOTERS)):
        out = io.BytesIO()
        writer = SnapshotWriter(
            out.write, epoch=7, last_contained_log_timestamp=TIME, kraft_version=version, voters=VOTERS
        )
        writer.freeze()
        opened = reader(out.getvalue())
        opened.verify()
        assert (opened.kraft_version, opened.voters) == (version, found)
    header = [SnapshotHeaderRecord(last_contained_log_timestamp=TIME), KRaftVersionRecord(kraft_version=1)]
    batches = [control(*header, base_offset=0), FOOTER_AT_2]
    bare = reader(b"".join(bytes(batch.data) for batch in batches))
    bare.verify()

    assert (bare.kraft_version, bare.voters) == (1, None)


def test_an_empty_state_is_header_and_footer() -> None:
    data = write([])

    assert [batch.is_control for batch in read_batches(data)] == [True, True]
    assert (len(data), read(data), reader(data).verify()) == (83 + 75, [], 0)


def test_a_writer_refuses_what_no_reader_would_take() -> None:
    writer = SnapshotWriter(lambda _: None, epoch=1, last_contained_log_timestamp=0, batch_max_bytes=100)
    with pytest.raises(RecordTooLargeError, match="a value of 50 bytes makes a batch of 118, the limit is 100"):
        writer.append([b"x" * 50])
    with pytest.raises(ConfigError, match="must not be empty"):
        writer.append([b""])
    with pytest.raises(ConfigError, match=r"kraft\.version 1 names its voters"):
        SnapshotWriter(lambda _: None, epoch=1, last_contained_log_timestamp=0, kraft_version=1)


def test_a_value_that_just_fits_has_a_batch_of_its_own() -> None:
    values = [b"x" * 30, b"y", b"z" * 30]

    assert read(write(values, batch_max_bytes=HEADER_SIZE + 30 + 7)) == values
    with pytest.raises(RecordTooLargeError):
        write(values, batch_max_bytes=HEADER_SIZE + 30 + 6)


def test_a_frozen_snapshot_takes_nothing_more() -> None:
    writer = SnapshotWriter(lambda _: None, epoch=1, last_contained_log_timestamp=0)
    writer.freeze()

    assert writer.frozen
    with pytest.raises(InvariantError):
        writer.append([b"x"])
    with pytest.raises(InvariantError):
        writer.freeze()


def test_a_reader_asks_for_a_megabyte_at_a_time() -> None:
    """Memory is that of a batch or a window, whatever the size of the snapshot."""
    data = write([bytes([index % 256]) * 1_000 for index in range(5_000)], batch_max_bytes=10_000)
    asked: list[tuple[int, int]] = []

    class Source(StreamSource):
        def read_at(self, position: int, size: int) -> bytes:
            asked.append((position, size))
            return super().read_at(position, size)

    assert SnapshotReader(Source(io.BytesIO(data))).verify() == 5_000
    assert {size for _, size in asked} == {1024 * 1024}
    assert len(asked) == 5


def test_the_batches_can_be_read_twice_and_the_source_closed() -> None:
    stream = io.BytesIO(write([b"a"]))
    with SnapshotReader(StreamSource(stream)) as snapshot:
        assert [[batch.values() for batch in snapshot.batches()] for _ in range(2)] == [[[b"a"]], [[b"a"]]]
    assert stream.closed


def test_the_source_is_closed_where_there_is_nothing_to_read() -> None:
    for data in (b"", write([b"a"])[:50]):
        stream = io.BytesIO(data)
        with pytest.raises(CorruptBatchError):
            SnapshotReader(StreamSource(stream))
        assert stream.closed


# Damage -------------------------------------------------------------------------------------------


def control(*records: ControlRecord, base_offset: int, epoch: int = 7) -> Batch:
    return encode_control_batch(records, timestamp_ms=TIME, base_offset=base_offset, epoch=epoch)


def values_batch(base_offset: int, *, epoch: int = 7) -> Batch:
    return encode_batch([b"value"], timestamp_ms=TIME, base_offset=base_offset, epoch=epoch)


HEADER = control(SnapshotHeaderRecord(last_contained_log_timestamp=TIME), base_offset=0)
FOOTER_AT_1 = control(SnapshotFooterRecord(), base_offset=1)
FOOTER_AT_2 = control(SnapshotFooterRecord(), base_offset=2)


@pytest.mark.parametrize(
    ("batches", "position", "reason"),
    [
        ([], 0, "the snapshot ends at 0, within the batch at 0"),
        ([values_batch(0), FOOTER_AT_1], 0, "begins with its header, this one with data"),
        ([control(SnapshotFooterRecord(), base_offset=0)], 0, "begins with its header, this one with SnapshotFooter"),
        ([HEADER], 83, "the snapshot ends at 83 without its footer"),
        ([HEADER, values_batch(1)], 156, "the snapshot ends at 156 without its footer"),
        ([HEADER, FOOTER_AT_1, values_batch(2)], 158, "73 bytes follow the footer"),
        ([HEADER, FOOTER_AT_1, FOOTER_AT_2], 158, "75 bytes follow the footer"),
        ([HEADER, values_batch(2), FOOTER_AT_2], 83, "base offset 2 and epoch 7, expected are 1 and 7"),
        ([HEADER, values_batch(0), FOOTER_AT_1], 83, "base offset 0 and epoch 7, expected are 1 and 7"),
        ([HEADER, values_batch(1, epoch=8), FOOTER_AT_2], 83, "base offset 1 and epoch 8, expected are 1 and 7"),
        ([HEADER, values_batch(1), values_batch(2)], 229, "the snapshot ends at 229 without its footer"),
        ([HEADER, values_batch(1), FOOTER_AT_1], 156, "base offset 1 and epoch 7, expected are 2 and 7"),
        ([HEADER, control(KRaftVersionRecord(), base_offset=1), FOOTER_AT_2], 83, "are not its footer"),
        ([HEADER, control(SnapshotFooterRecord(), SnapshotFooterRecord(), base_offset=1)], 83, "are not its footer"),
        (
            [control(SnapshotHeaderRecord(), LeaderChangeMessage(), base_offset=0), FOOTER_AT_2],
            0,
            "the header of the snapshot holds LeaderChange",
        ),
        ([values_batch(0, epoch=3)], 0, "this one with data"),
    ],
)
def test_a_snapshot_that_is_not_one_says_why_and_where(batches: list[Batch], position: int, reason: str) -> None:
    with pytest.raises(CorruptBatchError, match=reason) as caught:
        read(b"".join(batch.data for batch in batches))
    assert caught.value.position == position


def test_the_epoch_of_the_name_is_that_of_every_batch() -> None:
    with pytest.raises(CorruptBatchError, match="epoch 7, expected are 0 and 8"):
        reader(write([b"a"]), epoch=8)


def test_every_snapshot_cut_short_is_refused() -> None:
    data = write([b"a" * 30, b"b" * 30], batch_max_bytes=120)
    for size in range(len(data)):
        with pytest.raises(CorruptBatchError):
            read(data[:size])


def test_every_flipped_byte_is_found() -> None:
    """Also in base offsets and epochs, which no CRC covers: those follow from the place and from the name."""
    data = write([b"a" * 30, b"b" * 30], batch_max_bytes=120)
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 0x11
        with pytest.raises(CorruptBatchError) as caught:
            reader(bytes(damaged), epoch=7).verify()
        assert 0 <= (caught.value.position or 0) <= index


def test_a_batch_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    data = bytearray(write([b"a"]))
    data[8:12] = (2**31 - 1).to_bytes(4, "big")

    with pytest.raises(CorruptBatchError, match="claims 2147483659 bytes, possible are 61 to 67108864"):
        reader(bytes(data))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("00000007", "000000", "of unknown type 7"),
        ("00000003", "000000", "needs 8 bytes"),
        ("00000003", "0001", "has no version 1"),
    ],
)
def test_a_control_record_that_nobody_can_read_is_refused_with_its_position(key: str, value: str, reason: str) -> None:
    block = encode_block([Record(0, 0, bytes.fromhex(key), bytes.fromhex(value))], base_offset=0, base_timestamp=0)
    data = bytes(assemble((block,), 1, CONTROL, TIME, TIME, 0, 7).data)

    with pytest.raises(CorruptBatchError, match=f"the control batch at 0: .*{reason}") as caught:
        reader(data)
    assert caught.value.position == 0
