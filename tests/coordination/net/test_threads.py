"""The ways in for threads: the names and signatures of those for tasks, and their outcomes."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from kraftlib import blocking
from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.commands import encode_command
from kraftlib.coordination.messages import OpenSession
from kraftlib.coordination.net import client, replica
from kraftlib.coordination.net.threads import ThreadAccess
from kraftlib.errors import ClosedError, ConfigError, RefusedError
from kraftlib.types import new_uuid
from tests.coordination.net.ways import EVERYTHING, addition, question, replicas


@pytest.mark.parametrize("other", [client.ClientAccess, replica.ReplicaAccess])
@pytest.mark.parametrize("name", ["call", "query", "watch", "close"])
def test_all_faces_have_the_same_names_and_signatures(other: type, name: str) -> None:
    def parameters(cls: type) -> object:
        return inspect.signature(getattr(cls, name)).parameters

    assert parameters(ThreadAccess) == parameters(other)


@pytest.mark.parametrize(("ours", "theirs"), [(blocking.open, replica.open), (blocking.connect, client.connect)])
def test_both_are_made_alike(ours: object, theirs: object) -> None:
    assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters  # type: ignore[arg-type]


def use(access: ThreadAccess) -> None:
    with access:
        session = new_uuid()
        access.call(encode_command(OpenSession(ttl_ms=60_000), session=session), timeout_ms=20_000)
        done = access.call(encode_command(addition("sum"), session=session, sequence=1), timeout_ms=20_000)
        assert access.query(question("sum"), timeout_ms=20_000)[0] >= done.offset
        changes = access.watch(EVERYTHING, BEFORE_ALL)
        assert next(changes).offset == done.offset
        changes.close()  # type: ignore[attr-defined]
        with pytest.raises(RefusedError):
            access.call(b"garbage", timeout_ms=20_000)
        with pytest.raises(ConfigError, match="opened once"):
            access.__enter__()
    with pytest.raises(ClosedError):
        access.call(b"x", timeout_ms=20_000)
    access.close()


async def test_a_thread_connects() -> None:
    async with replicas(1) as quorum:
        await asyncio.to_thread(use, blocking.connect(quorum.servers))


def test_a_thread_opens(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('node_id = 1\nvoters = "1@127.0.0.1:19798"\nlisten = "127.0.0.1:0"\n')
    use(blocking.open(path))
