"""Which files a path means, whose they are, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.analysis.files import absolute, find_files
from kraftlib.analysis.log_files import Kind, Labels, LogFile
from kraftlib.errors import ConfigError, StorageError
from tests.analysis.logs import values_batch, write_log
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"
CLUSTER = "KamCna3aR0Ca0-LOI6hKfg"


def names(files: list[LogFile]) -> list[str]:
    return [file.name for file in files]


def test_a_node_has_its_segments_and_checkpoints_and_nothing_else() -> None:
    files = find_files(NODE)
    assert [(file.kind, file.offset, file.epoch) for file in files] == [
        (Kind.LOG, 0, None),
        (Kind.SNAPSHOT, 0, 0),
        (Kind.SNAPSHOT, 81, 1),
        (Kind.SNAPSHOT, 272, 4),
    ]
    assert {file.labels for file in files} == {
        Labels(cluster=CLUSTER, replica="1", topic="__cluster_metadata", partition=0)
    }
    assert files[0].size == 20935
    assert files[0].is_last
    assert not files[1].is_last
    assert names(find_files(NODE, bootstrap=True))[0] == "bootstrap.checkpoint"


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (NODE / "__cluster_metadata-0", 4),
        (NODE / "__cluster_metadata-0" / "00000000000000000000.log", 1),
        (NODE.parent / "n*", 7),
        (NODE.parent / "n[14]" / "__cluster_metadata-0" / "*.checkpoint", 5),
        (DATA / "kafka-*" / "n1" / "*" / "*.log", 2),
    ],
)
def test_a_path_is_a_directory_a_file_or_a_glob(path: Path, count: int) -> None:
    assert len(find_files(path)) == count
    uri = f"file://{path}"
    assert len(find_files(uri)) == count
    assert {file.root for file in find_files(uri)} == {""}


def test_segments_know_which_one_follows(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"v"], base_offset=offset) for offset in range(3)], cuts=[1, 2])
    assert [(file.offset, file.next_offset) for file in find_files(tmp_path)] == [(0, 1), (1, 2), (2, None)]


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "does not exist"), ("empty", "holds no segment"), ("foreign.log", "is not named as a segment")],
)
def test_a_path_that_holds_nothing_of_ours_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.log").write_bytes(b"x")
    with pytest.raises(ConfigError, match=message):
        find_files(tmp_path / name)


def test_a_path_is_made_absolute_and_a_uri_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("logs") == f"{tmp_path}/logs"
    assert absolute("s3://bucket/logs") == "s3://bucket/logs"


def test_what_is_pinned_is_read_as_far_as_it_was_and_must_still_be_there(tmp_path: Path) -> None:
    first, second = write_log(tmp_path, [values_batch([b"v"], base_offset=offset) for offset in range(2)], cuts=[1])
    (file,) = find_files(tmp_path, pinned={str(first): 50})
    assert (file.path, file.size, file.is_last) == (str(first), 50, True)
    with pytest.raises(StorageError, match=r"bytes and had 999 when it was pinned: the log was truncated"):
        find_files(tmp_path, pinned={str(first): 999})
    second.unlink()
    with pytest.raises(StorageError, match=r"was pinned and is gone: the log was compacted"):
        find_files(tmp_path, pinned={str(first): 50, str(second): 50})


def test_several_paths_are_read_as_one_and_a_file_named_twice_once() -> None:
    node, other = DATA / "kafka-4.3.1" / "n1", DATA / "kafka-4.3.1" / "n4"
    both = find_files(json.dumps([str(node), str(other), str(node / "__cluster_metadata-0")]))
    assert {file.path for file in both} == {file.path for one in (node, other) for file in find_files(one)}
    with pytest.raises(ConfigError, match="does not exist"):
        find_files(json.dumps([str(node), str(node / "nowhere")]))
    with pytest.raises(ConfigError, match="is no list of paths"):
        find_files('["a", 1]')
