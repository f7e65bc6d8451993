from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage import files, names
from kraftlib.storage.reserve import Reserve
from kraftlib.storage.snapshots.damaged_snapshots import (
    FOOTER_SIZE,
    LostSnapshot,
    controls_of,
    fault_at_start,
    read_snapshot,
    remove_damaged,
    set_aside,
)
from kraftlib.types import OffsetAndEpoch

ID = OffsetAndEpoch(offset=42, epoch=3)


def content(*, voters: VotersRecord | None = None, values: int = 50) -> bytes:
    out = bytearray()
    writer = SnapshotWriter(
        out.extend,
        epoch=ID.epoch,
        last_contained_log_timestamp=7,
        kraft_version=0 if voters is None else 1,
        voters=voters,
        batch_bytes=400,
    )
    writer.append([b"value %d" % number for number in range(values)])
    writer.freeze()
    return bytes(out)


def stored(directory: Path, data: bytes, snapshot_id: OffsetAndEpoch = ID) -> Path:
    path = directory / names.checkpoint_name(snapshot_id)
    path.write_bytes(data)
    return path


def test_a_whole_snapshot_has_no_fault(tmp_path: Path) -> None:
    data = content()
    stored(tmp_path, data)
    assert fault_at_start(tmp_path, ID) is None
    steps: list[int] = []
    read_snapshot(tmp_path, ID, step=lambda: steps.append(1))
    assert steps


def test_any_flipped_bit_is_found_by_reading_it_to_the_end(tmp_path: Path) -> None:
    data = content(values=12)
    for at in range(len(data)):
        stored(tmp_path, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(CorruptBatchError):
            read_snapshot(tmp_path, ID)


def test_a_glance_finds_whatever_is_wrong_with_both_ends_at_any_length(tmp_path: Path) -> None:
    data = content(values=12)
    for size in range(len(data)):
        stored(tmp_path, data[:size])
        assert fault_at_start(tmp_path, ID) is not None, size
    for behind in (b"\0", data[-FOOTER_SIZE:], bytes(FOOTER_SIZE), b"x" * 5_000):
        stored(tmp_path, data + behind)
        if behind != data[-FOOTER_SIZE:]:
            assert fault_at_start(tmp_path, ID) is not None
        with pytest.raises(CorruptBatchError):
            read_snapshot(tmp_path, ID)


def test_one_that_is_gone_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        fault_at_start(tmp_path, ID)


def test_one_that_cannot_be_opened_for_want_of_descriptors_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, content())

    def refused(path: Path, flags: int = 0) -> int:
        with files.storage_errors("open", path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(files, "open_existing", refused)
    with pytest.raises(StorageError, match="Too many open files"):
        fault_at_start(tmp_path, ID)


def test_a_lost_sector_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, content())

    def unreadable(descriptor: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "read_at", unreadable)
    with pytest.raises(CorruptBatchError, match="cannot be read at 0: Input/output error"):
        read_snapshot(tmp_path, ID)


def test_the_last_damaged_one_is_kept_for_a_look(tmp_path: Path) -> None:
    other = OffsetAndEpoch(offset=50, epoch=3)
    path, later = stored(tmp_path, content()[:-1]), stored(tmp_path, b"rubbish", other)
    lost = set_aside(tmp_path, ID, "cut", file_mode=0o600)
    assert (lost.snapshot_id, lost.reason, lost.has_header) == (ID, "cut", True)
    place = tmp_path / names.DAMAGED_DIRECTORY
    assert not path.exists()
    assert (place / path.name).read_bytes() == content()[:-1]
    assert place.stat().st_mode & 0o777 == 0o700

    assert not set_aside(tmp_path, other, "rubbish", file_mode=0o600).has_header
    assert [found.name for found in place.iterdir()] == [later.name]
    assert remove_damaged(tmp_path)
    assert not remove_damaged(tmp_path)
    assert not remove_damaged(tmp_path / "elsewhere")


@pytest.mark.parametrize("full_at", [1, 2, 3, 4])
def test_it_is_set_aside_on_a_full_disk_too_and_what_is_known_of_it_is_not_lost(
    full_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at one of its calls, and the reserve makes it possible to repeat them all."""
    reserve = Reserve(tmp_path, size=4_096)
    assert reserve.restore()
    path = stored(tmp_path, content()[:-1])
    calls: list[str] = []

    def full_once(name: str) -> None:
        real = getattr(files, name)

        def call(*arguments: object, **more: object) -> object:
            calls.append(name)
            if len(calls) == full_at:
                error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise StorageError(f"cannot {name}: {error}") from error
            return real(*arguments, **more)

        monkeypatch.setattr(files, name, call)

    for name in ("make_directory", "rename", "sync_directory"):
        full_once(name)
    lost = reserve.spend(lambda: set_aside(tmp_path, ID, "cut", file_mode=0o600))

    assert len(calls) > full_at
    assert (lost.snapshot_id, lost.reason, lost.has_header) == (ID, "cut", True)
    assert (tmp_path / names.DAMAGED_DIRECTORY / path.name).read_bytes() == content()[:-1]
    assert not path.exists()


def test_no_link_is_followed_to_where_it_is_kept(tmp_path: Path) -> None:
    stored(tmp_path, b"rubbish")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / names.DAMAGED_DIRECTORY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        set_aside(tmp_path, ID, "rubbish", file_mode=0o600)


def test_who_votes_is_known_from_the_newest_header_that_is_whole() -> None:
    voters = VotersRecord(voters=())
    older = LostSnapshot(snapshot_id=ID, reason="", kraft_version=1, voters=voters, has_header=True)
    newer = LostSnapshot(snapshot_id=OffsetAndEpoch(offset=50, epoch=3), reason="")
    found = controls_of([newer, older])
    assert found is not None
    assert found[0] == ID
    assert found[1][1:] == [voters]
    assert controls_of([newer]) is None
