"""`open` and `connect`: one face for tasks and for threads, for replicas and for clients."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import kraftlib
from kraftlib import blocking
from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.commands import decode, encode_command
from kraftlib.coordination.messages import OpenSession, Result
from kraftlib.coordination.net import client, replica
from kraftlib.errors import ClosedError, ConfigError, RefusedError
from kraftlib.recipes import blocking as for_threads
from kraftlib.recipes.kraft import Kraft
from kraftlib.types import new_uuid
from tests.coordination.net.ways import EVERYTHING, addition, question, replicas


def names(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("other", [client.ClientAccess, replica.ReplicaAccess])
@pytest.mark.parametrize("name", ["call", "query", "watch", "close"])
def test_all_faces_have_the_same_signatures(other: type, name: str) -> None:
    ours = inspect.signature(getattr(Kraft, name)).parameters
    assert inspect.signature(getattr(other, name)).parameters == ours
    assert inspect.signature(getattr(for_threads.Kraft, name)).parameters == ours


def test_all_faces_have_the_same_names() -> None:
    assert names(Kraft) - names(for_threads.Kraft) == {"replica"}  # a property, which is asked of the inner one
    assert names(for_threads.Kraft) <= names(Kraft)
    for name in ("open", "connect"):
        ours, theirs = getattr(kraftlib, name), getattr(blocking, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters


async def test_the_first_election_is_five_lines(tmp_path: Path) -> None:
    path = tmp_path / "replica-1.toml"
    path.write_text('node_id = 1\nvoters = "1@127.0.0.1:19797"\nlisten = "127.0.0.1:0"\n')
    async with kraftlib.open(path, owner="me") as kraft:
        async with kraft.election("scheduler") as term:
            assert term.is_valid()
            assert term.token > 0
        assert kraft.replica.status().role == "leader"
    with pytest.raises(ClosedError):
        await kraft.map("settings").put("a", b"b")


async def test_a_client_and_a_replica_see_each_other() -> None:
    async with replicas(3) as quorum, kraftlib.connect(quorum.servers, owner="a client") as kraft:
        assert await kraft.counter("jobs").add(2) == 2
        async with kraftlib.connect(quorum.servers) as other:
            assert await other.counter("jobs").add(3) == 5
        with pytest.raises(ConfigError, match="a client of replicas elsewhere"):
            _ = kraft.replica


async def test_a_replica_that_needs_no_session_waits_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "replica-1.toml"
    voters = "1@127.0.0.1:19794,2@127.0.0.1:19795,3@127.0.0.1:19796"
    path.write_text(f'node_id = 1\ncluster_id = "alone"\nvoters = "{voters}"\nlisten = "127.0.0.1:0"\n')
    async with asyncio.timeout(20), kraftlib.open(path) as kraft:
        assert kraft.replica.status().leader_id is None


def use(kraft: Any) -> None:
    with kraft:
        session = new_uuid()
        begun = kraft.call(encode_command(OpenSession(ttl_ms=60_000), session=session), timeout_ms=20_000)
        opened = decode(Result, begun.result).offset
        command = encode_command(addition("sum"), session=session, opened=opened, sequence=1)
        done = kraft.call(command, timeout_ms=20_000)
        assert kraft.query(question("sum"), timeout_ms=20_000)[0] >= done.offset
        changes = kraft.watch(EVERYTHING, BEFORE_ALL)
        assert next(changes).offset == done.offset
        changes.close()
        with pytest.raises(RefusedError):
            kraft.call(b"garbage", timeout_ms=20_000)
        with kraft.lock("report") as term:
            assert term.token > done.offset
    with pytest.raises(ClosedError):
        kraft.call(b"x", timeout_ms=20_000)
    kraft.close()


async def test_a_thread_connects() -> None:
    async with replicas(1) as quorum:
        await asyncio.to_thread(use, blocking.connect(quorum.servers))


def test_a_thread_opens(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('node_id = 1\nvoters = "1@127.0.0.1:19798"\nlisten = "127.0.0.1:0"\n')
    use(blocking.open(path))
