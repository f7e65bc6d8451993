"""A scan comes to what the reader comes to, in whatever pieces the bytes arrive."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.records.snapshot_scan import SnapshotScan


def snapshot(*values: bytes) -> bytes:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=2, last_contained_log_timestamp=5, batch_bytes=100)
    writer.append(values)
    writer.freeze()
    return bytes(out)


DATA = snapshot(*(b"value %d" % number for number in range(30)))


def verdict(data: bytes) -> bool:
    """Whether the reader takes it."""
    try:
        SnapshotReader(StreamSource(io.BytesIO(data)), epoch=2).verify()
    except CorruptBatchError:
        return False
    return True


def scanned(data: bytes, cuts: list[int]) -> SnapshotScan:
    scan = SnapshotScan(epoch=2)
    edges = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for start, end in itertools.pairwise(edges):
        scan.feed(data[start:end])
    return scan


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_a_whole_snapshot_is_one_in_any_pieces(cuts: list[int]) -> None:
    scan = scanned(DATA, cuts)
    scan.finish()
    assert scan.position == len(DATA)


@given(
    st.lists(st.integers(0, 10_000), max_size=4),
    st.integers(0, len(DATA) - 1),
    st.integers(0, 255),
    st.integers(0, 20),
    st.binary(max_size=3),
)
def test_it_agrees_with_the_reader_on_damage(cuts: list[int], place: int, mask: int, lost: int, extra: bytes) -> None:
    data = bytearray(DATA)
    data[place] ^= mask
    damaged = bytes(data[: len(data) - lost]) + extra
    try:
        scanned(damaged, cuts).finish()
        accepted = True
    except CorruptBatchError:
        accepted = False
    assert accepted == verdict(damaged)


def test_what_came_behind_the_last_whole_batch_can_come_again() -> None:
    for end in range(len(DATA)):
        scan = SnapshotScan(epoch=2)
        scan.feed(DATA[:end])
        scan.forget_rest()
        assert scan.position <= end
        scan.feed(DATA[scan.position :])
        scan.finish()


def test_what_does_not_end_is_not_whole() -> None:
    scan = SnapshotScan(epoch=2)
    with pytest.raises(CorruptBatchError, match="no footer"):
        scan.finish()


@pytest.mark.parametrize(
    ("kraft_version", "ids", "message"),
    [(2, (1,), r"kraft\.version 2: 0 to 1"), (1, (), "names voters"), (1, (1, 2, 1), "names voters")],
    ids=["an unknown version", "nobody", "an id twice"],
)
def test_version_and_voters_that_cannot_be_in_force_are_refused_before_the_snapshot_replaces_a_log(
    kraft_version: int, ids: tuple[int, ...], message: str
) -> None:
    """The replica would stop when it reads them, and at each start after that."""
    out = bytearray()
    voters = VotersRecord(voters=tuple(VotersRecord.Voter(voter_id=voter_id) for voter_id in ids))
    writer = SnapshotWriter(
        out.extend, epoch=2, last_contained_log_timestamp=5, batch_bytes=100, kraft_version=kraft_version, voters=voters
    )
    writer.freeze()

    with pytest.raises(CorruptBatchError, match=message):
        scanned(bytes(out), [])
    assert not verdict(bytes(out))
