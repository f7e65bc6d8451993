from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from tests.storage.test_file_log import fill, names_in, store_snapshot


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("late", [OffsetAndEpoch(offset=2, epoch=1), OffsetAndEpoch(offset=6, epoch=1)])
@pytest.mark.parametrize("installed", [False, True])
def test_a_snapshot_that_is_frozen_too_late_is_dropped(
    kind: str, late: OffsetAndEpoch, installed: bool, tmp_path: Path
) -> None:
    """The log begins behind it by now, or at another one; nobody may be told that it begins at this."""
    log: ReplicatedLog = FileReplicatedLog.open(tmp_path) if kind == "file" else MemoryReplicatedLog()
    fill(log, *[1] * 5, *[2] * 3)
    sink = log.create_snapshot(late)
    sink.write(b"late")
    newer = store_snapshot(log, 6, 2)
    if installed:
        log.install_snapshot(newer)
    else:
        log.delete_before(newer)
    log.flush()
    sink.freeze()

    assert list(log.snapshots()) == [newer]
    log.flush()
    with pytest.raises(StorageError):
        log.open_snapshot(late)
    assert names_in(tmp_path, "*.checkpoint*") == [f"{6:020d}-0000000002.checkpoint"] * (kind == "file")
    assert store_snapshot(log, 6, 2) == newer, "written once more, it is the same"
    assert list(log.snapshots()) == [newer]
    assert log.open_snapshot(newer).size > 0
    log.close()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_the_bootstrap_checkpoint_is_no_late_snapshot(kind: str, tmp_path: Path) -> None:
    log: ReplicatedLog = FileReplicatedLog.open(tmp_path) if kind == "file" else MemoryReplicatedLog()
    fill(log, 1, 1)
    store_snapshot(log, 1, 1)

    assert store_snapshot(log, 0, 0) == BOOTSTRAP_SNAPSHOT
    assert [kept.offset for kept in log.snapshots()] == [0, 1]
    log.close()
