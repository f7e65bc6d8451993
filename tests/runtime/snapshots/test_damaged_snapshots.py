"""Checkpoints that are not whole, in real files and real quorums over loopback: none is sent, loaded or counted."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlib.cli.key_value import KeyValueStore
from kraftlib.config import RaftConfig
from kraftlib.errors import KraftError, NotLeaderError, OutcomeUnknownError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage import names
from kraftlib.storage.directory import format_directory
from tests.ports import local_voters
from tests.runtime.quorum import PATIENCE_S, TIMING, leader_of, until


class Together:
    """Voters with a directory, a key-value store and a socket each; snapshots are taken by hand."""

    def __init__(self, path: Path, *, voters: int, segment_bytes: int = 1_000, **config: Any) -> None:
        self.path = path
        self.segment_bytes = segment_bytes
        self.voters = local_voters(range(1, voters + 1))
        self.config = {**TIMING, "snapshot_interval_bytes": 0, "snapshot_interval_ms": 0, **config}
        self.clients: dict[int, RaftClient[Any]] = {}
        self.stores: dict[int, KeyValueStore] = {}
        self.written: dict[str, str] = {}
        for voter in self.voters:
            ids = [one.id for one in self.voters]
            format_directory(path / str(voter.id), node_id=voter.id, cluster_id="test", static_voters=ids)

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or [voter.id for voter in self.voters]:
            config = RaftConfig(node_id=node_id, voters=self.voters, directory=self.path / str(node_id), **self.config)
            # Smaller than anybody may ask for, so that a log of a few records has no segment from before its start.
            object.__setattr__(config, "segment_bytes", self.segment_bytes)
            store = KeyValueStore()
            client: RaftClient[Any] = RaftClient(
                config, state_machine=store, serde=JsonSerde(), random=random.Random(node_id)
            )
            await client.start()
            self.clients[node_id], self.stores[node_id] = client, store

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids:
            await self.clients.pop(node_id).shutdown(timeout_ms=0)

    async def leader(self) -> RaftClient[Any]:
        """Return the one that has committed in its epoch."""
        leader = await leader_of(self.clients.values(), probe={"key": "probe", "value": "x"})
        self.written["probe"] = "x"
        return leader

    async def _put(self, client: RaftClient[Any], key: str, value: str) -> None:
        await client.propose({"key": key, "value": value})
        self.written[key] = value

    async def put(self, count: int) -> None:
        leader = await self.leader()
        for _ in range(count):
            key = f"key {len(self.written)}"
            while key not in self.written:
                try:
                    await self._put(leader, key, "value " * 20)
                except (NotLeaderError, OutcomeUnknownError):  # a busy machine may cost it its leadership
                    leader = await self.leader()

    async def snapshot(self) -> None:
        """Have every replica take one, and wait until the log begins at the newest."""
        await self.put(1)
        await self.alike()
        for client in self.clients.values():
            await client.create_snapshot()

    async def compact(self, count: int) -> None:
        """Write and take snapshots until the log of every replica that runs begins at its only one."""
        for _ in range(2):
            await self.put(count)
            await self.snapshot()
        await until(lambda: all(len(self.checkpoints(node_id)) == 1 for node_id in self.clients))

    async def alike(self) -> None:
        """Wait until every store has what was written."""
        await until(lambda: all(self.stores[node_id].items == self.written for node_id in self.clients))

    def partition(self, node_id: int) -> Path:
        return self.path / str(node_id) / names.PARTITION_DIRECTORY

    def checkpoints(self, node_id: int) -> list[Path]:
        return sorted(self.partition(node_id).glob("*.checkpoint"))

    async def close(self) -> None:
        await self.stop(*list(self.clients))


@asynccontextmanager
async def together(path: Path, *, voters: int = 3, **config: Any) -> AsyncIterator[Together]:
    made = Together(path, voters=voters, **config)
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            await made.start()
            yield made
    finally:
        await made.close()


COMPACTING = {"retention_bytes": 1, "retention_interval_ms": 50}
"""The log begins at the newest snapshot as soon as there are two."""


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a checkpoint where it lies, though it is read-only."""
    data = change(path.read_bytes())
    os.chmod(path, 0o600)
    path.write_bytes(data)
    os.chmod(path, 0o400)


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit has changed": flipped,
    "the header has changed": lambda data: data[:40] + bytes([data[40] ^ 4]) + data[41:],
    "it is cut": lambda data: data[: len(data) // 2],
    "the footer is missing": lambda data: data[:-75],
    "bytes follow the footer": lambda data: data + data[-75:],
    "it is empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_replica_whose_only_snapshot_is_damaged_fetches_another_and_goes_on(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with together(tmp_path, **COMPACTING) as quorum:
        await quorum.compact(20)
        await quorum.put(5)
        await quorum.alike()
        leader = await quorum.leader()
        hurt = next(voter.id for voter in quorum.voters if voter.id != leader.node_id)
        await quorum.stop(hurt)
        (path,) = quorum.checkpoints(hurt)
        rewrite(path, damage)

        await quorum.start(hurt)
        await quorum.alike()
        await until(lambda: quorum.clients[hurt].status().abstains is None)
        assert "is damaged and counts no more" in caplog.text
        assert "stands in for the missing records" in caplog.text
        assert [found.name for found in (quorum.partition(hurt) / names.DAMAGED_DIRECTORY).iterdir()] == [path.name]
        await quorum.put(3)
        await quorum.alike()
        # And once more without any help: what was fetched is whole.
        await quorum.stop(*list(quorum.clients))
        caplog.clear()
        await quorum.start()
        await quorum.put(1)
        await quorum.alike()
        assert "missing" not in caplog.text
        assert "damaged" not in caplog.text


async def test_a_first_segment_that_reaches_back_stands_in_for_a_damaged_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only whole segments are deleted, so the file may still have what is not counted to the log any more."""
    async with together(tmp_path, voters=1, segment_bytes=1 << 20, **COMPACTING) as alone:
        await alone.compact(20)
        await alone.stop(1)
        rewrite(alone.checkpoints(1)[0], flipped)
        await alone.start(1)
        await alone.put(1)
        await alone.alike()
        assert alone.clients[1].status().log_start_offset == 0
        assert "is damaged and counts no more" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_an_older_snapshot_and_the_log_stand_in_for_a_damaged_one(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Even with nobody to ask."""
    async with together(tmp_path, voters=1) as alone:
        await alone.put(20)
        await alone.snapshot()
        await alone.put(20)
        await alone.snapshot()
        await alone.put(1)
        await alone.stop(1)
        older, newer = alone.checkpoints(1)
        rewrite(newer, damage)

        await alone.start(1)
        await alone.put(1)
        await alone.alike()
        assert older in alone.checkpoints(1)
        assert newer not in alone.checkpoints(1)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_scrub_that_finds_a_damaged_snapshot_has_a_new_one_taken(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    async with together(tmp_path, voters=1, **COMPACTING) as alone:
        await alone.compact(20)
        (path,) = alone.checkpoints(1)
        await alone.put(1)
        rewrite(path, damage)
        scrub(alone.clients[1])

        await until(lambda: alone.checkpoints(1) and path not in alone.checkpoints(1))
        await until(lambda: alone.clients[1].status().abstains is None)
        await alone.put(1)
        await alone.stop(1)
        await alone.start(1)
        await alone.put(1)
        await alone.alike()


def scrub(client: RaftClient[Any]) -> None:
    scrubber = client._engine.node.housekeeping.scrubber

    def now() -> None:
        scrubber._due_ms = 0
        scrubber.look()

    client._engine.call(now)


async def compacted_without_one(quorum: Together) -> int:
    """Stop a follower, and let the others write and compact until each has one checkpoint; return who is missing."""
    leader = await quorum.leader()
    late = next(voter.id for voter in quorum.voters if voter.id != leader.node_id)
    await quorum.stop(late)
    await quorum.compact(20)
    return late


async def test_a_leader_sends_nothing_of_a_snapshot_that_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new replica gets its state all the same, and Kafka's would load what it gets without a look."""
    async with together(tmp_path, **COMPACTING) as quorum:
        late = await compacted_without_one(quorum)
        both = list(quorum.clients)
        await quorum.stop(*both)
        rewrite(quorum.checkpoints(both[0])[0], flipped)
        await quorum.start()
        await quorum.put(1)
        await quorum.alike()
        await until(lambda: all(client.status().abstains is None for client in quorum.clients.values()))
        assert "damaged snapshot" not in quorum.clients[late].status().refused


@pytest.mark.parametrize("is_lost", [False, True], ids=["other bytes", "no bytes"])
async def test_a_snapshot_that_rots_after_its_check_holds_up_no_follower(
    is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has verified it, and believes it; the follower that downloads it finds out."""
    async with together(tmp_path, **COMPACTING) as quorum:
        late = await compacted_without_one(quorum)
        leader = await quorum.leader()
        (path,) = quorum.checkpoints(leader.node_id)
        if is_lost:
            lost, pread = path.stat().st_ino, os.pread

            def failing(descriptor: int, size: int, position: int) -> bytes:
                if os.fstat(descriptor).st_ino == lost:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return pread(descriptor, size, position)

            monkeypatch.setattr(os, "pread", failing)
        else:
            rewrite(path, flipped)
        await quorum.start(late)
        await quorum.put(1)
        await quorum.alike()
        assert leader.status().failure is None


@pytest.mark.parametrize("gone", ["all", "first", "snapshot"])
async def test_a_replica_that_has_lost_files_gets_what_was_in_them(
    gone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with together(tmp_path, **COMPACTING) as quorum:
        await quorum.compact(15)
        await quorum.put(20)
        await quorum.alike()
        leader = await quorum.leader()
        hurt = next(voter.id for voter in quorum.voters if voter.id != leader.node_id)
        await quorum.stop(hurt)
        segments = sorted(quorum.partition(hurt).glob("*.log"))
        assert len(segments) > 3
        lost = {"all": segments, "first": segments[:2], "snapshot": quorum.checkpoints(hurt)}[gone]
        for path in lost:
            path.unlink()

        def is_repaired() -> bool:
            return "the log is repaired" in caplog.text or "stands in for the missing records" in caplog.text

        await quorum.start(hurt)
        assert quorum.clients[hurt].status().abstains is not None or is_repaired()
        await quorum.alike()
        await until(lambda: quorum.clients[hurt].status().abstains is None)
        assert is_repaired()
        await quorum.put(3)
        await quorum.alike()
        await quorum.stop(*list(quorum.clients))
        caplog.clear()
        await quorum.start()
        await quorum.put(1)
        await quorum.alike()
        assert "missing" not in caplog.text


async def test_a_sole_voter_that_has_lost_its_segments_does_not_start(tmp_path: Path) -> None:
    async with together(tmp_path, voters=1) as alone:
        await alone.put(15)
        await alone.stop(1)
        for path in alone.partition(1).glob("*.log"):
            path.unlink()
        with pytest.raises(KraftError, match="only voter and its log is damaged"):
            await alone.start(1)
        for path in alone.partition(1).glob("*.log"):
            path.unlink()
        (alone.partition(1) / names.SYNC_POINT).unlink()
        with pytest.raises(KraftError, match="only voter and has lost"):
            await alone.start(1)
