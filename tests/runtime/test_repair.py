"""Replicas with damaged files in a real quorum: they repair themselves, and nobody is told anything wrong."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import DiskFullError, NotLeaderError, OutcomeUnknownError
from kraftlib.records.batch import read_batches
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryTransport
from kraftlib.runtime.waiters import Appended
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from tests.runtime.quorum import PATIENCE_S, TIMING, Quorum, alone, until
from tests.storage.damage.test_repair import cut as shorten
from tests.storage.damage.test_repair import overwrite

VALUES = [f"value {n}".encode().ljust(2_000, b".") for n in range(200)]


class FileQuorum(Quorum):
    """Three voters with a directory each."""

    def __init__(self, path: Path, **config: Any) -> None:
        super().__init__(**config)
        self._path = path
        for node_id in self.ids:
            format_directory(path / str(node_id), node_id=node_id, cluster_id="test", static_voters=list(self.ids))

    def config(self, node_id: int) -> RaftConfig:
        voters = tuple(StaticVoter(voter_id, self.endpoint(voter_id)) for voter_id in self.ids)
        return RaftConfig(
            node_id=node_id, voters=voters, directory=self._path / str(node_id), **{**TIMING, **self._config}
        )

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.ids:
            transport = MemoryTransport(self.hub, Endpoint("replica", node_id))
            client: RaftClient[bytes] = RaftClient(
                self.config(node_id), transport=transport, random=random.Random(node_id)
            )
            await client.start()
            self.clients[node_id] = client

    async def stop(self, node_id: int, *, timeout_ms: int = 0) -> None:
        await self.clients.pop(node_id).shutdown(timeout_ms=timeout_ms)

    def partition(self, node_id: int) -> Path:
        return self._path / str(node_id) / "__cluster_metadata-0"

    def all_are_alike(self) -> None:
        """Their logs are the same bytes, but for what the last ones to stop may have appended."""
        logs = [self.segment(node_id).read_bytes() for node_id in self.ids]
        shortest = min(map(len, logs))
        assert shortest > 400_000
        assert len({log[:shortest] for log in logs}) == 1

    def segment(self, node_id: int) -> Path:
        return max(self.partition(node_id).glob("*.log"))


@asynccontextmanager
async def file_quorum(path: Path, **config: Any) -> AsyncIterator[FileQuorum]:
    together = FileQuorum(path, **config)
    try:
        await together.start()
        yield together
    finally:
        await together.close()


async def filled(together: FileQuorum) -> RaftClient[bytes]:
    for value in VALUES:
        await appended(together, value)
    await until(lambda: len({client.log_end_offset() for client in together.clients.values()}) == 1)
    return await together.leader()


async def appended(together: FileQuorum, value: bytes) -> None:
    """Append a value, again if the leader changes meanwhile, as it may on a busy machine."""
    while True:
        leader = await together.leader()
        with suppress(NotLeaderError, OutcomeUnknownError):
            await leader.append_one(value)
            return


def flipped(together: FileQuorum, node_id: int) -> None:
    overwrite(together.segment(node_id), 100_000, b"????")


def cut(together: FileQuorum, node_id: int) -> None:
    shorten(together.segment(node_id), 100_000)


def vote_lost(together: FileQuorum, node_id: int) -> None:
    (together.partition(node_id) / "quorum-state").unlink()


async def end_alike(together: FileQuorum) -> None:
    """Append once more, and end when every replica has the same files."""
    await (await together.leader()).append_one(b"after")
    await until(lambda: len({client.log_end_offset() for client in together.clients.values()}) == 1)
    for node_id in together.ids:
        await together.clients[node_id].shutdown(timeout_ms=0)
    together.all_are_alike()


@pytest.mark.parametrize("fault", [flipped, cut, vote_lost])
async def test_a_replica_that_starts_with_damage_repairs_itself(
    fault: Callable[[FileQuorum, int], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with file_quorum(tmp_path) as together:
        leader = await filled(together)
        hurt = next(node_id for node_id in together.ids if node_id != leader.node_id)
        await together.stop(hurt)
        (together.partition(hurt) / "kraftlib-prefix.json").unlink()
        fault(together, hurt)
        await together.start(hurt)
        await until(lambda: together.clients[hurt].status().abstains is None)
        assert "the log is repaired" in caplog.text or "it votes again" in caplog.text

        await end_alike(together)


async def test_a_leader_that_cannot_read_what_a_follower_needs_resigns_and_repairs_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with file_quorum(tmp_path) as together:
        leader = await filled(together)
        late = next(node_id for node_id in together.ids if node_id != leader.node_id)
        await together.stop(late)
        for node_id in (leader.node_id, late):  # not in memory any more
            if node_id in together.clients:
                await together.stop(node_id)
        await together.start(leader.node_id)
        again = await together.leader()
        if again.node_id != leader.node_id:
            await again.transfer_leadership(leader.node_id)
        await until(lambda: together.clients[leader.node_id].leader_and_epoch().leader_id == leader.node_id)
        hurt = leader.node_id
        overwrite(together.segment(hurt), 100_000, b"????")
        path = together.segment(late)
        for name in ("kraftlib-sync.json", "kraftlib-prefix.json"):
            (together.partition(late) / name).unlink()
        kafka = (together.partition(late) / "quorum-state").read_text()
        (together.partition(late) / "quorum-state").write_text(kafka[: kafka.index(',"generation"')] + "}")
        os.truncate(path, 50_000)  # as if Kafka had cut it
        await together.start(late)

        await until(lambda: together.clients[hurt].log_end_offset() == together.clients[late].log_end_offset())
        await until(lambda: together.clients[hurt].status().abstains is None)
        assert "the log is damaged, the records [" in caplog.text
        assert "the log is repaired" in caplog.text
        await end_alike(together)


async def test_a_full_disk_stops_appends_and_nothing_else_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with file_quorum(tmp_path, fetch_timeout_ms=20_000) as together:  # by then all have noticed
        leader = await filled(together)
        monkeypatch.setattr("kraftlib.storage.log.space.free_bytes", lambda directory: 0)
        await until(lambda: all(client.status().disk_full for client in together.clients.values()))

        with pytest.raises(DiskFullError, match="is full: nothing was appended; try again later"):
            await leader.append_one(b"refused")
        assert leader.leader_and_epoch().leader_id == leader.node_id
        await leader.read_barrier()
        assert leader.metrics()["disk-full"] == 1
        monkeypatch.undo()
        await until(lambda: not any(client.status().disk_full for client in together.clients.values()))
        await (await together.leader()).append_one(b"taken")


async def test_a_disk_that_becomes_full_amid_a_backlog_stops_no_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader resigns, and appends that were not written yet hear that they never will be."""
    values = [b"%06d" % number + bytes(4_000) for number in range(40)]
    async with file_quorum(tmp_path, disk_reserve_bytes=64 << 10, fetch_timeout_ms=20_000) as together:
        leader = await filled(together)
        epoch = leader.leader_and_epoch().epoch
        appends = [asyncio.ensure_future(leader.append_one(value, epoch=epoch)) for value in values]
        monkeypatch.setattr("kraftlib.storage.log.space.free_bytes", lambda directory: 0)
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        refused = [
            value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, NotLeaderError)
        ]
        taken = [value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, Appended)]
        assert refused
        assert not [client.status().failure for client in together.clients.values() if client.status().failure]
        monkeypatch.undo()
        await until(lambda: not any(client.status().disk_full for client in together.clients.values()))
        await appended(together, b"the last one")
        await until(lambda: len({client.log_end_offset() for client in together.clients.values()}) == 1)
        log = together.segment(leader.node_id).read_bytes()
    written = {value for batch in read_batches(log) for value in batch.values()}
    assert written.issuperset(taken)
    assert written.isdisjoint(refused)


async def test_a_small_reserve_makes_batches_small_and_the_backlog_no_smaller(tmp_path: Path) -> None:
    values = [b"%06d" % number + bytes(4_000) for number in range(200)]
    async with file_quorum(tmp_path, disk_reserve_bytes=64 << 10, fetch_timeout_ms=20_000) as together:
        leader = await together.leader()
        epoch = leader.leader_and_epoch().epoch
        outcomes = await asyncio.gather(*(leader.append_one(value, epoch=epoch) for value in values))
        assert len(outcomes) == len(values)
        log = together.segment(leader.node_id).read_bytes()
    batches = [batch for batch in read_batches(log, drop_incomplete=True) if not batch.is_control]
    written = [value for batch in batches for value in batch.values()]
    assert written[-len(values) :] == values
    assert max(batch.size for batch in batches) <= 16 << 10


async def test_a_leader_whose_disk_is_full_hands_over_to_a_voter_with_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with file_quorum(tmp_path) as together:
        leader = await filled(together)
        full = together.partition(leader.node_id)
        monkeypatch.setattr("kraftlib.storage.log.space.free_bytes", lambda path: 0 if path == full else 1 << 40)

        await until(lambda: together.clients[leader.node_id].leader_and_epoch().leader_id not in (None, leader.node_id))
        successor = await together.leader()
        assert successor.node_id != leader.node_id
        await successor.append_one(b"taken")
        assert leader.status().disk_full
        assert leader.status().failure is None


async def test_a_scrub_finds_what_nobody_reads_and_has_it_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with file_quorum(tmp_path) as together:
        leader = await filled(together)
        hurt = next(node_id for node_id in together.ids if node_id != leader.node_id)
        flipped(together, hurt)
        node = together.clients[hurt]._engine.node

        def scrub_now() -> None:
            node.housekeeping.scrubber._due_ms = 0
            node.housekeeping.scrubber.look()

        together.clients[hurt]._engine.call(scrub_now)
        await until(lambda: together.clients[hurt].metrics()["scrub-findings-total"] == 1)
        await until(lambda: "the log is repaired" in caplog.text)
        assert together.clients[hurt].metrics()["log-holes"] == 0
        await until(lambda: together.clients[hurt].log_end_offset() == leader.log_end_offset())
        for node_id in together.ids:
            await together.clients[node_id].shutdown(timeout_ms=0)
        together.all_are_alike()


async def test_a_sole_voter_with_damage_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    client = alone(directory=tmp_path / "1")
    await client.start()
    await client.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
    for value in VALUES[:20]:
        await client.append_one(value)
    await client.shutdown(timeout_ms=0)
    partition = tmp_path / "1" / "__cluster_metadata-0"
    (partition / "kraftlib-prefix.json").unlink()
    overwrite(max(partition.glob("*.log")), 5_000, b"????")

    with pytest.raises(Exception, match=r"only voter and its log is damaged.*kraftlib recover"):
        await alone(directory=tmp_path / "1").start()
