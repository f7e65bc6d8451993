"""A replica that nobody could repair syncs its note with every flush: no power cut leaves what seems damaged then."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError
from kraftlib.storage import names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.sync_point import SLOT_PLACES, SLOT_SIZE, read_sync_point
from tests.storage.builders import a_batch, offsets, some_batches, store_whole_snapshot

SEGMENT_BYTES = 12_000
PAGE = 4_096


def opened(directory: Path, *, sync_note: bool = True, keep_damage: bool = False) -> FileReplicatedLog:
    return FileReplicatedLog.open(directory, segment_bytes=SEGMENT_BYTES, sync_note=sync_note, keep_damage=keep_damage)


def segment(directory: Path, base_offset: int = 0) -> Path:
    return directory / names.segment_name(base_offset)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def cut_amid_a_flush(directory: Path, *, sync_note: bool) -> int:
    """Four batches were acknowledged, four more being flushed, of which the disk lost a page; return their place."""
    log = opened(directory, sync_note=sync_note)
    log.append(some_batches(1, 1, 1, 1, size=900))
    log.flush()
    position = log.size_bytes
    log.append(some_batches(1, 1, 1, 2, base_offset=4, size=1_000))
    overwrite(segment(directory), position, bytes(PAGE - position % PAGE))
    return position  # and the process is gone


def test_a_page_of_zeros_before_whole_batches_of_one_flush_is_a_torn_tail(tmp_path: Path) -> None:
    position = cut_amid_a_flush(tmp_path, sync_note=True)
    log = opened(tmp_path)

    assert (log.end_offset, log.size_bytes) == (4, position)
    assert [start.epoch for start in log.epoch_starts()] == [1], "nothing is known of what stood behind"
    log.append([a_batch(4, 3)])
    log.close()
    assert offsets(opened(tmp_path).scan()) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 3)]


def test_without_the_sync_it_would_be_damage(tmp_path: Path) -> None:
    """So the sync is not for nothing; and three replicas repair it."""
    cut_amid_a_flush(tmp_path, sync_note=False)

    with pytest.raises(CorruptBatchError, match="whole batches stand behind it"):
        opened(tmp_path)


def test_what_is_bad_below_an_exact_note_is_damage_all_the_same(tmp_path: Path) -> None:
    position = cut_amid_a_flush(tmp_path, sync_note=True)
    overwrite(segment(tmp_path), position - 100, b"?")

    with pytest.raises(CorruptBatchError, match="nothing was cut"):
        opened(tmp_path)
    log = opened(tmp_path, keep_damage=True)
    assert log.holes()[0].start_offset == 3


def test_an_offset_or_epoch_that_changed_below_it_is_damage_all_the_same(tmp_path: Path) -> None:
    """No checksum of a batch covers them, that of the note does."""
    cut_amid_a_flush(tmp_path, sync_note=True)
    overwrite(segment(tmp_path), 12, b"\0\0\0\0")

    with pytest.raises(CorruptBatchError, match="nothing was cut"):
        opened(tmp_path)


@pytest.mark.parametrize("place", SLOT_PLACES)
def test_either_half_of_the_note_is_enough(place: int, tmp_path: Path) -> None:
    """A disk that loses power while it writes a page may leave nothing of it."""
    log = opened(tmp_path)
    for offset in range(4):
        log.append([a_batch(offset, size=900)])
        log.flush()
    position = log.size_bytes
    log.append(some_batches(1, 1, 1, 1, base_offset=4, size=1_000))
    overwrite(segment(tmp_path), position, bytes(PAGE - position % PAGE))
    overwrite(tmp_path / names.SYNC_POINT, place, b"?" * SLOT_SIZE)

    assert opened(tmp_path).end_offset == 4


def test_a_note_that_is_not_exact_any_more_is_believed_no_further(tmp_path: Path) -> None:
    """The replica has got company meanwhile: it waits for no note, so the last one may be older than what counts."""
    log = opened(tmp_path)
    log.append(some_batches(1, 1, size=900))
    log.flush()
    log.sync_note = False
    for offset in (2, 3):
        log.append([a_batch(offset, size=900)])
        log.flush()
    found = read_sync_point(tmp_path)
    assert found is not None
    assert not found.is_exact
    overwrite(segment(tmp_path), log.size_bytes - 1_900, bytes(100))  # what was acknowledged
    overwrite(tmp_path / names.SYNC_POINT, SLOT_PLACES[found.generation % 2], b"?" * SLOT_SIZE)  # as after a power cut

    with pytest.raises(CorruptBatchError, match="nothing was cut"):
        opened(tmp_path)


def test_a_replica_that_becomes_the_only_voter_is_safe_from_its_next_flush_on(tmp_path: Path) -> None:
    log = opened(tmp_path, sync_note=False)
    log.append([a_batch(0, size=900)])
    log.flush()
    log.sync_note = True
    log.append([a_batch(1, size=900)])
    log.flush()
    position = log.size_bytes
    log.append(some_batches(1, 1, 1, 1, base_offset=2, size=1_000))
    overwrite(segment(tmp_path), position, bytes(PAGE - position % PAGE))

    assert opened(tmp_path).end_offset == 2


def a_new_log(log: FileReplicatedLog) -> None:
    """Nothing was flushed yet."""


def a_truncation(log: FileReplicatedLog) -> None:
    log.append(some_batches(1, 1, 1, size=900))
    log.truncate(1)


def a_snapshot_of_the_leader(log: FileReplicatedLog) -> None:
    log.append(some_batches(1, 1, size=900))
    log.flush()
    log.install_snapshot(store_whole_snapshot(log, 50, 1))


def a_full_segment(log: FileReplicatedLog) -> None:
    log.append(some_batches(*[1] * 12, size=900))
    log.flush()
    log.append([a_batch(12, size=2_000)])
    log.flush()


@pytest.mark.parametrize("before", [a_new_log, a_truncation, a_snapshot_of_the_leader, a_full_segment])
def test_the_first_flush_after_anything_is_as_safe_as_all_others(
    before: Callable[[FileReplicatedLog], None], tmp_path: Path
) -> None:
    log = opened(tmp_path)
    before(log)
    end_offset = log.end_offset
    last = max(path for path in tmp_path.glob("*.log"))
    position = last.stat().st_size
    log.append(some_batches(1, 1, 1, 1, base_offset=end_offset, size=1_000))
    overwrite(last, position, bytes(PAGE - position % PAGE))

    assert opened(tmp_path).end_offset == end_offset


def test_the_segments_that_follow_torn_bytes_go_too(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([a_batch(0, size=900)])
    log.flush()
    position = log.size_bytes
    for offset in range(1, 40):
        log.append([a_batch(offset, 1 + offset // 10, size=900)])
    assert len(list(tmp_path.glob("*.log"))) > 2
    overwrite(segment(tmp_path), position, bytes(PAGE - position % PAGE))
    log = opened(tmp_path)

    assert (log.end_offset, [start.epoch for start in log.epoch_starts()]) == (1, [1])
    assert [path.name for path in tmp_path.glob("*.log")] == [names.segment_name(0)]


@given(
    flushed=st.lists(st.integers(1, 3), max_size=4),
    pending=st.integers(0, 12),
    fates=st.lists(st.sampled_from(["there", "zeros", "garbage"]), min_size=1, max_size=20),
    cut=st.floats(0, 1),
    size=st.sampled_from([20, 700, 1_500]),
)
def test_whatever_a_disk_leaves_of_an_unfinished_flush_all_before_is_there_and_it_opens(
    flushed: list[int], pending: int, fates: list[str], cut: float, size: int
) -> None:
    """Each sector of what was not synced is there, or not, or anything; and files are as long as they like."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        log = opened(directory)
        offset = itertools.count()
        for count in flushed:
            log.append([a_batch(next(offset), 1, size=size) for _ in range(count)])
            log.flush()
        durable = {path: path.stat().st_size for path in directory.glob("*.log")}
        acknowledged = log.flushed_offset
        for _ in range(pending):
            log.append([a_batch(next(offset), 2, size=size)])
        written = sorted(directory.glob("*.log"))
        whole = [bytes(batch.data) for batch in log.scan()]
        sectors = itertools.cycle(fates)
        for path in written:
            for position in range(durable.get(path, 0), path.stat().st_size, 512 - durable.get(path, 0) % 512):
                length = min(512, path.stat().st_size - position)
                match next(sectors):
                    case "zeros":
                        overwrite(path, position, bytes(length))
                    case "garbage":
                        overwrite(path, position, os.urandom(length))
        last = written[-1]
        least = durable.get(last, 0)
        os.truncate(last, least + int((last.stat().st_size - least) * cut))

        again = opened(directory)
        found = [bytes(batch.data) for batch in again.scan()]
        assert again.end_offset >= acknowledged
        # A batch whose offset or epoch is torn and whose rest is there is whole for its checksum: garbage may do that.
        assert found[:acknowledged] == whole[:acknowledged]
        if "garbage" not in fates:
            assert found == whole[: len(found)]
        again.close()
        opened(directory).close()
