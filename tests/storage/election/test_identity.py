from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, NotFormattedError, StorageError
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.storage.election.identity import find_identity, mark_as_run, recall_identity
from kraftlib.storage.meta_properties import MetaProperties, read_meta_properties
from kraftlib.types import ElectionState, new_uuid

META = MetaProperties(node_id=3, cluster_id="of tests \u00e9", directory_id=new_uuid())


def has_run(path: Path) -> tuple[Path, MetaProperties]:
    """Format a directory and let a replica vote there; return `meta.properties` and what it says."""
    formatted = format_directory(path, node_id=1, cluster_id="images", static_voters=[1, 2, 3])
    opened = open_directory(RaftConfig(node_id=1, directory=path))
    opened.elections.write(ElectionState(epoch=1), kraft_version=0)
    opened.close()
    return path / names.META_PROPERTIES, formatted.meta


def opened_once(path: Path, **config: str) -> None:
    open_directory(RaftConfig(node_id=1, directory=path, **config)).close()  # type: ignore[arg-type]


def test_what_is_noted_is_recalled(tmp_path: Path) -> None:
    for meta in (META, MetaProperties(node_id=3, cluster_id="x", directory_id=None)):
        mark_as_run(tmp_path, meta, file_mode=0o600)
        assert recall_identity(tmp_path) == meta
    mark_as_run(tmp_path, None, file_mode=0o600)
    assert recall_identity(tmp_path) is not None, "what is known is not forgotten"


def test_a_note_of_before_says_only_that_a_replica_has_run(tmp_path: Path) -> None:
    (tmp_path / names.HAS_RUN).write_bytes(b'{"layout": 1}')
    assert recall_identity(tmp_path) is None
    mark_as_run(tmp_path, META, file_mode=0o600)
    assert recall_identity(tmp_path) == META


def test_the_note_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    newer = json.dumps({"layout": 2, "node_id": 9}).encode()
    (tmp_path / names.HAS_RUN).write_bytes(newer)
    mark_as_run(tmp_path, META, file_mode=0o600)
    assert (tmp_path / names.HAS_RUN).read_bytes() == newer
    assert recall_identity(tmp_path) is None


def test_a_note_with_any_bit_changed_is_not_believed(tmp_path: Path) -> None:
    mark_as_run(tmp_path, META, file_mode=0o600)
    path = tmp_path / names.HAS_RUN
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        assert recall_identity(tmp_path) is None, at


@pytest.mark.parametrize("damage", [b"", b"\0" * 122, b"rubbish", b"node.id=1\nversion=1\n", None])
def test_a_damaged_or_lost_meta_properties_is_written_anew(damage: bytes | None, tmp_path: Path) -> None:
    path, meta = has_run(tmp_path)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    opened_once(tmp_path)
    assert read_meta_properties(tmp_path) == meta
    opened_once(tmp_path)


def test_the_configuration_is_still_checked(tmp_path: Path) -> None:
    path, _ = has_run(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="images"):
        opened_once(tmp_path, cluster_id="another")
    with pytest.raises(ConfigError, match="node_id=2"):
        open_directory(RaftConfig(node_id=2, directory=tmp_path))


def test_no_single_flip_of_meta_properties_makes_another_replica_of_it(tmp_path: Path) -> None:
    """Its directory id would be one that no voter set names."""
    path, meta = has_run(tmp_path)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 7]) + data[at + 1 :])
        try:
            found, _ = find_identity(tmp_path)
        except StorageError:
            continue
        assert found == meta, at


def test_two_that_are_whole_and_disagree_are_both_named(tmp_path: Path) -> None:
    path, meta = has_run(tmp_path)
    text = path.read_text()
    path.write_text(text.replace("cluster.id=images", "cluster.id=another"))
    with pytest.raises(StorageError, match=r"says .*another.*images.*remove __cluster_metadata-0/kraftlib.json"):
        opened_once(tmp_path)
    (tmp_path / names.PARTITION_DIRECTORY / names.HAS_RUN).unlink()
    opened_once(tmp_path)
    assert meta.cluster_id == "images"


def test_without_a_mirror_damage_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path, _ = has_run(tmp_path)
    (tmp_path / names.PARTITION_DIRECTORY / names.HAS_RUN).unlink()
    path.write_bytes(b"rubbish")
    with pytest.raises(StorageError, match="damaged, and nothing says what stood there"):
        opened_once(tmp_path)
    path.unlink()
    with pytest.raises(NotFormattedError):
        opened_once(tmp_path)


def test_one_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path, _ = has_run(tmp_path)
    newer = path.read_text().replace("version=1", "version=2")
    path.write_text(newer)
    with pytest.raises(StorageError, match="version is 2, only 1 is known"):
        opened_once(tmp_path)
    assert path.read_text() == newer


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\0" * 43,
        b"version: 0",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    ],
)
def test_a_damaged_partition_metadata_is_written_anew_since_it_can_only_say_one_thing(
    damage: bytes, tmp_path: Path
) -> None:
    has_run(tmp_path)
    path = tmp_path / names.PARTITION_DIRECTORY / names.PARTITION_METADATA
    whole = path.read_bytes()
    path.write_bytes(damage)
    opened_once(tmp_path)
    assert path.read_bytes() == whole
