from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import DirectoryInUseError, HoldExpiredError, StorageError
from kraftlib.runtime.snapshots.holds import HoldStore, RetentionHold
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.log.holds_file import StoredHold

FEED, BACKUP = StoredHold(name="feed", offset=3, max_bytes=100), StoredHold(name="backup", offset=5, max_bytes=100)


def test_the_reader_of_an_expired_hold_is_told() -> None:
    hold = RetentionHold("feed", 5, 100, lambda name: None)
    hold.expire()

    assert (hold.expired, hold.is_over) == (True, True)
    with pytest.raises(HoldExpiredError, match="max_bytes=100"):
        hold.advance(9)
    assert "expired" in repr(hold)


def test_a_release_that_failed_may_be_repeated_and_one_that_did_not_is_told_once() -> None:
    released: list[str] = []

    def release(name: str) -> None:
        released.append(name)
        if len(released) == 1:
            raise StorageError("the disk is full")

    hold = RetentionHold("feed", 5, 100, release)
    with pytest.raises(StorageError, match="full"):
        hold.release()
    assert not hold.is_over
    hold.release()
    hold.release()
    assert (hold.is_over, released) == (True, ["feed", "feed"])


def test_a_store_without_a_directory_keeps_nothing() -> None:
    store = HoldStore(None, 0o600)
    store.write([FEED])
    store.remove_late("feed")
    assert store.read() == []


def test_a_hold_is_taken_out_only_while_nobody_else_has_the_directory(tmp_path: Path) -> None:
    partition = tmp_path / "partition"
    partition.mkdir()
    store = HoldStore(partition, 0o600)
    store.write([FEED, BACKUP])
    lock = DirectoryLock.acquire(tmp_path)
    with pytest.raises(DirectoryInUseError):
        store.remove_late("feed")
    assert store.read() == [FEED, BACKUP]

    lock.release()
    store.remove_late("feed")
    assert store.read() == [BACKUP]
