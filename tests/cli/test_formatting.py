"""`kraftlib format`: what it writes opens, reads as Kafka's does, and is refused where it makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig
from kraftlib.storage.directory import open_directory
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.types import new_uuid, parse_uuid, uuid_text
from tests.cli.conftest import Command

STATIC = 'node_id = 1\ndirectory = "data"\nvoters = ["1@127.0.0.1:9001", "2@127.0.0.1:9002", "3@127.0.0.1:9003"]\n'
DYNAMIC = 'node_id = 1\ndirectory = "data"\nlisten = "127.0.0.1:9001"\n'
BOOTSTRAP = f"__cluster_metadata-0/{0:020}-{0:010}.checkpoint"


def configuration(directory: Path, text: str) -> Path:
    path = directory / "replica.toml"
    path.write_text(text)
    return path


def voters(kraftlib: Command, directory: Path) -> list[tuple[int, str, int]]:
    """Return id, directory id and port of the voters in the bootstrap checkpoint."""
    lines = kraftlib("dump-log", "--output", "json", directory / BOOTSTRAP).out.splitlines()
    records = json.loads(lines[0])["records"]
    assert [record["type"] for record in records] == ["SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS"]
    return [
        (voter["voterId"], voter["voterDirectoryId"], voter["endpoints"][0]["port"])
        for voter in records[2]["data"]["voters"]
    ]


def test_static_voters_come_from_the_configuration(kraftlib: Command, tmp_path: Path) -> None:
    path = configuration(tmp_path, STATIC)
    result = kraftlib("format", "-c", path, "--cluster-id", "blue")

    meta = read_meta_properties(tmp_path / "data")
    assert meta is not None
    assert meta.directory_id is not None
    assert (meta.node_id, meta.cluster_id) == (1, "blue")
    assert result.out == (
        f"Formatting metadata directory {tmp_path / 'data'} for node 1 of cluster blue, "
        f"directory id {uuid_text(meta.directory_id)}.\n"
    )
    assert (result.status, result.err) == (0, "")
    assert not (tmp_path / "data" / BOOTSTRAP).exists()
    open_directory(RaftConfig.from_toml(path)).close()


def test_a_standalone_voter_is_the_only_one(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("format", "-c", configuration(tmp_path, DYNAMIC), "-t", "blue", "--standalone")
    (only,) = voters(kraftlib, tmp_path / "data")

    assert result.out.startswith("Formatting dynamic metadata voter directory ")
    assert only[0::2] == (1, 9001)
    assert f"directory id {only[1]}." in result.out


def test_initial_controllers_name_the_local_directory_id(kraftlib: Command, tmp_path: Path) -> None:
    ids = [uuid_text(new_uuid()) for _ in range(3)]
    listed = ",".join(f"{number}@127.0.0.1:900{number}:{directory_id}" for number, directory_id in enumerate(ids, 1))
    result = kraftlib("format", "-c", configuration(tmp_path, DYNAMIC), "-t", "blue", "--initial-controllers", listed)
    meta = read_meta_properties(tmp_path / "data")

    assert result.status == 0
    assert meta is not None
    assert meta.directory_id == parse_uuid(ids[0])
    assert voters(kraftlib, tmp_path / "data") == [(n, ids[n - 1], 9000 + n) for n in (1, 2, 3)]


def test_without_initial_controllers_there_are_no_voters(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("format", "-c", configuration(tmp_path, DYNAMIC), "-t", "blue", "--no-initial-controllers")

    assert result.out.startswith("Formatting metadata directory ")
    assert not (tmp_path / "data" / BOOTSTRAP).exists()


def test_a_directory_can_be_named_without_a_configuration(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib(
        "format", tmp_path / "here", "--node-id", 7, "-t", "blue", "-s", "--advertised", "db.example.com:9001"
    )

    assert (result.status, result.err) == (0, "")
    assert voters(kraftlib, tmp_path / "here")[0][0] == 7


def test_every_file_reads_back(kraftlib: Command, tmp_path: Path) -> None:
    kraftlib("format", "-c", configuration(tmp_path, DYNAMIC), "-t", "blue", "-s")
    for name in ("bootstrap.checkpoint", BOOTSTRAP):
        assert kraftlib("dump-log", tmp_path / "data" / name).status == 0


def test_what_is_formatted_already_is_refused_or_left_alone(kraftlib: Command, tmp_path: Path) -> None:
    arguments = ["format", "-c", configuration(tmp_path, STATIC), "-t", "blue"]
    kraftlib(*arguments)
    before = (tmp_path / "data/meta.properties").read_bytes()
    again, ignored = kraftlib(*arguments), kraftlib(*arguments, "--ignore-formatted")

    assert (again.status, ignored.status) == (1, 0)
    assert "is formatted already, for node 1 of cluster 'blue'" in again.err
    assert ignored.out == f"{tmp_path / 'data'} is formatted already, for node 1 of cluster blue: left alone.\n"
    assert (tmp_path / "data/meta.properties").read_bytes() == before


def test_a_directory_of_another_cluster_is_never_taken_for_ours(kraftlib: Command, tmp_path: Path) -> None:
    path = configuration(tmp_path, STATIC)
    kraftlib("format", "-c", path, "-t", "blue")
    result = kraftlib("format", "-c", path, "-t", "red", "--ignore-formatted")

    assert result.status == 1
    assert "blue" in result.err
    assert "red" in result.err


def test_two_voters_are_warned_of(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib(
        "format", tmp_path / "here", "--node-id", 1, "-t", "blue", "--voters", "1@127.0.0.1:9001,2@127.0.0.1:9002"
    )

    assert result.status == 0
    assert "warning: a quorum of two voters survives no failure" in result.err


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (STATIC, [], "the cluster id is missing"),
        (STATIC, ["-t", " "], "cluster_id=' ' is no name"),
        (STATIC, ["-t", "blue", "-s"], "the quorum is static"),
        (STATIC.replace("node_id = 1", "node_id = 9"), ["-t", "blue"], "node_id=9 is not among voters"),
        (STATIC.replace('directory = "data"\n', ""), ["-t", "blue"], "names no directory"),
        (STATIC + 'cluster_id = "red"\n', ["-t", "blue"], "--cluster-id blue, but the configuration has"),
        (STATIC + "fetch_timout_ms = 1\n", ["-t", "blue"], "unknown key 'fetch_timout_ms'"),
        (STATIC + "node_id = \n", ["-t", "blue"], "is no TOML"),
        (DYNAMIC, ["-t", "blue"], "the first voters are not given"),
        (DYNAMIC.replace(":9001", ":0"), ["-t", "blue", "-s"], "reached at a fixed port"),
        (DYNAMIC, ["-t", "blue", "-I", "1@127.0.0.1:9001"], "is no initial controller"),
        (DYNAMIC, ["-t", "blue", "-I", "2@127.0.0.1:9001:e9MFl328Q-S5WPDKSl6znA"], "is not among the initial"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    text: str, words: list[str], says: str, kraftlib: Command, tmp_path: Path
) -> None:
    result = kraftlib("format", "-c", configuration(tmp_path, text), *words)

    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("kraftlib: ")
    assert result.err.count("\n") == 1
    assert says in result.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["here", "-c", "replica.toml"],
        ["-c", "replica.toml", "--node-id", "1"],
        ["here", "--node-id", "one", "-t", "blue", "-s"],
        ["here", "--node-id", "1", "-s", "-N"],
    ],
)
def test_words_that_do_not_go_together_are_a_usage_error(words: list[str], kraftlib: Command) -> None:
    assert kraftlib("format", *words).status == 2


def test_a_configuration_that_is_not_there_is_named(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("format", "-c", tmp_path / "nothing.toml", "-t", "blue")

    assert (result.status, result.err) == (
        1,
        f"kraftlib: cannot read the configuration {tmp_path / 'nothing.toml'}: No such file or directory\n",
    )
