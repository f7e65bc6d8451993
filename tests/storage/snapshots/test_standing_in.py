from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log import chain
from kraftlib.storage.log.chain import SegmentChain, restart_at
from kraftlib.storage.log.segment import Segment
from kraftlib.types import OffsetAndEpoch
from tests.storage.builders import some_batches
from tests.storage.test_file_log import SEGMENT, SMALL, fill, names_in, store_snapshot


def test_deleted_segments_and_snapshots_are_gone_after_the_next_flush(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.flush()
    store_snapshot(log, 2, 1)
    log.delete_before(store_snapshot(log, 7, 1))

    assert log.start_offset == 7
    assert log.epoch_starts()[0].start_offset == 7
    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (0, 3, 6, 9)]
    log.flush()
    assert names_in(tmp_path, "*.log") == [SEGMENT % n for n in (6, 9)]
    assert names_in(tmp_path, "*.index") == [f"{6:020d}.index"]
    assert names_in(tmp_path, "*.checkpoint") == [f"{7:020d}-0000000001.checkpoint"]
    with pytest.raises(StorageError, match="below the start of the log, 7"):
        log.read(6, 1)
    log.close()
    assert FileReplicatedLog.open(tmp_path).start_offset == 7


def test_an_installed_snapshot_leaves_one_empty_segment(tmp_path: Path) -> None:
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.install_snapshot(store_snapshot(log, 500, 3))

    assert names_in(tmp_path) == [
        f"{500:020d}-0000000003.checkpoint",
        SEGMENT % 500,
        "kraftlib-sync.json",
        "leader-epoch-checkpoint",
    ]
    assert (tmp_path / (SEGMENT % 500)).stat().st_size == 0


def test_what_was_still_to_be_removed_goes_when_a_snapshot_is_installed(tmp_path: Path) -> None:
    """No flush comes in between, and the next start would count the file among the snapshots."""
    log = FileReplicatedLog.open(tmp_path)
    fill(log, 1, 1, 1, 1, 1)
    log.flush()
    for offset in (2, 4, 20):
        store_snapshot(log, offset, 1)
    log.delete_before(OffsetAndEpoch(offset=4, epoch=1))
    log.install_snapshot(OffsetAndEpoch(offset=20, epoch=1))

    assert names_in(tmp_path, "*.checkpoint") == [f"{20:020d}-{1:010d}.checkpoint"]


def test_whoever_reads_while_a_snapshot_is_installed_is_sent_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files go on the disk thread, which takes its time, while listeners are fed on the loop."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SMALL, tail_bytes=0)
    for batch in some_batches(*[1] * 12, size=200):
        log.append([batch])
    log.flush()
    store_snapshot(log, 3, 1)
    newer = store_snapshot(log, 500, 3)
    seen: list[str] = []

    def look() -> None:
        with pytest.raises(StorageError, match="below the start of the log, 500: read the snapshot"):
            log.read(4, 1)
        assert log.snapshots() == (newer,)
        assert (log.start_offset, log.end_offset, log.epoch_starts()) == (500, 500, ())
        seen.append("looked")

    def paused(*args: Any, **kwargs: Any) -> Segment:
        look()
        segment = restart_at(*args, **kwargs)
        look()
        return segment

    monkeypatch.setattr(chain, "restart_at", paused)
    log.install_snapshot(newer)

    assert seen == ["looked"] * 2
    log.close()


@pytest.mark.parametrize("error", [StorageError("cannot open it"), CorruptBatchError("its epoch is unknown")])
def test_a_read_that_an_install_overtakes_has_not_come_upon_damage(
    error: StorageError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileReplicatedLog.open(tmp_path, tail_bytes=0)
    fill(log, 1, 1)
    snapshot_id = store_snapshot(log, 500, 3)

    def overtaken(*_: object) -> Sequence[Batch]:
        log.install_snapshot(snapshot_id)
        raise error

    monkeypatch.setattr(SegmentChain, "read", overtaken)
    with pytest.raises(StorageError, match="below the start of the log, 500") as caught:
        log.read(0, 1)
    assert not isinstance(caught.value, CorruptBatchError)
    log.close()
