"""A listener that the log left behind gets the newest snapshot that is whole, or the log from its beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.storage.snapshots.in_memory import MemorySnapshotSource
from kraftlib.types import OffsetAndEpoch
from tests.runtime.test_applier import Recorder, Rig
from tests.runtime.test_waiters import Slot


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_new_listener_begins_with_the_newest_committed_snapshot(rig: Rig) -> None:
    for value in (b"1", b"2", b"3", b"4"):
        rig.append(value)
    rig.snapshot(1, 1, b"1")
    newest = rig.snapshot(2, 1, b"3")
    rig.snapshot(4, 1, b"10")
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.advance(3)
    rig.run()

    assert listener.heard[0] == ("snapshot", newest, [b"3"])
    assert listener.records == [(2, b"3")]


class Doubting:
    """Checks that believe every snapshot until it is doubted."""

    def __init__(self) -> None:
        self.doubted: list[OffsetAndEpoch] = []

    def is_sound(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id not in self.doubted

    def is_damaged(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id in self.doubted

    def when_checked(self, snapshot_id: OffsetAndEpoch, then: Callable[[], None]) -> None:
        then()

    def doubt(self, snapshot_id: OffsetAndEpoch) -> None:
        self.doubted.append(snapshot_id)


@pytest.mark.parametrize("place", [30, -100], ids=["header", "body"])
@pytest.mark.parametrize("goes_on_with", ["an older snapshot", "the log"])
def test_a_snapshot_that_rots_after_it_was_checked_is_doubted_and_another_way_is_taken(
    monkeypatch: pytest.MonkeyPatch, place: int, goes_on_with: str
) -> None:
    checks = Doubting()
    rig = Rig(checks=checks)
    for _ in range(6):
        rig.append(b"1")
    older = rig.snapshot(2, 1, b"old") if goes_on_with == "an older snapshot" else None
    newest = rig.snapshot(4, 1, *[b"new" * 50] * 20)
    stored, opened = rig.log.snapshots, rig.log.open_snapshot

    def rotten(snapshot_id: OffsetAndEpoch) -> Any:
        source = opened(snapshot_id)
        if snapshot_id != newest:
            return source
        data = bytearray(source.read_at(0, source.size))
        data[place] ^= 0xFF
        return MemorySnapshotSource(bytes(data))

    monkeypatch.setattr(rig.log, "open_snapshot", rotten)
    monkeypatch.setattr(rig.log, "snapshots", lambda: [each for each in stored() if each not in checks.doubted])
    listener, slot = Recorder(), Slot()
    rig.applier.register(listener)
    rig.applier.wait_for(5, slot)
    rig.applier.advance(6)
    rig.run()

    assert checks.doubted == [newest]
    assert rig.damage == [], "the log is sound"
    assert [heard[1] for heard in listener.heard if heard[0] == "snapshot"] == ([older] if older else [])
    assert [offset for offset, _ in listener.records] == list(range(2 if older else 0, 6))
    assert slot.result == 6


def test_a_state_machine_that_was_half_restored_does_not_begin_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a part of what it is about to be given again."""
    checks = Doubting()
    rig = Rig(checks=checks)
    machine = rig.machine()

    def restore(values: Iterable[Any]) -> None:
        machine.total = 3
        raise CorruptBatchError("rotten")

    monkeypatch.setattr(machine, "restore", restore)
    for _ in range(4):
        rig.append(b"1")
    rig.snapshot(3, 1, b"3")
    stored = rig.log.snapshots
    monkeypatch.setattr(rig.log, "snapshots", lambda: [each for each in stored() if each not in checks.doubted])
    rig.applier.advance(4)
    rig.run()

    assert machine.applied == []
    assert "no other one replaces it" in str(rig.waiters.apply_failure)


def test_the_bootstrap_checkpoint_is_no_state(rig: Rig) -> None:
    bootstrap = rig.snapshot(0, 0)
    rig.append(b"1")
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.advance(1)
    rig.run()

    assert listener.heard == [("bootstrap", bootstrap), ("commit", 0, 0)]


# Leaders --------------------------------------------------------------------------------------------------------------
