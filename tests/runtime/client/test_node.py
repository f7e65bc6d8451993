"""A quorum with nothing faked: sockets, files, fsync, and directories that are opened again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, DirectoryInUseError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.listener import Listener
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.directory import format_directory
from kraftlib.storage.log.sync_point import read_sync_point
from kraftlib.storage.names import PARTITION_DIRECTORY
from kraftlib.types import Endpoint
from tests.ports import local_voters
from tests.runtime.quorum import PATIENCE_S, TIMING, leader_of, until

SETTINGS = pytest.mark.parametrize(
    ("engine", "flush", "event_loop"),
    [
        ("inline", "thread", "asyncio"),
        ("inline", "inline", "asyncio"),
        ("thread", "thread", "asyncio"),
        ("thread", "thread", "auto"),
    ],
)


class Journal(Listener):
    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes]] = []

    def handle_commit(self, reader: BatchReader) -> None:
        for batch in reader:
            self.records += [(record.offset, record.epoch, record.value) for record in batch.records]


def configs(directory: Path, **settings: Any) -> list[RaftConfig]:
    voters = local_voters()
    for voter in voters:
        format_directory(directory / str(voter.id), node_id=voter.id, cluster_id="real", ignore_formatted=True)
    return [
        RaftConfig(node_id=voter.id, directory=directory / str(voter.id), voters=voters, **{**TIMING, **settings})
        for voter in voters
    ]


@asynccontextmanager
async def running(configs: Sequence[RaftConfig]) -> AsyncIterator[tuple[list[RaftClient[bytes]], list[Journal]]]:
    journals = [Journal() for _ in configs]
    clients: list[RaftClient[bytes]] = [
        RaftClient(config, listener=journal) for config, journal in zip(configs, journals, strict=True)
    ]
    async with asyncio.timeout(2 * PATIENCE_S), AsyncExitStack() as stack:
        for client in clients:
            await client.start()
            stack.push_async_callback(client.shutdown, timeout_ms=0)
        yield clients, journals


@SETTINGS
async def test_three_replicas_on_sockets_and_files_agree_and_remember(
    tmp_path: Path, engine: str, flush: str, event_loop: str
) -> None:
    settings = {"engine": engine, "flush": flush, "event_loop": event_loop}
    async with running(configs(tmp_path, **settings)) as (clients, journals):
        leader = await leader_of(clients)
        appended = await asyncio.gather(*(leader.append_one(b"value %d" % number) for number in range(300)))
        last = max(one.last_offset for one in appended)
        for client in clients:
            await client.wait_for_offset(last, timeout_ms=20_000)
        expected = journals[0].records
        assert len(expected) >= 301
        assert all(journal.records[: last + 1] == expected[: last + 1] for journal in journals)

    async with running(configs(tmp_path, **settings)) as (clients, journals):
        leader = await leader_of(clients)
        after = await leader.append_one(b"after")
        assert after.epoch > appended[0].epoch
        for client in clients:
            await client.wait_for_offset(after.last_offset, timeout_ms=20_000)
        for journal in journals:
            assert journal.records[: len(expected)] == expected, "every byte came back from the files"
            assert journal.records[-1][2] == b"after"


async def test_an_address_that_is_taken_is_said_and_the_directory_is_free_again(tmp_path: Path) -> None:
    config = configs(tmp_path, engine="inline")[0]
    own = config.voters[0].endpoint
    with socket.create_server((own.host, own.port)):
        client: RaftClient[bytes] = RaftClient(config)
        with pytest.raises(ConfigError, match=str(own.port)):
            await client.start()
    async with running([config]) as ((again,), _):
        assert again.endpoint == own


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_two_clients_on_one_directory_are_one_too_many(tmp_path: Path, engine: str) -> None:
    config = configs(tmp_path, engine=engine)[0]
    async with running([config]):
        with pytest.raises(DirectoryInUseError, match=str(tmp_path)):
            await RaftClient(config).start()


async def test_a_cancelled_end_goes_on_until_the_directory_is_free(tmp_path: Path) -> None:
    """The loop of a host that ends cancels all tasks, that of the end of a client among them."""
    config = configs(tmp_path, engine="inline")[0]
    client: RaftClient[bytes] = RaftClient(config)
    await client.start()
    before = asyncio.all_tasks()
    closing = asyncio.ensure_future(client.shutdown(timeout_ms=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the end has begun
    while ending := asyncio.all_tasks() - before:
        for task in ending:
            task.cancel()
        await asyncio.sleep(0)
    assert closing.cancelled()
    assert not is_locked(tmp_path / "1")


def is_locked(directory: Path) -> bool:
    """Whether a replica has this directory open."""
    try:
        claim_directory(directory).lock.release()
    except DirectoryInUseError:
        return True
    return False


async def test_a_node_that_listens_beyond_loopback_needs_tls_or_says_insecure(tmp_path: Path) -> None:
    config = configs(tmp_path, engine="inline", listen=Endpoint("0.0.0.0", 0))[0]
    with pytest.raises(ConfigError, match="insecure"):
        await RaftClient(config).start()


async def test_a_leader_that_is_gone_is_replaced_long_before_the_fetch_timeout(tmp_path: Path) -> None:
    """Its connections break and new ones are refused: that is news, and no timer is waited for."""
    minute = {"fetch_timeout_ms": 60_000, "fetch_max_wait_ms": 500}
    async with running(configs(tmp_path, engine="inline", **minute)) as (clients, _):
        old = await leader_of(clients)
        await old.shutdown(timeout_ms=0)
        others = [client for client in clients if client is not old]
        async with asyncio.timeout(20):
            for client in others:
                await until(lambda client=client: client.leader_and_epoch().leader_id not in (None, old.node_id))
            assert await leader_of(others) is not old


@pytest.mark.parametrize(("sync_note", "alone"), [("auto", True), ("auto", False), ("always", False), ("never", True)])
async def test_a_note_is_synced_where_nobody_could_repair_the_log(sync_note: str, alone: bool, tmp_path: Path) -> None:
    members = configs(tmp_path, sync_note=sync_note)
    if alone:
        members = [attrs.evolve(members[0], voters=members[0].voters[:1])]
    async with running(members) as (clients, _):
        leader = await leader_of(clients)
        directory = next(config.directory for config in members if config.node_id == leader.node_id)
        assert directory is not None
        found = read_sync_point(directory / PARTITION_DIRECTORY)

    assert found is not None
    assert found.is_exact is (sync_note == "always" or (sync_note == "auto" and alone))
