"""A directory that was copied: the note of what is durable speaks of other files, and holds all the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.offline.verify import verify_directory
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.segment import Segment
from kraftlib.testing.log_contract import fill, read_all
from tests.storage.images.damage import faults
from tests.storage.images.history import config_of, history
from tests.storage.replicas import make_replica, partition_of

SEGMENT_BYTES = 400


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_hurt_copy_never_opens_shorter_than_what_was_durable(closed: bool, exact: bool, tmp_path: Path) -> None:
    """What is missing is a hole: this replica elects nobody who may lack it, and fetches it from the others."""
    past = history(tmp_path / "history", closed=closed, compacted=False, exact=exact)
    shorter = hurt = 0
    for fault in faults(past, 120, 3):
        if fault.kind != "segment":
            continue
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        fault.image.lay_out(tmp_path / "copy")
        opened = open_directory(config_of(tmp_path / "copy"))
        hurt += bool(opened.log.holes())
        shorter += opened.log.end_offset < past.end_offset
        opened.close()
    assert hurt > 15
    assert shorter == 0


def test_a_whole_copy_opens_as_it_was_and_is_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_replica(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "copy")
    log = FileReplicatedLog.open(partition_of(tmp_path / "copy"))

    assert log.end_offset == 21
    assert "is not the file of which kraftlib-sync.json tells, but a copy, or changed since" in caplog.text
    log.close()
    caplog.clear()
    FileReplicatedLog.open(partition_of(tmp_path / "copy")).close()
    assert caplog.text == ""


def test_a_copy_that_lacks_its_last_batches_is_damaged(tmp_path: Path) -> None:
    make_replica(tmp_path / "whole")
    sizes = [batch.size for batch in FileReplicatedLog.open(partition_of(tmp_path / "whole")).scan()]
    shutil.copytree(tmp_path / "whole", tmp_path / "copy")
    segment = next(partition_of(tmp_path / "copy").glob("*.log"))
    os.truncate(segment, segment.stat().st_size - sizes[-1])

    with pytest.raises(CorruptBatchError, match="ends at 19 and was durable up to 21"):
        FileReplicatedLog.open(partition_of(tmp_path / "copy"))


def test_a_file_that_was_put_back_from_an_older_copy_is_damaged(tmp_path: Path) -> None:
    """In its place, so that it is the same file: only its time says that somebody wrote there after the clean end."""
    directory = make_replica(tmp_path)
    segment = next(partition_of(directory).glob("*.log"))
    data = segment.read_bytes()
    segment.write_bytes(data[: data.index(b"value 15") - 80])
    os.utime(segment, ns=(1, 1))

    with pytest.raises(CorruptBatchError, match="durable up to 21"):
        FileReplicatedLog.open(partition_of(directory))


def _with_other_epochs(segment: Path) -> Iterator[bytes]:
    """Yield what a segment has if the epoch of one of its batches is another one."""
    data = segment.read_bytes()
    batches, position = Segment(segment.parent, int(segment.stem)), 0
    batches.size = len(data)
    for batch in batches.batches():
        for epoch in {1, 2, 3, 9} - {batch.epoch}:
            yield data[: position + 12] + epoch.to_bytes(4, "big") + data[position + 16 :]
        position += batch.size


def test_an_epoch_that_changed_in_a_full_segment_of_a_copy_is_found_and_repaired(tmp_path: Path) -> None:
    """No checksum of a batch covers its epoch, and where epochs still ascend the batches alone do not show it."""
    format_directory(tmp_path / "whole", node_id=1, cluster_id="cluster")
    log = FileReplicatedLog.open(partition_of(tmp_path / "whole"), segment_bytes=SEGMENT_BYTES)
    fill(log, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3)
    batches, starts = read_all(log), log.epoch_starts()
    log.close()
    *full, _ = sorted(partition_of(tmp_path / "whole").glob("*.log"))
    assert len(full) == 2

    for segment in full:
        for data in _with_other_epochs(segment):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(tmp_path / "whole", tmp_path / "copy")
            (partition_of(tmp_path / "copy") / segment.name).write_bytes(data)
            damaged = [finding.path for finding in verify_directory(tmp_path / "copy") if finding.verdict == "damaged"]
            assert damaged == [partition_of(tmp_path / "copy") / segment.name]

            copy = FileReplicatedLog.open(
                partition_of(tmp_path / "copy"), segment_bytes=SEGMENT_BYTES, keep_damage=True
            )
            while holes := copy.holes():
                copy.write_repair([b for b in batches if holes[0].start_offset <= b.base_offset < holes[0].end_offset])
            assert read_all(copy) == batches
            assert copy.epoch_starts() == starts
            copy.close()
