"""An increment is what changed, key by key: a chain of them is the checkpoint of its end, to the byte."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.declared import write
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ConfigError, CorruptBatchError, RecordTooLargeError
from kraftlib.records.batch import assemble, read_batches
from kraftlib.records.increment import (
    VERSION,
    Change,
    IncrementManifest,
    IncrementReader,
    IncrementWriter,
    check_chain,
    keyed,
    merge,
    merge_changes,
)
from kraftlib.records.record import Record, encode_block
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey

BASE = OffsetAndEpoch(offset=100, epoch=2)
CHANGES: list[Change] = [(b"a", b"1"), (b"b", None), (b"c" * 300, b"x" * 500)]
STATES = st.dictionaries(st.binary(max_size=4), st.binary(min_size=1, max_size=4), max_size=12)
DELTAS = st.dictionaries(st.binary(max_size=4), st.none() | st.binary(min_size=1, max_size=4), max_size=8)


def increment(changes: list[Change], *, batch_bytes: int = 32 * 1024, **header: object) -> bytes:
    out = bytearray()
    writer = IncrementWriter(
        out.extend,
        base=BASE,
        epoch=3,
        last_contained_log_timestamp=55,
        batch_bytes=batch_bytes,
        **header,  # type: ignore[arg-type]
    )
    writer.append(changes)
    writer.freeze()
    assert (writer.size, writer.count) == (len(out), len(changes))
    return bytes(out)


def opened(data: bytes) -> IncrementReader:
    return IncrementReader(StreamSource(io.BytesIO(data)), epoch=3)


@pytest.mark.parametrize("batch_bytes", [1, 100, 32 * 1024])
def test_what_is_written_is_read(batch_bytes: int) -> None:
    with opened(increment(CHANGES, batch_bytes=batch_bytes)) as reader:
        assert (reader.base, reader.epoch, reader.kraft_version, reader.voters) == (BASE, 3, 0, None)
        assert reader.header.last_contained_log_timestamp == 55
        assert list(reader.changes()) == CHANGES
        assert list(reader.changes()) == CHANGES
        assert reader.verify() == 3


def test_the_source_of_what_is_no_increment_is_closed() -> None:
    stream = io.BytesIO(checkpoint({b"a": b"1"}))
    with pytest.raises(ConfigError, match="version 353"):
        IncrementReader(StreamSource(stream), epoch=3)
    assert stream.closed


def test_nothing_may_have_changed() -> None:
    assert list(opened(increment([])).changes()) == []


def test_voters_and_version_are_those_of_its_end() -> None:
    voters = VoterSet.of([Voter(key=ReplicaKey(1, UUID(int=500)), endpoints={"CONTROLLER": Endpoint("host", 9)})])
    reader = opened(increment(CHANGES, kraft_version=1, voters=voters.to_record()))
    assert reader.kraft_version == 1
    assert reader.voters is not None
    assert VoterSet.from_record(reader.voters) == voters


def test_it_is_a_file_of_batches_as_a_checkpoint_is() -> None:
    data = increment(CHANGES)
    assert [(batch.base_offset, batch.epoch, batch.is_control) for batch in read_batches(data)] == [
        (0, 3, True),
        (1, 3, False),
        (2, 3, False),
        (5, 3, True),
    ]
    assert len({batch.max_timestamp for batch in read_batches(data)}) == 1, "equal changes make equal bytes"


def test_every_damaged_byte_is_noticed() -> None:
    data = increment(CHANGES[:2])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptBatchError):
            opened(bytes(damaged)).verify()
    for size in range(len(data)):
        with pytest.raises(CorruptBatchError):
            opened(data[:size]).verify()
    with pytest.raises(CorruptBatchError, match="follow the footer"):
        opened(data + b"x").verify()


def test_keys_ascend_and_values_are_not_empty() -> None:
    writer = IncrementWriter(lambda data: None, base=BASE, epoch=3, last_contained_log_timestamp=0)
    writer.append([(b"b", b"1")])
    for key in (b"b", b"a"):
        with pytest.raises(ConfigError, match="keys must ascend"):
            writer.append([(key, b"1")])
    with pytest.raises(ConfigError, match="is empty"):
        writer.append([(b"c", b"")])
    with pytest.raises(RecordTooLargeError):
        writer.append([(b"c", b"x" * (8 << 20))])


def frame(*batches: tuple[list[Record], int]) -> bytes:
    """A file of data batches between header and footer, whatever they hold."""
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=3, last_contained_log_timestamp=0)
    for records, _ in batches:
        at = writer.next_offset
        placed = [record._replace(offset=at + number) for number, record in enumerate(records)]
        block = encode_block(placed, base_offset=at, base_timestamp=0)
        writer.put_batch(assemble([block], len(placed), 0, 0, 0, at, 3))
    writer.freeze()
    return bytes(out)


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value, ())


def test_a_newer_version_is_refused_and_a_newer_tagged_field_is_ignored() -> None:
    manifest = write(IncrementManifest(base_end_offset=100, base_epoch=2), VERSION)
    newer = (2).to_bytes(2, "big") + manifest[2:]
    with pytest.raises(ConfigError, match="has version 2, known is 1"):
        opened(frame(([record(None, newer)], 0)))
    tagged = manifest[:-1] + b"\x01\x63\x02hi"  # one tagged field, number 99, two bytes
    assert opened(frame(([record(None, tagged)], 0))).base == BASE


@pytest.mark.parametrize(
    "records",
    [[], [record(b"k", b"v")], [record(None, b"")], [record(None, b"\x00\x01short")]],
    ids=["none", "a change", "empty", "short"],
)
def test_what_has_no_manifest_is_no_increment(records: list[Record]) -> None:
    with pytest.raises(CorruptBatchError):
        opened(frame((records, 0)) if records else frame())


@pytest.mark.parametrize("bad", [record(None, b"v"), record(b"k", b""), record(b"a", b"v")])
def test_a_record_that_is_no_change_is_damage(bad: Record) -> None:
    manifest = write(IncrementManifest(base_end_offset=100, base_epoch=2), VERSION)
    data = frame(([record(None, manifest)], 0), ([record(b"b", b"1"), bad], 0))
    with pytest.raises(CorruptBatchError):
        opened(data).verify()


# Chains ---------------------------------------------------------------------------------------------------------------


def checkpoint(state: dict[bytes, bytes]) -> bytes:
    """A full checkpoint of a state, in the order of its keys; a value says its key."""
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=3, last_contained_log_timestamp=55)
    writer.append(bytes([len(key)]) + key + value for key, value in sorted(state.items()))
    writer.freeze()
    return bytes(out)


def key_of(value: bytes) -> bytes:
    return value[1 : 1 + value[0]]


@given(STATES, st.lists(DELTAS, max_size=4))
def test_a_merged_chain_is_the_full_checkpoint_of_its_end_to_the_byte(
    state: dict[bytes, bytes], deltas: list[dict[bytes, bytes | None]]
) -> None:
    base = SnapshotReader(StreamSource(io.BytesIO(checkpoint(state))), epoch=3)
    readers = []
    for delta in deltas:
        wrapped = {key: None if value is None else bytes([len(key)]) + key + value for key, value in delta.items()}
        readers.append(opened(increment(sorted(wrapped.items()))))
        for key, value in delta.items():
            state.pop(key, None)
            if value is not None:
                state[key] = value
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=3, last_contained_log_timestamp=55)
    values = (value for batch in base.batches() for value in batch.values())
    writer.append(value for _, value in merge(keyed(values, key_of), *(reader.changes() for reader in readers)))
    writer.freeze()

    assert bytes(out) == checkpoint(state)


@given(st.lists(DELTAS, max_size=4))
def test_increments_merge_into_one_that_says_the_same(deltas: list[dict[bytes, bytes | None]]) -> None:
    latest: dict[bytes, bytes | None] = {}
    for delta in deltas:
        latest.update(delta)
    assert list(merge_changes(*(sorted(delta.items()) for delta in deltas))) == sorted(latest.items())


def test_a_base_out_of_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="only one whose keys ascend"):
        list(keyed([b"\x01b", b"\x01a"], key_of))


def test_a_chain_leads_on_without_a_gap() -> None:
    second, third = OffsetAndEpoch(offset=120, epoch=2), OffsetAndEpoch(offset=130, epoch=4)
    assert check_chain(BASE, []) == BASE
    assert check_chain(BASE, [(second, BASE), (third, second)]) == third
    for wrong in ([(third, second)], [(second, BASE), (third, BASE)], [(BASE, BASE)]):
        with pytest.raises(ConfigError, match="does not lead on from"):
            check_chain(BASE, wrong)
