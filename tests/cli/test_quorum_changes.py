"""`kraftlib quorum add-voter` and its kin against real replicas on sockets, and what they say when it cannot be."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig
from kraftlib.types import Endpoint, uuid_text
from kraftlib.wire.apis import ApiKey
from tests.cli.canned import Answer, captured, controller, from_table, raw_server
from tests.cli.conftest import Command
from tests.cli.processes import COMMAND, TIMEOUT_S
from tests.ports import free_port

SOMEBODY = uuid_text(uuid.UUID(int=7))


@pytest.fixture
def leader(tmp_path: Path, kraftlib: Command) -> Iterator[RaftClient[Any]]:
    """The one voter of a dynamic quorum, on a socket."""
    directory = tmp_path / "one"
    words = ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--standalone", "--advertised", "127.0.0.1:0"]
    port = free_port()
    words[-1] = f"127.0.0.1:{port}"
    result = kraftlib("format", directory, "--node-id", 1, *words)
    assert result.status == 0, result.err
    with RaftClient(RaftConfig(node_id=1, directory=directory, listen=Endpoint("127.0.0.1", port))) as client:
        client.wait_for_leader(timeout_ms=20_000)
        yield client


def test_a_voter_is_added_and_removed(leader: RaftClient[Any], kraftlib: Command) -> None:
    config = RaftConfig(node_id=2, bootstrap_servers=(leader.endpoint,), fetch_max_wait_ms=100)
    with RaftClient[Any](config) as observer:
        who = ["--id", 2, "--directory-id", uuid_text(observer.key.directory_id or uuid.UUID(int=0))]
        common = ["--bootstrap", observer.endpoint]
        added = kraftlib("quorum", "add-voter", *who, "--endpoint", observer.endpoint, "--bootstrap", leader.endpoint)
        assert (added.status, added.out) == (0, f"adding voter {observer.key}: committed\n"), added.err
        assert len(leader.status().voters) == 2

        again = kraftlib("quorum", "add-voter", *who, "--endpoint", observer.endpoint, *common)
        assert again.status == 1
        assert "DUPLICATE_VOTER" in again.err

        removed = kraftlib("quorum", "remove-voter", *who, *common, "--output", "json")
        assert (removed.status, json.loads(removed.out)) == (0, {"change": "remove-voter", "committed": True})
        assert len(leader.status().voters) == 1


def test_what_is_so_already_is_done(leader: RaftClient[Any], kraftlib: Command) -> None:
    assert (
        kraftlib("quorum", "upgrade", "--bootstrap", leader.endpoint).out == "raising kraft.version to 1: committed\n"
    )
    refused = kraftlib("quorum", "upgrade", "--kraft-version", 9, "--bootstrap", leader.endpoint)
    assert (refused.status, "The newest one is 1" in refused.err) == (1, True)


def test_nobody_there_is_said_and_nothing_was_changed(kraftlib: Command) -> None:
    words = ["--id", 2, "--directory-id", SOMEBODY, "--bootstrap", "127.0.0.1:1", "--timeout-ms", 150]
    result = kraftlib("quorum", "remove-voter", *words)

    assert result.status == 1
    assert "nothing was changed" in result.err
    assert "127.0.0.1:1 cannot be reached" in result.err


def test_a_leader_that_breaks_off_leaves_it_open(kraftlib: Command) -> None:
    real: Answer = from_table(captured(9402))
    with controller(lambda head: None if head.api_key == ApiKey.REMOVE_RAFT_VOTER else real(head)) as endpoint:
        words = ["--id", 2, "--directory-id", SOMEBODY, "--bootstrap", endpoint, "--timeout-ms", 300]
        result = kraftlib("quorum", "remove-voter", *words)

    assert result.status == 1
    assert "it may have been done" in result.err


def test_it_ends_at_once_at_an_interrupt_though_the_leader_is_silent() -> None:
    asked = threading.Event()

    def silent(connection: socket.socket) -> None:
        asked.set()
        connection.settimeout(None)
        while connection.recv(1_000):
            pass

    with raw_server(silent) as endpoint:
        words = ["--id", "2", "--directory-id", SOMEBODY, "--bootstrap", str(endpoint), "--timeout-ms", "600000"]
        command = [*COMMAND, "quorum", "remove-voter", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
            try:
                assert asked.wait(TIMEOUT_S)
                popen.send_signal(signal.SIGINT)
                _, said = popen.communicate(timeout=TIMEOUT_S / 2)
            finally:
                popen.kill()
    assert (popen.returncode, b"it may have been done" in said) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ["add-voter", "--id", 2, "--directory-id", SOMEBODY, "--bootstrap", "127.0.0.1:1"],
        ["add-voter", "--id", 2, "--directory-id", "nonsense", "--endpoint", "h:1", "--bootstrap", "127.0.0.1:1"],
        ["remove-voter", "--id", -2, "--directory-id", SOMEBODY, "--bootstrap", "127.0.0.1:1"],
        ["remove-voter", "--id", 2, "--directory-id", SOMEBODY, "--bootstrap", ","],
        ["upgrade", "--bootstrap", "127.0.0.1:1", "--timeout-ms", 0],
    ],
)
def test_bad_words_are_refused_before_anybody_is_asked(words: list[object], kraftlib: Command) -> None:
    result = kraftlib("quorum", *words)
    assert result.status in (1, 2)
    assert result.err
