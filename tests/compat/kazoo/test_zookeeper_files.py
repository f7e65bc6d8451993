"""Files of ZooKeeper 3.8.4, with a snapshot every thirty transactions (tests/data/zookeeper), whole and damaged."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import pytest

from kraftlib.compat.kazoo.zookeeper_files import read_files
from kraftlib.errors import ConfigError
from tests.snippets import ROOT

FILES = ROOT / "tests" / "data" / "zookeeper"
SNAPSHOTS = ("snapshot.0", "snapshot.16", "snapshot.26", "snapshot.40")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    shutil.copytree(FILES, tmp_path / "data")
    return tmp_path / "data"


def test_every_kind_of_transaction_is_read() -> None:
    source = read_files([FILES], "/")
    nodes = source.nodes
    gone = {f"{n:010}" for n in (*range(0, 40, 5), 1)}
    assert {path for path in nodes if path.startswith("/svc/q/")} == {
        f"/svc/q/n-{n:010}" for n in range(40) if f"{n:010}" not in gone
    }
    assert set(nodes) - {path for path in nodes if path.startswith("/svc/q/")} == {
        "/", "/svc", "/svc/q", "/svc/null", "/svc/multi", "/é"
    }  # fmt: skip
    assert (nodes["/svc/null"].data, nodes["/é"].data, nodes["/svc/multi"].data) == (None, "ü".encode(), b"m")
    assert (nodes["/svc"].data, nodes["/svc"].version, nodes["/svc"].creations) == (b"v35", 6, 5)
    assert (nodes["/svc/q"].data, nodes["/svc/q"].version, nodes["/svc/q"].creations) == (b"mm", 1, 40)
    assert (source.ephemeral, source.special) == (1, 0)
    assert list(read_files([FILES], "/svc/multi").nodes) == ["/svc/multi"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_transactions_lead_from_an_older_snapshot_to_the_same_nodes(count: int, files: Path) -> None:
    for name in SNAPSHOTS[-count:]:
        (files / "version-2" / name).write_bytes((files / "version-2" / name).read_bytes()[:-30])
    assert read_files([files], "/") == read_files([FILES], "/")


def test_the_log_may_have_a_directory_of_its_own_and_a_snapshot_be_packed(files: Path, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for file in (files / "version-2").glob("log.*"):
        file.rename(tmp_path / "log" / file.name)
    newest = files / "version-2" / "snapshot.40"
    newest.with_name("snapshot.40.gz").write_bytes(gzip.compress(newest.read_bytes()))
    for name in SNAPSHOTS:
        (files / "version-2" / name).unlink()
    assert read_files([files, tmp_path / "log"], "/") == read_files([FILES], "/")


def test_damage_is_found_or_changes_nothing(files: Path) -> None:
    """One byte of the last snapshot, or of the log after an old one, is another one."""
    chance, expected = random.Random(20), read_files([FILES], "/")
    for name in SNAPSHOTS[2:]:
        (files / "version-2" / name).unlink()
    refused = 0
    for _ in range(300):
        file = files / "version-2" / chance.choice(("snapshot.16", "log.1", "log.18"))
        whole = file.read_bytes()
        at = chance.randrange(len(whole.rstrip(b"\0")))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        try:
            found = read_files([files], "/")
        except ConfigError as error:
            refused += str(files) in str(error)
        else:
            assert found == expected, (file.name, at)
        file.write_bytes(whole)
    assert refused > 50


def test_a_directory_without_a_snapshot_or_the_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no snapshot of ZooKeeper; name the dataDir"):
        read_files([tmp_path], "/")
    with pytest.raises(ConfigError, match="the files have no node '/svc/mine'"):
        read_files([FILES], "/svc/mine")
