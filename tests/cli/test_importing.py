"""`kraftlib import`: what its command line refuses. tests/interop/test_zookeeper.py runs it on a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

TO = ("--bootstrap", "127.0.0.1:1")


@pytest.mark.parametrize("path", ["service", "/service/", "//", ""])
def test_a_path_that_is_none_is_refused(path: str, kraftlib: Command) -> None:
    result = kraftlib("import", "zookeeper", "127.0.0.1:2", *TO, f"--path={path}")
    assert (result.status, result.out) == (2, "")
    assert f"--path {path!r}: a path begins with /" in result.err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_pause_that_is_none_is_refused(seconds: str, kraftlib: Command) -> None:
    result = kraftlib("import", "zookeeper", "127.0.0.1:2", *TO, f"--every={seconds}")
    assert result.status == 2
    assert "name a number of seconds above 0" in result.err


def test_what_cannot_be_reached_is_named(kraftlib: Command, tmp_path: Path) -> None:
    assert "--timeout-ms is 1 to" in kraftlib("import", "zookeeper", "127.0.0.1:2", *TO, "--timeout-ms=0").err
    silent = kraftlib("import", "zookeeper", "127.0.0.1:2", *TO, "--timeout-ms=300")
    assert (silent.status, silent.err) == (1, "kraftlib: no server of ZooKeeper at 127.0.0.1:2 within 300 ms\n")
    unread = kraftlib("import", "zookeeper", "127.0.0.1:2", *TO, f"--auth-file={tmp_path / 'nobody'}")
    assert unread.status == 1
    assert f"--auth-file {tmp_path / 'nobody'}" in unread.err


def test_options_of_a_running_zookeeper_are_refused_for_files(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("import", "zookeeper-files", tmp_path, *TO, "--every=1")
    assert result.status == 2
    assert "--every and --auth-file are for a running ZooKeeper" in result.err


def test_a_directory_without_files_of_zookeeper_is_named_before_the_quorum_is_asked(
    kraftlib: Command, tmp_path: Path
) -> None:
    result = kraftlib("import", "zookeeper-files", tmp_path, *TO)
    assert result.status == 1
    assert result.err == f"kraftlib: {tmp_path}: there is no snapshot of ZooKeeper; name the dataDir of a server\n"


def test_a_snapshot_of_etcd_is_read_before_the_quorum_is_asked(kraftlib: Command, tmp_path: Path) -> None:
    (tmp_path / "snapshot.db").write_bytes(b"no database" * 1_000)
    result = kraftlib("import", "etcd", tmp_path / "snapshot.db", *TO)
    assert result.status == 1
    assert "snapshot.db: this is no database of bbolt" in result.err
    result = kraftlib("import", "etcd", tmp_path / "snapshot.db", *TO, "--every=1")
    assert result.status == 2
    assert "--every and --auth-file are for a running ZooKeeper" in result.err
