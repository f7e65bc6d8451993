"""A restored replica has everything that the backup has, and is of another cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, NotFormattedError, StorageError
from kraftlib.offline import restoring
from kraftlib.offline.backup import write_backup
from kraftlib.offline.lost_quorum import read_remains
from kraftlib.offline.restoring import restore_backup
from kraftlib.offline.verify import verify_directory
from kraftlib.storage import names
from kraftlib.storage.directory import open_directory
from kraftlib.types import ReplicaKey
from tests.storage.replicas import CLUSTER, controllers, make_replica, partition_of


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    source = make_replica(tmp_path / "replica", voters=controllers(1, 2, 3))
    write_backup(partition_of(source), tmp_path / "backup.tar", cluster_id=CLUSTER, created_ms=99)
    return tmp_path / "backup.tar"


def test_every_voter_of_the_new_cluster_begins_with_the_same_log(backup: Path, tmp_path: Path) -> None:
    voters = controllers(7, 8)
    logs = set()
    for node_id in (7, 8):
        directory = tmp_path / str(node_id)
        manifest, end = restore_backup(backup, directory, node_id=node_id, cluster_id="new", controllers=voters)
        assert {finding.verdict for finding in verify_directory(directory)} == {"ok"}
        remains = read_remains(directory)
        assert (remains.cluster_id, remains.end, remains.key) == (
            "new",
            end,
            ReplicaKey(node_id, voters[node_id - 7].directory_id),
        )
        assert remains.voters == tuple(ReplicaKey(each.id, each.directory_id) for each in voters)
        assert (end.offset, end.epoch) == (manifest.end.offset + 3, manifest.end.epoch + 1)
        logs.add((partition_of(directory) / names.segment_name(0)).read_bytes())
    assert len(logs) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cluster_id": CLUSTER}, "that of the backup"),
        ({"node_id": 9}, "not among the voters"),
        ({"controllers": (), "static_voters": (7,)}, "stand in its log"),
        ({"controllers": (), "static_voters": (8,)}, "not among the voters"),
    ],
)
def test_what_cannot_be_restored_is_said_before_anything_is_made(
    backup: Path, tmp_path: Path, more: dict[str, object], message: str
) -> None:
    settings: dict[str, object] = {"node_id": 7, "cluster_id": "new", "controllers": controllers(7), **more}
    with pytest.raises(ConfigError, match=message):
        restore_backup(backup, tmp_path / "new", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_directory_that_is_used_stays_as_it_is(backup: Path, tmp_path: Path) -> None:
    make_replica(tmp_path / "used")
    with pytest.raises(StorageError, match="is formatted already"):
        restore_backup(backup, tmp_path / "used", node_id=7, cluster_id="new", controllers=controllers(7))


@pytest.mark.parametrize("step", ["copy_into", "begin_new_quorum"])
def test_a_restore_that_is_cut_off_leaves_nothing_that_starts(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Else a replica would serve the part of the backup that had come."""
    done = getattr(restoring, step)

    def cut_off(*arguments: Any, **settings: Any) -> None:
        done(*arguments, **settings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, step, cut_off)
        with pytest.raises(KeyboardInterrupt):
            restore_backup(backup, tmp_path / "new", node_id=7, cluster_id="new", controllers=controllers(7))

    with pytest.raises(NotFormattedError):
        open_directory(RaftConfig(node_id=7, directory=tmp_path / "new"))
    with pytest.raises(StorageError, match="was cut off here, remove it"):
        restore_backup(backup, tmp_path / "new", node_id=7, cluster_id="new", controllers=controllers(7))
