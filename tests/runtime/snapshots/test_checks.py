from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.errors import ClosedError, CorruptBatchError, StorageError
from kraftlib.runtime.snapshots.checks import SnapshotChecks, Unchecked
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch
from tests.runtime.fakes import ManualDisk

ONE, TWO = OffsetAndEpoch(offset=10, epoch=1), OffsetAndEpoch(offset=20, epoch=1)


class CheckedLog(MemoryReplicatedLog):
    """A log of which a test says what is wrong with its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[OffsetAndEpoch, Exception] = {}
        self.checked: list[OffsetAndEpoch] = []

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None]) -> None:
        self.checked.append(snapshot_id)
        if snapshot_id in self.faults:
            raise self.faults[snapshot_id]

    def set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        raise NotImplementedError

    def lost_controls(self) -> None:
        return None


class Rig:
    def __init__(self) -> None:
        self.log, self.disk = CheckedLog(), ManualDisk()
        self.damaged: list[tuple[OffsetAndEpoch, str]] = []
        self.told: list[str] = []
        self.checks = SnapshotChecks(
            self.log, background=self.disk, on_damage=lambda snapshot_id, why: self.damaged.append((snapshot_id, why))
        )

    def ask(self, snapshot_id: OffsetAndEpoch, name: str) -> None:
        self.checks.when_checked(snapshot_id, lambda: self.told.append(name))


def test_a_snapshot_is_read_once_for_all_who_ask() -> None:
    rig = Rig()
    rig.ask(ONE, "a")
    rig.ask(ONE, "b")
    assert (rig.told, rig.checks.is_sound(ONE)) == ([], False)
    rig.disk.finish()
    rig.ask(ONE, "c")
    assert (rig.told, rig.log.checked) == (["a", "b", "c"], [ONE])
    assert rig.checks.is_sound(ONE)


def test_one_who_waits_and_raises_keeps_it_from_nobody_else() -> None:
    rig = Rig()
    rig.checks.when_checked(ONE, lambda: [][0])
    rig.ask(ONE, "b")
    with pytest.raises(IndexError):
        rig.disk.finish()
    assert rig.told == ["b"]


def test_whoever_waits_for_a_damaged_one_is_told_and_damage_is_reported_once() -> None:
    rig = Rig()
    rig.log.faults[ONE] = CorruptBatchError("torn")
    rig.ask(ONE, "a")
    rig.disk.finish()
    rig.ask(ONE, "b")
    rig.checks.note_damaged(ONE, "once more")
    assert (rig.told, rig.damaged) == (["a", "b"], [(ONE, "torn")])
    assert rig.checks.is_damaged(ONE)
    assert not rig.checks.is_sound(ONE)


def test_another_one_of_the_same_id_begins_anew() -> None:
    rig = Rig()
    rig.checks.note_damaged(ONE, "torn")
    rig.checks.forget(ONE)
    assert not rig.checks.is_damaged(ONE)
    rig.ask(ONE, "a")
    rig.disk.finish()
    assert rig.checks.is_sound(ONE)
    rig.checks.note_damaged(TWO, "torn")
    rig.checks.note_sound(TWO)
    assert rig.checks.is_sound(TWO)
    assert not rig.checks.is_damaged(TWO)


def test_what_is_doubted_is_read_again() -> None:
    rig = Rig()
    rig.checks.note_sound(ONE)
    rig.checks.doubt(ONE)
    rig.ask(ONE, "a")
    assert rig.told == []
    rig.disk.finish()
    assert rig.log.checked == [ONE]


def test_one_that_is_gone_is_no_damage_and_at_the_end_of_the_replica_nobody_is_told_anything() -> None:
    """What is gone is for whoever opens it."""
    for fault, told in ((StorageError("no such file"), ["a"]), (ClosedError("closing"), [])):
        rig = Rig()
        rig.log.faults[ONE] = fault
        rig.ask(ONE, "a")
        rig.disk.finish()
        assert (rig.told, rig.damaged) == (told, [])


def test_a_log_that_cannot_do_without_them_has_all_its_snapshots_believed() -> None:
    damaged: list[Any] = []
    checks = SnapshotChecks(
        MemoryReplicatedLog(), background=ManualDisk(), on_damage=lambda *arguments: damaged.append(arguments)
    )
    told: list[str] = []
    checks.when_checked(ONE, lambda: told.append("a"))
    checks.note_damaged(ONE, "torn")
    assert (told, damaged, checks.is_sound(ONE)) == (["a"], [], True)
    unchecked = Unchecked()
    unchecked.note_sound(ONE)
    unchecked.when_checked(ONE, lambda: told.append("b"))
    assert (told, unchecked.is_damaged(ONE)) == (["a", "b"], False)


def test_what_was_deleted_is_forgotten() -> None:
    rig = Rig()
    for snapshot_id in (ONE, TWO):
        rig.checks.note_sound(snapshot_id)
    rig.checks.keep_only([TWO])

    assert (rig.checks.is_sound(ONE), rig.checks.is_sound(TWO)) == (False, True)
