"""The log is judged as a start would judge it: what one refuses or cuts off, the other calls by the same name."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.offline.verify import verify_directory
from kraftlib.storage import names
from kraftlib.storage.file_log import FileReplicatedLog
from tests.offline.test_verify import damaged
from tests.storage.images.damage import faults
from tests.storage.images.history import history
from tests.storage.replicas import make_replica, partition_of


def test_what_was_durable_and_is_cut_off_is_no_torn_tail(tmp_path: Path) -> None:
    """The next start refuses that, too."""
    directory = make_replica(tmp_path)
    path = partition_of(directory) / names.segment_name(0)
    os.truncate(path, path.stat().st_size - 7)
    finding = damaged(directory)[path.name]

    assert "the log ends at 19 and was durable up to 21" in finding.detail
    with pytest.raises(CorruptBatchError, match="was durable up to 21"):
        FileReplicatedLog.open(partition_of(directory))


def test_whole_batches_that_are_cut_off_are_missed_too(tmp_path: Path) -> None:
    directory = make_replica(tmp_path)
    path = partition_of(directory) / names.segment_name(0)
    sizes = [batch.size for batch in FileReplicatedLog.open(partition_of(directory)).scan()]
    os.truncate(path, path.stat().st_size - sizes[-1])

    assert set(damaged(directory)) == {path.name}


@pytest.mark.parametrize("exact", [False, True])
def test_it_judges_as_a_start_does(exact: bool, tmp_path: Path) -> None:
    """Whatever happened to the log: what a start refuses is damage here, and what it cuts off is a torn tail here."""
    past = history(tmp_path / "history", closed=False, compacted=False, exact=exact)
    outcomes: Counter[str] = Counter()
    for fault in faults(past, 100, 7):
        if fault.kind != "segment":
            continue
        for directory in (tmp_path / "verified", tmp_path / "opened"):
            shutil.rmtree(directory, ignore_errors=True)
            fault.image.lay_out(directory)
        verdicts = {f.verdict for f in verify_directory(tmp_path / "verified") if f.path.parent.name.startswith("__")}
        try:
            log = FileReplicatedLog.open(partition_of(tmp_path / "opened"))
        except StorageError:
            outcome = "damaged"
        else:
            outcome = "note" if log.end_offset < past.end_offset else "ok"
            log.close()
        assert outcome in verdicts, (fault.path, fault.what, fault.where)
        outcomes[outcome] += 1
    assert outcomes["damaged"] > 10


def test_a_sparse_segment_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = partition_of(make_replica(tmp_path)) / names.segment_name(0)
    os.truncate(path, 1 << 40)

    assert "no segment has more than 2147483647: cut off what stands behind its last batch" in (
        damaged(tmp_path)[path.name].detail
    )
    with pytest.raises(StorageError, match="no segment has more than 2147483647"):
        FileReplicatedLog.open(partition_of(tmp_path))
    index = path.with_suffix(".index")
    os.truncate(index, 1 << 40)
    assert "is larger than" in damaged(tmp_path)[index.name].detail
