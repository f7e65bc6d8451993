from __future__ import annotations

import pytest

from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage.snapshots.in_memory import MemorySnapshotSink, MemorySnapshotSource
from kraftlib.types import OffsetAndEpoch

SNAPSHOT = OffsetAndEpoch(offset=7, epoch=2)


def test_a_snapshot_reaches_its_log_when_it_is_frozen_and_takes_nothing_after_that() -> None:
    stored: dict[OffsetAndEpoch, bytes] = {}
    sink = MemorySnapshotSink(SNAPSHOT, frozen=stored.__setitem__)
    sink.write(b"ab")
    sink.write(b"cd")
    assert (sink.size, sink.read_at(1, 2), stored) == (4, b"bc", {})

    sink.freeze()
    sink.abort()
    assert stored == {SNAPSHOT: b"abcd"}
    for late in (sink.freeze, lambda: sink.write(b"e"), lambda: sink.read_at(0, 1)):
        with pytest.raises(StorageError, match="frozen or dropped"):
            late()


def test_what_was_dropped_reaches_no_log() -> None:
    stored: dict[OffsetAndEpoch, bytes] = {}
    sink = MemorySnapshotSink(SNAPSHOT, frozen=stored.__setitem__)
    sink.write(b"ab")
    sink.abort()

    with pytest.raises(StorageError, match="frozen or dropped"):
        sink.freeze()
    assert stored == {}


def test_a_source_reads_what_is_there_and_no_place_before_it() -> None:
    source = MemorySnapshotSource(b"abcd")

    assert (source.size, source.read_at(2, 10), source.read_at(4, 1)) == (4, b"cd", b"")
    with pytest.raises(InvariantError):
        source.read_at(-1, 1)
