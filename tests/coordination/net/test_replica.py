"""`open`: the machine of a replica in this process, with either engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.coordination.access import STALE, AtLeast
from kraftlib.coordination.net.replica import open
from kraftlib.errors import ClosedError, ConfigError, RefusedError
from tests.coordination.net.ways import CALL_MS, Caller, question, replicas, value


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_every_replica_calls_and_reads_what_was_written_anywhere(engine: str) -> None:
    async with replicas(engine=engine) as quorum:
        for node_id, access in quorum.running.items():
            caller = await Caller(access).begin()
            done = await caller.put("key", b"of %d" % node_id)
            assert done.offset > 0
            assert await value(access, "key", consistency=STALE) == b"of %d" % node_id
            for other in quorum.running.values():
                assert await value(other, "key") == b"of %d" % node_id
                assert await value(other, "key", consistency=AtLeast(done.offset)) == b"of %d" % node_id


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_refusals_deadlines_and_the_end(engine: str) -> None:
    async with replicas(engine=engine) as quorum:
        access = quorum.running[1]
        caller = await Caller(access).begin()
        with pytest.raises(RefusedError, match="this is no command"):
            await access.call(b"garbage", timeout_ms=CALL_MS)
        with pytest.raises(ConfigError, match="this is no question"):
            await access.query(b"garbage", timeout_ms=CALL_MS)
        with pytest.raises(TimeoutError, match="within 100 ms"):
            await access.query(question("sum"), consistency=AtLeast(10**9), timeout_ms=100)
        waiting = asyncio.create_task(access.query(question("sum"), consistency=AtLeast(10**9), timeout_ms=CALL_MS))
        await asyncio.sleep(0)
        await access.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await caller.add("sum")


async def test_a_file_names_the_replica(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('node_id = 1\nvoters = "1@127.0.0.1:19799"\nlisten = "127.0.0.1:0"\n')
    async with open(path) as access:
        await (await Caller(access).begin()).add("sum")
        assert await value(access, "sum") == b"1"


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        ({"node_id": 1}, {}, "config is a dict: use RaftConfig.from_mapping"),
        (RaftConfig(node_id=1, private_apis=False), {}, "private_apis=False"),
        (RaftConfig(node_id=1), {"machine": object()}, "must be a StateMachine, too"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_anything_happens(config: Any, options: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open(config, **options)
