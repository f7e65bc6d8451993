from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import StorageError
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.directory import format_directory, open_directory


def formatted(path: Path) -> Path:
    format_directory(path, node_id=1, cluster_id="c")
    return path


def test_another_topic_is_refused(tmp_path: Path) -> None:
    path = formatted(tmp_path)
    (path / "__cluster_metadata-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABg")

    with pytest.raises(StorageError, match=r"partition\.metadata is of another topic.*AAAABg"):
        open_directory(RaftConfig(node_id=1, directory=path))
    claim_directory(path).lock.release()


def test_a_directory_without_an_id_gets_one_and_keeps_it(tmp_path: Path) -> None:
    path = formatted(tmp_path)
    (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    first, second = claim_directory(path), None
    first.lock.release()
    second = claim_directory(path)
    second.lock.release()

    assert first.directory_id == second.directory_id
