from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, StorageError
from kraftlib.storage import files, names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.space import Space
from kraftlib.storage.log.spare import Spare, only_zeros_follow
from kraftlib.testing.log_contract import read_all
from tests.storage.builders import segments, some_batches

SIZE = 3 << 19


def made(directory: Path, *, size: int = SIZE) -> Spare:
    return Spare(directory, size=size, file_mode=0o600)


def opened(directory: Path) -> FileReplicatedLog:
    return FileReplicatedLog.open(directory, segment_bytes=1_000, reserve_bytes=800, zero_fill=True)


def written(log: FileReplicatedLog, count: int) -> None:
    for batch in some_batches(*[1] * count, base_offset=log.end_offset, size=200):
        log.append([batch])
    log.flush()


def test_it_is_zeros_under_a_name_of_its_own_until_it_is_taken(tmp_path: Path) -> None:
    spare, target = made(tmp_path), tmp_path / names.segment_name(7)
    assert spare.take(target) is None
    spare.prepare()
    spare.prepare()
    assert (tmp_path / names.SPARE).read_bytes() == bytes(SIZE)
    descriptor = spare.take(target)
    assert descriptor is not None
    os.pwrite(descriptor, b"records", 0)
    os.close(descriptor)
    assert target.read_bytes() == b"records" + bytes(SIZE - 7)
    assert target.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / names.SPARE).exists()
    assert spare.take(target) is None


def test_it_takes_the_place_of_no_file(tmp_path: Path) -> None:
    spare, target = made(tmp_path), tmp_path / names.segment_name(7)
    spare.prepare()
    target.write_bytes(b"there")
    with pytest.raises(StorageError, match="File exists"):
        spare.take(target)
    spare.drop()
    assert target.read_bytes() == b"there"


def test_a_disk_that_refuses_leaves_nothing_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_at", full)
    spare = made(tmp_path)
    spare.prepare()
    assert spare.take(tmp_path / names.segment_name(7)) is None
    assert list(tmp_path.iterdir()) == []


def test_it_is_given_back(tmp_path: Path) -> None:
    spare = made(tmp_path)
    spare.prepare()
    spare.drop()
    spare.drop()
    made(tmp_path, size=0).prepare()
    assert list(tmp_path.iterdir()) == []


def test_zeros_are_told_from_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" + bytes(3 << 20) + b"y" + bytes(10))
    descriptor = files.open_existing(path)
    end = path.stat().st_size
    try:
        assert only_zeros_follow(descriptor, path, 1, (3 << 20) + 1)
        assert not only_zeros_follow(descriptor, path, 1, end)
        assert only_zeros_follow(descriptor, path, end - 10, end)
        assert not only_zeros_follow(descriptor, path, end, end), "nothing follows"
    finally:
        os.close(descriptor)


def test_a_log_goes_on_in_it_and_only_the_growing_segment_ends_in_zeros(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.prepare_spare()
    written(log, 5)
    assert len(segments(tmp_path)) == 2
    assert segments(tmp_path)[1].stat().st_size == 800
    log.prepare_spare()
    written(log, 4)
    sizes = [path.stat().st_size for path in segments(tmp_path)]
    assert sizes == [len(some_batches(1, size=200)[0].data) * 3] * 2 + [max(800, sizes[-1])]
    assert [batch.base_offset for batch in read_all(log)] == list(range(9))
    log.close()
    assert sum(path.stat().st_size for path in segments(tmp_path)) == log.size_bytes
    assert not (tmp_path / names.SPARE).exists()


def test_after_a_kill_the_zeros_are_cut_off_and_are_no_torn_tail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path)
    log.prepare_spare()
    written(log, 5)
    log.prepare_spare()
    assert (tmp_path / names.SPARE).exists()

    again = opened(tmp_path)
    assert (again.end_offset, again.holes()) == (5, ())
    assert sum(path.stat().st_size for path in segments(tmp_path)) == again.size_bytes
    assert not (tmp_path / names.SPARE).exists()
    assert "torn" not in caplog.text
    written(again, 3)
    again.close()
    assert opened(tmp_path).end_offset == 8


def test_a_full_segment_whose_cut_was_lost_is_no_damage(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=1_000)
    written(log, 5)
    first = segments(tmp_path)[0]
    size = first.stat().st_size
    os.truncate(first, size + 5_000)

    again = FileReplicatedLog.open(tmp_path, segment_bytes=1_000)
    assert (again.end_offset, again.holes(), first.stat().st_size) == (5, (), size)


def test_zeros_where_records_were_are_damage(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=1_000)
    written(log, 5)
    first = segments(tmp_path)[0]
    data = first.read_bytes()
    first.write_bytes(data[:-300] + bytes(300))
    (tmp_path / names.PREFIX).unlink()  # else it is only noticed when it is read
    again = FileReplicatedLog.open(tmp_path, segment_bytes=1_000, keep_damage=True)
    assert again.holes()
    assert again.holes()[0].end_offset == 3


def test_a_full_disk_takes_the_spare_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.prepare_spare()
    monkeypatch.setattr(Space, "is_full", True)
    log.prepare_spare()
    assert not (tmp_path / names.SPARE).exists()
    log.close()


def test_a_damaged_segment_that_grows_is_repaired_without_its_zeros(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.prepare_spare()
    written(log, 5)
    active = segments(tmp_path)[1]
    with active.open("r+b") as file:
        file.seek(100)
        file.write(b"?")
    batches = some_batches(*[1] * 5, size=200)
    (hole,) = log.find_damage(3)
    assert log.write_repair([batch for batch in batches if hole.start_offset <= batch.base_offset < hole.end_offset])
    assert log.holes() == ()
    written(log, 1)
    log.close()
    assert opened(tmp_path).end_offset == 6


def test_how_much_is_filled_must_be_said() -> None:
    with pytest.raises(ConfigError, match="segment_zero_fill=True fills segment_reserve_bytes=0"):
        RaftConfig(node_id=1, segment_zero_fill=True)
    assert RaftConfig(node_id=1, segment_zero_fill=True, segment_reserve_bytes=1 << 20).segment_zero_fill
