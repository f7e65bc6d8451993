"""A backup is whole or not there; what is restored from it is a new cluster with everything that was in it."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError
from kraftlib.offline.backup import MANIFEST, opened_backup, read_manifest, verify_backup, write_backup
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from kraftlib.types import OffsetAndEpoch
from tests.storage.replicas import CLUSTER, controllers, make_replica, partition_of


def back_up(source: Path, target: Path, **more: int) -> OffsetAndEpoch:
    return write_backup(partition_of(source), target, cluster_id=CLUSTER, created_ms=99, **more).end


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_a_backup_says_what_it_is_and_proves_it(tmp_path: Path, name: str) -> None:
    source = make_replica(tmp_path / "replica", segment_bytes=300, voters=controllers(1, 2))
    end = back_up(source, tmp_path / name)
    with opened_backup(tmp_path / name) as opened:
        manifest = verify_backup(opened)
    assert (manifest.end, manifest.cluster_id, manifest.kraft_version, manifest.created_ms) == (end, CLUSTER, 1, 99)
    kept = [file.name for file in manifest.files]
    assert sum(names.parse_checkpoint_name(each) is not None for each in kept) == 1
    segments = [names.parse_segment_name(each) for each in kept if each.endswith(".log")]
    assert 0 not in segments, "what the checkpoint has is not copied"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["replica", name]), "nothing else is left"


@pytest.mark.parametrize("end_offset", [11, 14, 15, 20])
def test_it_ends_at_the_last_batch_that_is_committed(tmp_path: Path, end_offset: int) -> None:
    source = make_replica(tmp_path / "replica", segment_bytes=300)
    end = back_up(source, tmp_path / "backup", end_offset=end_offset)
    assert end.offset in (end_offset, end_offset - 1)
    with pytest.raises(ConfigError, match="lies before the newest checkpoint"):
        back_up(source, tmp_path / "other", end_offset=3)
    assert not (tmp_path / "other").exists()


def test_a_place_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    source = make_replica(tmp_path / "replica")
    (tmp_path / "backup").write_bytes(b"precious")
    with pytest.raises(ConfigError, match="exists"):
        back_up(source, tmp_path / "backup")
    assert (tmp_path / "backup").read_bytes() == b"precious"


def test_a_damaged_source_makes_no_backup(tmp_path: Path) -> None:
    source = make_replica(tmp_path / "replica")
    segment = partition_of(source) / names.segment_name(0)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptBatchError):
        back_up(source, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["replica"]


KILLED = """
import os, signal, sys
from pathlib import Path
from kraftlib.offline.backup import write_backup

CALLS = ("open", "os.", "fcntl.", "shutil.", "tempfile.", "progress")
partition, places, name = sys.argv[1:]
status = None
while status != 0:
    place = Path(places, f"{len(os.listdir(places)):03}")
    place.mkdir()
    pid = os.fork()
    if pid == 0:
        left = int(place.name)
        def look(event, arguments):
            global left
            if event.startswith(CALLS) and event != "os.kill":
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
        sys.addaudithook(look)
        write_backup(
            Path(partition), place / name, cluster_id="c", created_ms=9, progress=lambda size: look("progress", ())
        )
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), status
"""
"""Makes one backup after the other, in places `000`, `001`, ...; each is killed one call of the system later."""


@pytest.mark.parametrize("name", ["monday", "monday.tar"])
def test_whoever_is_killed_leaves_no_half_a_backup_and_nothing_that_the_next_one_does_not_remove(
    tmp_path: Path, name: str
) -> None:
    """kill -9 before each thing that is asked of the system, the removal of what is unfinished included."""
    source = make_replica(tmp_path / "replica")
    (tmp_path / "places").mkdir()
    command = [sys.executable, "-c", KILLED, str(partition_of(source)), str(tmp_path / "places"), name]
    subprocess.run(command, check=True, timeout=120)
    *killed, done = sorted((tmp_path / "places").iterdir())
    assert [path.name for path in done.iterdir()] == [name]
    unfinished = 0
    for place in killed:
        if (place / name).exists():
            with opened_backup(place / name) as opened:
                verify_backup(opened)
        names_left = {path.name for path in place.iterdir()} - {name}
        assert all(left.startswith(".kraftlib-backup-") for left in names_left)
        assert not list(place.glob(".*/**/*.tar"))
        unfinished += bool(names_left)
        had = (place / name).exists()
        back_up(source, place / "tuesday.tar")
        assert {path.name for path in place.iterdir()} == ({name, "tuesday.tar"} if had else {"tuesday.tar"})
    assert unfinished > 20


def test_a_backup_with_any_damaged_byte_is_refused(tmp_path: Path) -> None:
    back_up(make_replica(tmp_path / "replica"), tmp_path / "backup")
    for path in (tmp_path / "backup").iterdir():
        if path.name == MANIFEST:
            continue
        path.chmod(0o600)
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(StorageError):
            verify_backup(tmp_path / "backup")
        path.write_bytes(whole)
    verify_backup(tmp_path / "backup")


def test_manifests_are_not_believed(tmp_path: Path) -> None:
    back_up(make_replica(tmp_path / "replica"), tmp_path / "backup")
    path = tmp_path / "backup" / MANIFEST
    whole = json.loads(path.read_text())
    for change, error in (
        ({"version": 2}, ConfigError),
        ({"files": [{"name": "../../etc/passwd", "size": 1, "sha256": ""}]}, StorageError),
        ({"files": 7}, StorageError),
        ({"end_offset": 3}, StorageError),
    ):
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(error):
            verify_backup(tmp_path / "backup")
    path.write_text("{")
    with pytest.raises(StorageError, match="is damaged"):
        read_manifest(tmp_path / "backup")
    path.unlink()
    with pytest.raises(StorageError, match="is no backup"):
        read_manifest(tmp_path / "backup")


def test_an_archive_with_a_foreign_member_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"x")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(tmp_path / "evil", arcname="../evil")
    with pytest.raises(StorageError, match="which no backup has"), opened_backup(tmp_path / "evil.tar"):
        pass
    with pytest.raises(ConfigError, match="is no backup"), opened_backup(tmp_path / "evil"):
        pass


def test_a_tar_that_is_cut_short_is_named_wherever_it_ends(tmp_path: Path) -> None:
    tar = tmp_path / "backup.tar"
    back_up(make_replica(tmp_path / "replica"), tar)
    whole = tar.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for size in {*range(2_048, end, 101), end - 1}:
        tar.write_bytes(whole[:size])
        with pytest.raises(StorageError, match=r"backup\.tar is damaged, or was cut short: "), opened_backup(tar):
            pass


def test_a_log_without_any_segment_is_backed_up(tmp_path: Path) -> None:
    format_directory(tmp_path / "replica", node_id=1, cluster_id=CLUSTER)
    assert back_up(tmp_path / "replica", tmp_path / "backup") == OffsetAndEpoch(offset=0, epoch=0)
