"""`archive` as people and programs use it: followed, killed, followed again, looked at."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlib.archive.directory import find_archives
from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from tests.cli.conftest import Command
from tests.cli.processes import Process, running
from tests.ports import free_port


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[RaftClient[bytes]]:
    """A voter with a few records."""
    with voter(tmp_path / "voter", "archived") as client:
        yield client


def voter(directory: Path, cluster_id: str) -> RaftClient[bytes]:
    place = Endpoint("127.0.0.1", free_port())
    format_directory(directory, node_id=1, cluster_id=cluster_id, static_voters=[1])
    return RaftClient(RaftConfig(node_id=1, voters=(StaticVoter(1, place),), listen=place, directory=directory))


def follow(process: Process, end_offset: int) -> None:
    """Wait until the follower has written up to here."""
    while json.loads(process.line_with('"wrote"'))["end_offset"] < end_offset:
        pass


def test_a_follower_that_is_killed_again_and_again_archives_every_byte_once(
    quorum: RaftClient[bytes], tmp_path: Path, kraftlib: Command
) -> None:
    words = ("archive", "follow", "--bootstrap", quorum.endpoint, "--directory", tmp_path / "a", "--output", "json")
    quorum.wait_for_leader(timeout_ms=10_000)
    for round_ in range(2):
        with running(*words) as process:
            follow(process, quorum.append([b"%d" % round_ * 3_000] * 5).last_offset + 1)
            for _ in range(10):
                quorum.append([b"while it writes" * 1_000])
            process.end(signal.SIGKILL)
    with running(*words) as process:
        follow(process, quorum.append([b"last"]).last_offset + 1)
        status, errors = process.end(signal.SIGTERM)
    assert (status, errors) == (0, "")

    (archive,) = find_archives(tmp_path / "a")
    (voters_log,) = (tmp_path / "voter/__cluster_metadata-0").glob("*.log")
    archived = b"".join(path.read_bytes() for path in sorted(archive.partition.glob("*.log")))
    assert archived == voters_log.read_bytes()
    result = kraftlib("archive", "verify", "--directory", tmp_path / "a", "--output", "json")
    assert (result.status, json.loads(result.out)["problems"]) == (0, [])


def test_once_writes_what_there_is_and_ends(quorum: RaftClient[bytes], tmp_path: Path, kraftlib: Command) -> None:
    quorum.wait_for_leader(timeout_ms=10_000)
    end_offset = quorum.append([b"a", b"b"]).last_offset + 1
    words = ("--bootstrap", quorum.endpoint, "--directory", tmp_path / "a", "--once")
    with running("archive", "follow", *words) as process:
        status, errors = process.end()
    assert status == 0, errors
    assert f"offset {end_offset}, epoch 1" in errors

    shown = kraftlib("archive", "status", "--directory", tmp_path / "a").out
    assert f"  offsets 0 to {end_offset}\n" in shown
    told = json.loads(kraftlib("archive", "status", "--directory", tmp_path / "a", "--output", "json").out)
    assert told["ranges"] == [{"start_offset": 0, "end_offset": end_offset}]
    assert "all is well" in kraftlib("archive", "verify", "--directory", tmp_path / "a").out


def test_the_directory_of_another_cluster_is_refused(
    quorum: RaftClient[bytes], tmp_path: Path, kraftlib: Command
) -> None:
    quorum.wait_for_leader(timeout_ms=10_000)
    words = ("--bootstrap", quorum.endpoint, "--directory", tmp_path / "a", "--once")
    with running("archive", "follow", *words) as process:
        assert process.end()[0] == 0
    with voter(tmp_path / "other", "another") as other:
        other.wait_for_leader(timeout_ms=10_000)
        result = kraftlib("archive", "follow", "--bootstrap", other.endpoint, "--directory", tmp_path / "a", "--once")

    assert result.status == 1
    assert "is the archive of cluster 'archived', and cluster 'another' is followed now" in result.err


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, kraftlib: Command) -> None:
    nowhere = ("--bootstrap", f"127.0.0.1:{free_port()}", "--timeout-ms", 100)
    for words, status, complaint in (
        (("status", "--directory", tmp_path / "none"), 1, "is no directory"),
        (("verify", "--directory", tmp_path), 1, "holds no archive"),
        (("follow", "--directory", tmp_path, *nowhere), 1, "cannot be reached"),
        (("follow", "--directory", tmp_path, "--bootstrap", ","), 2, "at least one host:port"),
        (("follow", "--directory", tmp_path), 2, "--bootstrap"),
        ((), 2, "VERB"),
    ):
        result = kraftlib("archive", *words)
        assert result.status == status, words
        assert complaint in result.err


def test_damage_is_an_exit_status(quorum: RaftClient[bytes], tmp_path: Path, kraftlib: Command) -> None:
    quorum.wait_for_leader(timeout_ms=10_000)
    quorum.append([b"abc"])
    with running(
        "archive", "follow", "--bootstrap", quorum.endpoint, "--directory", tmp_path / "a", "--once"
    ) as process:
        assert process.end()[0] == 0
    (archive,) = find_archives(tmp_path / "a")
    (segment,) = archive.partition.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    result = kraftlib("archive", "verify", "--directory", tmp_path / "a")
    assert result.status == 1
    assert "has CRC" in result.out
