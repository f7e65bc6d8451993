"""What may go goes, one snapshot at a time: never on the word of a damaged one, never from under a reader's hands."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, HoldExpiredError, StorageError
from kraftlib.records.batch import encode_batch
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.runtime.disk import InlineDisk
from kraftlib.runtime.snapshots.retention import Retention
from kraftlib.storage.log.holds_file import StoredHold
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch

NOW_MS = 1_000_000


class Rig:
    """A log of batches of one record, 1,000 bytes and some each; time is what a batch is stamped with."""

    def __init__(self, *, batches: int = 40, holds: Sequence[StoredHold] = (), **config: Any) -> None:
        self.log = MemoryReplicatedLog()
        for offset in range(batches):
            self.log.append([encode_batch([b"x" * 1_000], timestamp_ms=offset, base_offset=offset, epoch=1)])
        self.soon: deque[Callable[[], object]] = deque()
        self.saved: list[Sequence[StoredHold]] = []
        self.deleted: list[int] = []
        self.takes_its_time = self.disk_is_full = False
        self.retention = Retention(
            RaftConfig(node_id=1, **{"retention_ms": -1, "retention_bytes": -1, **config}),
            self.log,
            background=InlineDisk(),
            delete=self.delete,
            wall_clock=lambda: NOW_MS,
            call_soon=self.soon.append,
            holds=holds,
            save=self.save,
        )

    def save(self, holds: Sequence[StoredHold]) -> None:
        if self.disk_is_full:
            raise StorageError("cannot write kraftlib-holds.json: No space left on device")
        self.saved.append(holds)

    def delete(self, snapshot_id: OffsetAndEpoch) -> None:
        self.deleted.append(snapshot_id.offset)
        if not self.takes_its_time:
            self.log.delete_before(snapshot_id)

    def snapshot(self, *offsets: int, age_ms: int = 0, damage: bool = False) -> None:
        for offset in offsets:
            sink = self.log.create_snapshot(OffsetAndEpoch(offset=offset, epoch=1))
            writer = SnapshotWriter(sink.write, epoch=1, last_contained_log_timestamp=NOW_MS - age_ms)
            writer.append([b"state"])
            if damage:
                sink.write(b"no footer")
            else:
                writer.freeze()
            sink.freeze()

    def look(self) -> list[int]:
        self.retention.look()
        while self.soon:
            self.soon.popleft()()
        return self.deleted

    @property
    def left(self) -> list[int]:
        return [snapshot.offset for snapshot in self.log.snapshots()]


def test_nothing_goes_while_there_is_one_snapshot_or_nothing_is_too_much() -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(10)
    assert rig.look() == []
    rig = Rig(retention_bytes=10**6, retention_ms=10)
    rig.snapshot(10, 20, age_ms=10)
    assert rig.look() == []


def test_the_oldest_goes_until_all_is_small_enough() -> None:
    rig = Rig(retention_bytes=25_000)
    rig.snapshot(5, 10, 20, 30)
    assert rig.look() == [10, 20]
    assert (rig.log.start_offset, rig.left) == (20, [20, 30])


def test_the_newest_snapshot_and_the_log_behind_it_always_stay() -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(5, 10, 20)
    assert rig.look() == [10, 20]
    assert (rig.log.start_offset, rig.log.end_offset, rig.left) == (20, 40, [20])


def test_what_covers_only_old_records_goes() -> None:
    rig = Rig(retention_ms=100)
    rig.snapshot(5, 10, age_ms=101)
    rig.snapshot(20, age_ms=100)
    rig.snapshot(30)
    assert rig.look() == [10, 20]
    assert rig.left == [20, 30]


def test_nothing_goes_on_the_word_of_a_damaged_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(5)
    rig.snapshot(10, damage=True)
    assert rig.look() == []
    assert "snapshot 10@1 is damaged" in caplog.text
    rig.snapshot(20)
    assert rig.look() == [20], "the next whole one may stand in"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 40), unique=True, max_size=6),
    st.integers(0, 60_000),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_no_more_goes_than_needed_and_nothing_that_is_held(offsets: list[int], limit: int, held: list[int]) -> None:
    rig = Rig(retention_bytes=limit)
    rig.snapshot(*sorted(offsets))
    for number, offset in enumerate(held):
        rig.retention.hold(f"reader {number}", offset, None)
    sizes: list[int] = []
    delete = rig.delete

    def watch(snapshot_id: OffsetAndEpoch) -> None:
        sizes.append(rig.log.size_bytes + sum(rig.log.open_snapshot(kept).size for kept in rig.log.snapshots()))
        delete(snapshot_id)

    rig.retention._delete = watch
    rig.look()

    assert all(size > limit for size in sizes)
    assert rig.log.start_offset <= min(held, default=40)
    assert (rig.left[-1:] or [0]) == ([max(offsets)] if offsets else [0])


def test_a_full_disk_takes_all_but_the_two_newest_snapshots() -> None:
    """And the log below them, which they replace; what no snapshot has is never deleted to make room."""
    rig = Rig()
    rig.snapshot(5, 10, 20, 30)
    rig.retention.make_room()  # reads the one on whose word it goes
    assert rig.deleted == []
    rig.retention.make_room()
    assert (rig.deleted, rig.left, rig.log.start_offset) == ([20], [20, 30], 20)
    rig.retention.make_room()
    assert rig.deleted == [20]


def test_a_full_disk_takes_nothing_that_is_held_or_that_only_a_damaged_snapshot_replaces() -> None:
    rig = Rig()
    rig.snapshot(5, 10, 20, 30)
    rig.retention.hold("reader", 15, 1 << 30)
    for _ in range(3):
        rig.retention.make_room()
    assert rig.deleted == []

    damaged: list[tuple[int, str]] = []
    rig = Rig()
    rig.retention._on_damage = lambda snapshot_id, reason: damaged.append((snapshot_id.offset, reason))
    rig.snapshot(5, 10)
    rig.snapshot(20, damage=True)
    rig.snapshot(30)
    for _ in range(3):
        rig.retention.make_room()
    assert [offset for offset, _ in damaged] == [20]
    assert rig.deleted == [10], "the damaged one is not counted"


# Holds ----------------------------------------------------------------------------------------------------------------


def test_a_reader_moves_on_and_lets_go() -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(5, 10, 20, 30)
    hold = rig.retention.hold("feed", 12, None)
    assert rig.look() == [10]
    hold.advance(3)
    assert (hold.offset, rig.look()) == (12, [10])
    hold.advance(25)
    assert rig.look() == [10, 20]
    hold.release()
    hold.release()
    assert rig.look() == [10, 20, 30]
    assert rig.retention.holds == []


def test_a_hold_that_keeps_too_much_expires_and_everybody_hears_of_it(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(5, 10)
    hold = rig.retention.hold("gone", 2, 30_000)
    other = rig.retention.hold("slow", 4, 10**6)
    assert rig.look() == []
    assert hold.expired
    assert "the hold of 'gone' at offset 2 has expired" in caplog.text
    with pytest.raises(HoldExpiredError, match="max_bytes=30000"):
        hold.advance(3)
    other.advance(10)
    assert rig.look() == [10]
    assert [kept.name for kept in rig.retention.holds] == ["slow"]


def test_a_hold_does_not_expire_while_it_is_in_nobodys_way() -> None:
    rig = Rig()
    rig.snapshot(5, 10)
    hold = rig.retention.hold("feed", 0, 0)
    rig.look()
    assert not hold.expired


def test_a_hold_that_is_over_takes_no_memory() -> None:
    """A service may take a hold of a new name for each of its readers."""
    rig = Rig()
    released = rig.retention.hold("reader 1", None, None)
    kept = rig.retention.hold("reader 2", None, None)
    gone = weakref.ref(released)
    released.release()
    while rig.soon:
        rig.soon.popleft()()
    del released
    gc.collect()

    assert gone() is None
    assert list(rig.retention.holds) == [kept]


def test_the_same_name_is_the_same_hold_and_is_kept_over_a_restart() -> None:
    rig = Rig(retention_bytes=1, holds=[StoredHold(name="feed", offset=8, max_bytes=10**6)])
    rig.snapshot(5, 10)
    assert rig.look() == []
    hold = rig.retention.hold("feed", None, None)
    assert (hold.offset, hold.max_bytes) == (8, 10**6)
    assert rig.retention.hold("feed", 9, None) is hold
    assert rig.look() == []
    assert rig.saved[-1] == [StoredHold(name="feed", offset=9, max_bytes=10**6)]
    hold.release()
    assert rig.look() == [10]
    assert rig.saved[-1] == []
    assert rig.retention.hold("feed", None, None) is not hold


def test_a_hold_that_found_no_space_is_stored_when_there_is_some() -> None:
    """Or the replica would delete, after its next restart, what the reader still wants."""
    rig = Rig()
    rig.disk_is_full = True
    rig.retention.hold("feed", 3, 10**6)
    rig.look()
    assert rig.saved == []

    rig.disk_is_full = False
    rig.look()
    rig.look()
    assert rig.saved == [[StoredHold(name="feed", offset=3, max_bytes=10**6)]]


def test_what_is_gone_cannot_be_held() -> None:
    rig = Rig(retention_bytes=1)
    rig.snapshot(5, 10)
    rig.look()
    with pytest.raises(ConfigError, match="offset=9 cannot be held, the log begins at 10"):
        rig.retention.hold("late", 9, None)
    with pytest.raises(ConfigError, match="is no name of a reader"):
        rig.retention.hold("", 10, None)


def test_what_is_about_to_go_cannot_be_held() -> None:
    """The core lets it go a while after it was asked to: nobody may be told in between that it stays."""
    rig = Rig(retention_bytes=1)
    rig.takes_its_time = True
    rig.snapshot(10, 20)
    rig.retention.look()

    assert (rig.deleted, rig.log.start_offset) == ([20], 0)
    with pytest.raises(ConfigError, match="the log begins at 20"):
        rig.retention.hold("late", 19, None)
    assert rig.retention.hold("reader", None, None).offset == 20
