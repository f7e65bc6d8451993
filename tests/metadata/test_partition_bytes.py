"""The quick way to read and write a partition's record, against the declared codec as its twin."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec import declared
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.metadata import decode_record, encode_record
from kraftlib.metadata.topic_records import PartitionRecord

NUMBERS = st.integers(-(2**31), 2**31 - 1)
BROKERS = st.lists(NUMBERS, max_size=4).map(tuple) | st.lists(NUMBERS, min_size=125, max_size=130).map(tuple)
USUAL = st.builds(
    PartitionRecord,
    partition_id=NUMBERS,
    topic_id=st.uuids(),
    replicas=BROKERS,
    isr=BROKERS,
    leader=NUMBERS,
    leader_epoch=NUMBERS,
    partition_epoch=NUMBERS,
    directories=st.lists(st.uuids(), max_size=4).map(tuple),
)
RARE = st.fixed_dictionaries(
    {},
    optional={
        "adding_replicas": BROKERS,
        "removing_replicas": BROKERS,
        "leader_recovery_state": st.integers(0, 1),
        "unknown_tagged_fields": st.just(((9, b"new"),)),
    },
)


def twin_bytes(record: PartitionRecord, version: int) -> bytes:
    """What the declared codec writes."""
    return bytes((1, record.api_key, version)) + declared.write(record, version)


def twin_record(data: bytes) -> object:
    """What the declared codec reads: a view never goes the quick way."""
    try:
        return decode_record(memoryview(data))
    except RemoteProtocolError:
        return None


@given(USUAL, RARE, st.integers(1, 2))
def test_it_writes_and_reads_what_the_declared_codec_does(
    usual: PartitionRecord, rare: dict[str, object], version: int
) -> None:
    record = attrs.evolve(usual, **rare)

    data = encode_record(record, version)
    assert data == twin_bytes(record, version)
    assert decode_record(data) == (record, version)


@given(USUAL, st.integers(1, 2), st.data())
def test_bytes_that_were_changed_are_read_alike_or_refused_alike(
    record: PartitionRecord, version: int, data: st.DataObject
) -> None:
    whole = bytearray(encode_record(record, version))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(2, len(whole) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(whole)[: data.draw(st.integers(3, len(whole)))] + data.draw(st.binary(max_size=2))

    try:
        found: object = decode_record(changed)
    except RemoteProtocolError:
        found = None
    assert found == twin_record(changed)


def test_a_value_that_does_not_fit_is_refused_by_name() -> None:
    for wrong in ({"leader": 2**31}, {"directories": ("d",)}, {"replicas": (1.5,)}):
        with pytest.raises(LocalProtocolError, match=next(iter(wrong))):
            encode_record(PartitionRecord(**wrong), 1)  # type: ignore[arg-type]


def test_equal_replicas_and_directories_are_one_object() -> None:
    """A million partitions are on a few hundred brokers."""
    places = tuple(UUID(int=1_000 + number) for number in range(3))
    first, second = (
        decode_record(
            encode_record(PartitionRecord(partition_id=n, replicas=(1, 2, 3), isr=(1, 2, 3), directories=places), 2)
        )[0]
        for n in (1, 2)
    )
    assert isinstance(first, PartitionRecord)
    assert isinstance(second, PartitionRecord)
    assert first.replicas is second.isr
    assert first.directories is second.directories
