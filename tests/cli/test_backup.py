"""`kraftlib backup`, `restore` and `recover`: what was committed comes back, in another cluster or on one replica."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraftlib import blocking
from kraftlib.cli.key_value import KeyValueStore
from kraftlib.config import RaftConfig
from kraftlib.plain_values import parse_voters
from kraftlib.records.serde import JsonSerde
from kraftlib.storage.directory import format_directory
from kraftlib.storage.lock import DirectoryLock
from kraftlib.types import Endpoint
from tests.cli.conftest import Command
from tests.ports import free_port
from tests.storage.replicas import make_replica


@contextmanager
def replica(directory: Path, port: int, **more: Any) -> Iterator[tuple[blocking.RaftClient[Any], KeyValueStore]]:
    """Run the key-value store of one voter."""
    store = KeyValueStore()
    config = RaftConfig(node_id=1, directory=directory, listen=Endpoint("127.0.0.1", port), **more)
    with blocking.RaftClient(config, state_machine=store, serde=JsonSerde()) as client:
        client.wait_for_leader(timeout_ms=20_000)
        yield client, store


def static(port: int) -> dict[str, Any]:
    return {"voters": parse_voters(f"1@127.0.0.1:{port}")}


def test_a_running_quorum_is_backed_up_and_restored_into_a_new_cluster(kraftlib: Command, tmp_path: Path) -> None:
    port = free_port()
    format_directory(tmp_path / "old", node_id=1, cluster_id="old", static_voters=[1])
    with replica(tmp_path / "old", port, **static(port)) as (client, _):
        for number in range(50):
            client.propose({"key": f"k{number}", "value": str(number)})
        client.create_snapshot()
        client.propose({"key": "last", "value": "word"})
        result = kraftlib("backup", "--bootstrap", f"127.0.0.1:{port}", tmp_path / "b.tar", "--output", "json")
    assert result.status == 0, result.err
    assert json.loads(result.out)["cluster_id"] == "old"

    result = kraftlib(
        "restore", tmp_path / "b.tar", tmp_path / "new", "--node-id", 1, "--cluster-id", "new",
        "--voters", f"1@127.0.0.1:{port}",
    )  # fmt: skip
    assert result.status == 0, result.err
    assert kraftlib("verify-dir", tmp_path / "new", "--quiet").status == 0
    with replica(tmp_path / "new", port, **static(port)) as (client, store):
        client.propose({"key": "new", "value": "life"})
        assert store.items == {**{f"k{number}": str(number) for number in range(50)}, "last": "word", "new": "life"}
        assert client.status().cluster_id == "new"


KILLED = """
import os, signal, sys
from kraftlib.cli import main

def look(event, arguments):
    if event == "open" and sys.argv[1] in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
main(sys.argv[2:])
"""


def test_one_that_is_killed_leaves_nothing_that_the_next_one_does_not_remove(kraftlib: Command, tmp_path: Path) -> None:
    """While it fetches, while it copies, and while it packs."""
    port = free_port()
    format_directory(tmp_path / "old", node_id=1, cluster_id="old", static_voters=[1])
    (tmp_path / "backups").mkdir()
    with replica(tmp_path / "old", port, **static(port)) as (client, _):
        client.propose({"key": "a", "value": "1"})
        for number, at in enumerate(("/observer/__cluster_metadata-0/", "/backup/", "/packed")):
            words = ["backup", "--bootstrap", f"127.0.0.1:{port}", str(tmp_path / "backups" / f"{number}.tar")]
            done = subprocess.run([sys.executable, "-c", KILLED, at, *words], timeout=60, check=False)
            assert done.returncode == -signal.SIGKILL
            (left, *others) = (tmp_path / "backups").iterdir()
            assert left.name.startswith(".kraftlib-backup-")
            # Until it is copied only the observer works there.
            assert len(others) == (number > 0)
        result = kraftlib("backup", "--bootstrap", f"127.0.0.1:{port}", tmp_path / "backups" / "b.tar")
    assert result.status == 0, result.err
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["b.tar"]


def test_a_stopped_replica_becomes_a_dynamic_quorum_of_one(kraftlib: Command, tmp_path: Path) -> None:
    port = free_port()
    format_directory(tmp_path / "old", node_id=1, cluster_id="old", static_voters=[1])
    with replica(tmp_path / "old", port, **static(port)) as (client, _):
        client.propose({"key": "a", "value": "1"})
    assert kraftlib("backup", tmp_path / "old", tmp_path / "backup").status == 0
    result = kraftlib(
        "restore", tmp_path / "backup", tmp_path / "new", "--node-id", 1, "--cluster-id", "new",
        "--standalone", f"127.0.0.1:{port}", "--output", "json",
    )  # fmt: skip
    assert result.status == 0, result.err
    with replica(tmp_path / "new", port) as (client, store):
        client.propose({"key": "b", "value": "2"})
        assert store.items == {"a": "1", "b": "2"}
        assert client.kraft_version() == 1


def test_a_running_replicas_files_are_left_alone(kraftlib: Command, tmp_path: Path) -> None:
    make_replica(tmp_path / "replica")
    lock = DirectoryLock.acquire(tmp_path / "replica")
    result = kraftlib("backup", tmp_path / "replica", tmp_path / "backup")
    lock.release()
    assert result.status == 1
    assert "in use" in result.err
    assert not (tmp_path / "backup").exists()


def test_wrong_words_are_explained(kraftlib: Command, tmp_path: Path) -> None:
    assert kraftlib("backup", tmp_path / "x").status == 2
    assert kraftlib("restore", tmp_path / "x", tmp_path / "y", "--node-id", 1, "--cluster-id", "c").status == 2
    (tmp_path / "b").write_bytes(b"")
    assert "exists" in kraftlib("backup", tmp_path / "a", tmp_path / "b").err
