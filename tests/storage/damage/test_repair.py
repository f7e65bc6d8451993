"""Holes in a log of files: found, kept, filled with what others have, and swapped in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.testing.log_contract import read_all
from kraftlib.types import ElectionState, EpochStart, OffsetRange
from tests.storage.builders import a_batch, segments, some_batches

BATCHES = some_batches(*[1] * 20, *[3] * 20, *[4] * 20, size=200)
SEGMENT_BYTES = 20 * BATCHES[0].size + 1_000
SIZE = BATCHES[0].size


def opened(directory: Path) -> FileReplicatedLog:
    return FileReplicatedLog.open(directory, segment_bytes=SEGMENT_BYTES, keep_damage=True, tail_bytes=0)


def a_log(directory: Path, *, close: bool = True, batches: Sequence[Batch] = BATCHES) -> FileReplicatedLog:
    log = opened(directory)
    for batch in batches:
        log.append([batch])
    log.flush()
    line = encode_line(ElectionState(epoch=4), kraft_version=1, voters=(), generation=1)
    (directory / "quorum-state").write_bytes(line)
    if close:
        log.close()
    return log


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Damage a file in place, its time of change included: a disk does not tell."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def cut(path: Path, size: int) -> None:
    """Shorten a file, and leave its time of change: nobody did that on purpose."""
    times = path.stat()
    os.truncate(path, size)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def forget_prefix(directory: Path) -> None:
    (directory / "kraftlib-prefix.json").unlink(missing_ok=True)


def fill(log: FileReplicatedLog, batches: Sequence[Batch] = BATCHES) -> None:
    """Repair a log with what a whole one has."""
    while log.holes():
        hole = log.holes()[0]
        wanted = [b for b in batches if hole.start_offset <= b.base_offset < hole.end_offset]
        assert any(log.write_repair([batch]) for batch in wanted)


def flip(directory: Path) -> list[OffsetRange]:
    overwrite(segments(directory)[0], 5 * SIZE + 100, b"?")
    return [OffsetRange(5, 6)]


def flip_in_two_places(directory: Path) -> list[OffsetRange]:
    overwrite(segments(directory)[0], 5 * SIZE + 100, b"?")
    overwrite(segments(directory)[0], 9 * SIZE + 100, b"?")
    return [OffsetRange(5, 10)]


def flip_in_two_segments(directory: Path) -> list[OffsetRange]:
    overwrite(segments(directory)[0], 5 * SIZE + 100, b"?")
    overwrite(segments(directory)[1], 0, bytes(SIZE))
    second = int(segments(directory)[1].stem)
    return [OffsetRange(5, 6), OffsetRange(second, second + 1)]


def cut_a_full_segment(directory: Path) -> list[OffsetRange]:
    cut(segments(directory)[0], 7 * SIZE + 10)
    return [OffsetRange(7, int(segments(directory)[1].stem))]


def lose_a_segment(directory: Path) -> list[OffsetRange]:
    _, second, third = (int(path.stem) for path in segments(directory)[:3])
    segments(directory)[1].unlink()
    return [OffsetRange(second, third)]


def lose_the_last_segment(directory: Path) -> list[OffsetRange]:
    last = segments(directory)[-1]
    last.unlink()
    return [OffsetRange(int(last.stem), 60)]


def cut_the_end(directory: Path) -> list[OffsetRange]:
    cut(segments(directory)[-1], SIZE + 10)
    return [OffsetRange(int(segments(directory)[-1].stem) + 1, 60)]


def change_an_epoch(directory: Path) -> list[OffsetRange]:
    """No checksum of a batch covers it; offset 38 is of epoch 3."""
    path = segments(directory)[1]
    place = 38 - int(path.stem)
    overwrite(path, place * SIZE + 12, (4).to_bytes(4, "big"))
    return [OffsetRange(38, 40)]


def damage_the_end_behind_the_last_batch(directory: Path) -> list[OffsetRange]:
    overwrite(segments(directory)[-1], segments(directory)[-1].stat().st_size - 20, b"?" * 20)
    return [OffsetRange(59, 60)]


DAMAGES = [
    flip,
    flip_in_two_places,
    flip_in_two_segments,
    cut_a_full_segment,
    lose_a_segment,
    lose_the_last_segment,
    cut_the_end,
    change_an_epoch,
    damage_the_end_behind_the_last_batch,
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("close", [True, False])
def test_damage_is_found_kept_and_repaired(
    damage: Callable[[Path], list[OffsetRange]], close: bool, tmp_path: Path
) -> None:
    directory = tmp_path
    a_log(directory, close=close)
    holes = damage(directory)
    forget_prefix(directory)
    before = {path.name: path.read_bytes() for path in segments(directory)}
    log = opened(directory)

    assert list(log.holes()) == holes
    assert (log.start_offset, log.end_offset) == (0, 60), "as long as it ever was: votes are compared with that"
    assert log.epoch_starts()[-1].epoch == 4
    assert {path.name: path.read_bytes() for path in segments(directory)} == before, "nothing is cut"
    with pytest.raises(CorruptBatchError):
        log.read(holes[0].start_offset, 1)
    log.close()
    log = opened(directory)
    assert list(log.holes()) == holes, "also in the next life"

    fill(log)
    assert read_all(log) == BATCHES
    assert log.epoch_starts() == (
        EpochStart(epoch=1, start_offset=0),
        EpochStart(epoch=3, start_offset=20),
        EpochStart(epoch=4, start_offset=40),
    )
    log.append([a_batch(60, 5, size=200)])
    log.close()
    again = FileReplicatedLog.open(directory, segment_bytes=SEGMENT_BYTES)
    assert again.end_offset == 61
    assert read_all(again)[:-1] == BATCHES
    assert not list((directory / "kraftlib-repair").iterdir())


def lose_two_segments(directory: Path) -> None:
    for path in segments(directory)[1:3]:
        path.unlink()


def lose_all_segments(directory: Path) -> None:
    for path in segments(directory):
        path.unlink()
    (directory / "kraftlib.json").write_text("{}")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("lose", [lose_two_segments, lose_the_last_segment, lose_all_segments])
def test_a_hole_that_is_longer_than_a_segment_is_repaired_in_several(
    lose: Callable[[Path], object], restarts: bool, tmp_path: Path
) -> None:
    """No segment may become larger than its index can tell, and a start reads none that is."""
    batches = [*BATCHES[:45], a_batch(45, 4, records=2, size=100), *some_batches(*[4] * 13, base_offset=47, size=200)]
    a_log(tmp_path, batches=batches)
    lose(tmp_path)
    forget_prefix(tmp_path)
    log, parts = opened(tmp_path), 0
    while log.holes():
        (hole,) = log.holes()
        assert any(log.write_repair([batch]) for batch in batches if batch.base_offset >= hole.start_offset)
        parts += 1
        if restarts:
            holes = log.holes()
            log.close()
            log = opened(tmp_path)
            assert log.holes() == holes
        assert (log.end_offset, log.epoch_starts()[-1].epoch) == (60, 4)

    assert parts > 1
    assert max(path.stat().st_size for path in segments(tmp_path)) <= SEGMENT_BYTES
    assert log.epoch_starts() == tuple(
        EpochStart(epoch=epoch, start_offset=start) for epoch, start in ((1, 0), (3, 20), (4, 40))
    )
    log.append([a_batch(60, 5)])
    log.close()
    assert read_all(opened(tmp_path)) == [*batches, a_batch(60, 5)]


def test_a_repair_that_is_interrupted_begins_again(tmp_path: Path) -> None:
    a_log(tmp_path)
    flip_in_two_places(tmp_path)
    forget_prefix(tmp_path)
    log = opened(tmp_path)
    assert not log.write_repair([BATCHES[5]])
    log.close()
    log = opened(tmp_path)

    assert log.holes() == (OffsetRange(5, 10),)
    fill(log)
    assert read_all(log) == BATCHES


def test_what_does_not_continue_the_repair_is_refused(tmp_path: Path) -> None:
    a_log(tmp_path)
    flip_in_two_places(tmp_path)
    forget_prefix(tmp_path)
    log = opened(tmp_path)
    log.write_repair([BATCHES[5]])

    with pytest.raises(StorageError, match="does not continue"):
        log.write_repair([BATCHES[8]])
    assert not log.write_repair([BATCHES[5]]), "from the start of the hole on it begins again"
    assert log.write_repair(BATCHES[6:10])
    assert read_all(log) == BATCHES


@pytest.mark.parametrize("call", ["fsync", "rename", "sync_directory"])
def test_a_stop_in_the_midst_of_the_swap_leaves_the_old_segment_or_the_new_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(tmp_path)
    flip(tmp_path)
    forget_prefix(tmp_path)
    log = opened(tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os if call == "fsync" else files, call, stop)
    with pytest.raises(KeyboardInterrupt):
        log.write_repair([BATCHES[5]])
    monkeypatch.undo()
    again = opened(tmp_path)

    assert again.holes() in ((), (OffsetRange(5, 6),))
    fill(again)
    assert read_all(again) == BATCHES
