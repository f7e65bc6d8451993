"""Every file is read; damage is named by file and byte, and what only looks odd is not called damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kraftlib.errors import NotFormattedError
from kraftlib.offline.verify import total_bytes, verify_directory
from kraftlib.offline.verify_log import Finding
from kraftlib.records.increment import IncrementWriter
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.storage.lock import DirectoryLock
from kraftlib.types import Endpoint, OffsetAndEpoch
from tests.storage.builders import a_batch
from tests.storage.replicas import make_replica, partition_of

KAFKA = Path(__file__).parent.parent / "data"


def findings(directory: Path) -> dict[str, Finding]:
    return {finding.path.name: finding for finding in verify_directory(directory)}


def damaged(directory: Path) -> dict[str, Finding]:
    return {name: finding for name, finding in findings(directory).items() if finding.verdict == "damaged"}


def test_a_whole_directory_is_whole_and_all_of_it_is_read(tmp_path: Path) -> None:
    make_replica(tmp_path)
    read: list[int] = []
    found = list(verify_directory(tmp_path, progress=read.append))

    assert {finding.verdict for finding in found} == {"ok"}
    assert len(found) >= 10
    assert sum(read) == total_bytes(tmp_path)


@pytest.mark.parametrize("name", ["kafka-4.3.1/n1", "kafka-4.3.1/n4", "kafka-3.9.2/n1"])
def test_kafkas_own_directories_are_whole(name: str) -> None:
    found = findings(KAFKA / name)
    assert {finding.verdict for finding in found.values()} <= {"ok", "note"}
    assert all(finding.path.suffix == ".txt" for finding in found.values() if finding.verdict == "note")


def test_a_flipped_byte_of_any_file_is_found_where_it_is(tmp_path: Path) -> None:
    make_replica(tmp_path / "whole")
    for path in sorted((tmp_path / "whole").rglob("*")):
        size = path.stat().st_size if path.is_file() else 0
        # What has no checksum can only be judged by its form.
        if not size or path.name in (names.META_PROPERTIES, names.SYNC_POINT, names.QUORUM_STATE_MIRROR, names.LOCK):
            continue
        if path.suffix == ".timeindex":
            continue
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        hurt = copy / path.relative_to(tmp_path / "whole")
        hurt.chmod(0o600)
        data = bytearray(hurt.read_bytes())
        data[size // 2] ^= 0x80
        hurt.write_bytes(data)
        found = damaged(copy)
        assert set(found) == {path.name}, path.name
        finding = found[path.name]
        assert finding.position is None or 0 <= finding.position <= size // 2
        shutil.rmtree(copy)


def test_a_torn_tail_is_no_damage_and_bad_bytes_before_a_whole_batch_are(tmp_path: Path) -> None:
    directory = make_replica(tmp_path)
    path = partition_of(directory) / names.segment_name(0)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(a_batch(20, 3, size=300).data[:-7]))
    finding = findings(directory)[path.name]
    assert finding.verdict == "note"
    assert "a torn tail" in finding.detail
    lock = DirectoryLock.acquire(directory)
    assert "being written" in findings(directory)[path.name].detail
    lock.release()
    path.write_bytes(whole[:200] + b"\x00" * 20 + whole[220:])
    assert damaged(directory)[path.name].position is not None


FIFO_AND_MORE = {
    "a FIFO": lambda path: os.mkfifo(path),
    "a directory": lambda path: path.mkdir(),
    "a symbolic link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("what", FIFO_AND_MORE)
def test_what_is_no_file_hangs_nobody_and_is_named(what: str, tmp_path: Path) -> None:
    directory = make_replica(tmp_path / "whole")
    for path in sorted(directory.rglob("*")):
        if path.name in (names.PARTITION_DIRECTORY, names.LOCK):
            continue
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        hurt = copy / path.relative_to(directory)
        hurt.unlink()
        FIFO_AND_MORE[what](hurt)
        finding = damaged(copy)[hurt.name]
        assert f"is {what}, and a regular file is expected there: move it away" in finding.detail
        shutil.rmtree(copy)


def test_a_side_file_that_is_nested_too_deep_is_damaged(tmp_path: Path) -> None:
    path = partition_of(make_replica(tmp_path)) / names.HOLDS
    path.write_bytes(b"[" * 100_000 + b"]" * 100_000)

    assert "nested too deep" in damaged(tmp_path)[path.name].detail


def test_a_copy_is_whole_and_said_to_be_one(tmp_path: Path) -> None:
    make_replica(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "copy")
    found = findings(tmp_path / "copy")

    assert {finding.verdict for finding in found.values()} == {"ok"}
    assert found[names.SYNC_POINT].detail == "durable up to offset 21; of other files, of which these are copies"
    assert findings(tmp_path / "whole")[names.SYNC_POINT].detail == "durable up to offset 21"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    directory = make_replica(tmp_path, segment_bytes=200)
    partition = partition_of(directory)
    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 4
    segments[2].unlink()
    assert damaged(directory)[segments[1].name].position == segments[1].stat().st_size
    for path in [*segments[:2], *partition.glob("*.checkpoint")]:
        path.unlink(missing_ok=True)
    assert "no checkpoint has what stood before" in damaged(directory)[partition.name].detail
    with pytest.raises(NotFormattedError):
        list(verify_directory(partition))


def test_leftovers_and_strangers_are_named(tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path))
    (partition / "quorum-state.tmp").write_bytes(b"half")
    (partition / "notes.txt").write_bytes(b"mine")
    (partition / names.download_name(OffsetAndEpoch(offset=9, epoch=1))).write_bytes(b"part")
    found = findings(tmp_path)
    assert {name for name, finding in found.items() if finding.verdict == "note"} == {
        "quorum-state.tmp",
        "notes.txt",
        names.download_name(OffsetAndEpoch(offset=9, epoch=1)),
    }


def test_increments_are_read_too(tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path))
    path = partition / names.increment_name(OffsetAndEpoch(offset=16, epoch=3))
    out = bytearray()
    base = OffsetAndEpoch(offset=10, epoch=1)
    writer = IncrementWriter(out.extend, base=base, epoch=3, last_contained_log_timestamp=0)
    writer.append([(b"a", b"b")])
    writer.freeze()
    path.write_bytes(out)
    assert findings(tmp_path)[path.name].detail == "1 changes since 10@1"
    path.write_bytes(out[:-1])
    assert path.name in damaged(tmp_path)


def test_an_index_that_points_nowhere_is_named(tmp_path: Path) -> None:
    directory = make_replica(tmp_path, records=400)
    index = partition_of(directory) / names.index_name(0)
    data = index.read_bytes()
    assert len(data) >= 8
    index.write_bytes(data[:7])
    assert damaged(directory)[index.name].position == 0
    index.write_bytes(data[:4] + (5).to_bytes(4, "big") + data[8:])
    assert "points at byte 5" in damaged(directory)[index.name].detail


def test_a_directory_that_has_never_run_is_whole(tmp_path: Path) -> None:
    format_directory(tmp_path / "replica", node_id=1, cluster_id="c", standalone=Endpoint("127.0.0.1", 9001))
    assert {finding.verdict for finding in verify_directory(tmp_path / "replica")} == {"ok"}


def test_a_log_that_has_lost_all_its_segments_is_damaged(tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path))
    for path in partition.glob("0*"):
        if names.parse_checkpoint_name(path.name) is None:
            path.unlink()
    finding = damaged(tmp_path)[names.PARTITION_DIRECTORY]
    assert finding.detail == "no segment is left, and a replica has run there"


def test_what_a_running_replica_removes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """Retention deletes checkpoints while they are read one after the other."""
    partition = partition_of(make_replica(tmp_path))
    lock = DirectoryLock.acquire(tmp_path)
    found = verify_directory(tmp_path)
    next(found)
    (gone,) = partition.glob("*.checkpoint")
    gone.unlink()
    try:
        told = {finding.path: (finding.verdict, finding.detail) for finding in found}
    finally:
        lock.release()
    assert told[gone] == ("note", "the replica has removed it meanwhile")
