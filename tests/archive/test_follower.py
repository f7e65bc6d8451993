"""An archive of real quorums over real sockets: through elections, kills, restarts and compactions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.follower import Progress, follow
from kraftlib.archive.report import describe, verify
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import CorruptBatchError, DirectoryInUseError, KraftError, NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryTransport
from kraftlib.storage import files
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from tests.archive.archives import an_archive, log_bytes
from tests.ports import free_port
from tests.runtime import quorum as in_memory
from tests.runtime.quorum import PATIENCE_S, TIMING, until


class Voters:
    """A quorum of one on sockets and files, which can be stopped and started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = {1: Endpoint("127.0.0.1", free_port())}
        self.clients: dict[int, RaftClient[bytes]] = {}
        for node_id in self.places:
            format_directory(self.directory(node_id), node_id=node_id, cluster_id="blue", static_voters=[*self.places])

    def directory(self, node_id: int) -> Path:
        return self.root / f"voter{node_id}"

    def log_bytes(self, node_id: int) -> bytes:
        (segment,) = (self.directory(node_id) / "__cluster_metadata-0").glob("*.log")
        return segment.read_bytes()

    async def start(self, node_id: int) -> None:
        voters = tuple(StaticVoter(voter_id, place) for voter_id, place in self.places.items())
        config = RaftConfig(
            node_id=node_id,
            directory=self.directory(node_id),
            voters=voters,
            engine="inline",
            retention_bytes=0,
            **TIMING,
        )
        self.clients[node_id] = RaftClient(config)
        await self.clients[node_id].start()

    async def stop(self, node_id: int) -> None:
        await self.clients.pop(node_id).shutdown(timeout_ms=0)

    async def append(self, *values: bytes) -> int:
        """Append a batch wherever it is taken; return one past its last record."""
        while True:
            for client in list(self.clients.values()):
                with contextlib.suppress(NotLeaderError, OutcomeUnknownError):
                    return (await client.append(values, timeout_ms=0)).last_offset + 1
            await asyncio.sleep(0.005)

    @property
    def servers(self) -> list[Endpoint]:
        return [*self.places.values()]


@contextlib.asynccontextmanager
async def voters(root: Path) -> AsyncIterator[Voters]:
    together = Voters(root)
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            for node_id in together.places:
                await together.start(node_id)
            yield together
    finally:
        for node_id in list(together.clients):
            await together.stop(node_id)


class Following:
    """A follower as a task."""

    def __init__(self, archive: ArchiveDirectory, servers: Sequence[Endpoint], **settings: Any) -> None:
        self.stop = asyncio.Event()
        self.progress: list[Progress] = []
        self.task = asyncio.create_task(
            follow(
                archive, servers, stop=self.stop, on_progress=self.progress.append, segment_bytes=1 << 16, **settings
            )
        )

    async def reach(self, end_offset: int) -> None:
        await until(lambda: self.task.done() or (self.progress and self.progress[-1].end_offset >= end_offset))
        if self.task.done():
            self.task.result()

    async def end(self) -> Progress:
        self.stop.set()
        return await self.task


async def test_what_is_committed_is_archived_byte_for_byte_as_it_comes(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        for number in range(20):
            await following.reach(await quorum.append(f"{number}".encode() * 5_000))
        end = await following.end()

        assert end.bytes_written == len(log_bytes(archive))
        assert log_bytes(archive) == quorum.log_bytes(1)
        assert len(archive.segment_offsets()) > 2
        assert verify(archive).problems == []


async def test_a_follower_goes_on_where_it_ended_and_fetches_nothing_again(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        for number in range(3):
            end_offset = await quorum.append(b"x" * 1_000, f"{number}".encode())
            following = Following(archive, quorum.servers)
            await following.reach(end_offset)
            written = (await following.end()).bytes_written
            assert written < 2_000 or number == 0

        assert log_bytes(archive) == quorum.log_bytes(1)


async def test_leaders_come_and_go_and_the_archive_has_what_they_committed(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "archive", cluster_id="test")
    async with in_memory.quorum() as quorum:
        own = MemoryTransport(quorum.hub, Endpoint("archive", 1))
        servers = [quorum.endpoint(node_id) for node_id in quorum.ids]
        following = Following(archive, servers, transport=own)
        for number in range(3):
            gone = (await quorum.leader()).node_id
            await quorum.stop(gone)
            done = await (await quorum.leader(not_id=gone)).append([f"without {gone}, {number}".encode()])
            await following.reach(done.last_offset + 1)
            await quorum.start(gone)
        leader = await quorum.leader()
        await following.reach((await leader.append([b"last"])).last_offset + 1)
        await following.end()

        batches = quorum._logs[leader.node_id].read(0, 1 << 20)
        assert log_bytes(archive) == b"".join(batch.data for batch in batches)[: len(log_bytes(archive))]
        assert describe(archive).ranges[0].end_offset == batches[-1].last_offset + 1


async def test_where_the_quorum_has_compacted_a_checkpoint_fills_the_gap_and_all_else_stays(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        early = await quorum.append(b"a", b"b")
        await following.reach(early)
        await following.end()

        voter = quorum.clients[1]
        for value in (b"never", b"archived"):
            end_offset = await quorum.append(value)
            snapshot = await voter.create_snapshot([b"state"], offset=end_offset)
        await until(lambda: voter.status().log_start_offset == end_offset)
        after = await quorum.append(b"after")
        following = Following(archive, quorum.servers)
        await following.reach(after)
        await following.end()

        told = describe(archive)
        assert [(held.start_offset, held.end_offset) for held in told.ranges] == [(0, early), (end_offset, after)]
        assert [(gap.start_offset, gap.end_offset) for gap in told.gaps] == [(early, end_offset)]
        assert told.checkpoints == (snapshot,)
        assert verify(archive).problems == []


async def test_a_second_follower_of_one_archive_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        await following.reach(await quorum.append(b"a"))

        with pytest.raises(DirectoryInUseError):
            await Following(archive, quorum.servers).task
        await following.end()


async def test_a_quorum_that_lacks_what_is_archived_is_not_followed(tmp_path: Path) -> None:
    """Its disks were wiped, say, under the same cluster id: what it commits now contradicts the archive."""
    async with voters(tmp_path / "old") as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        await following.reach(await quorum.append(b"a", b"b", b"c", b"d"))
        await following.end()
        before = log_bytes(archive)
    async with voters(tmp_path / "new") as quorum:
        await quorum.append(b"something else")
        with pytest.raises(TimeoutError, match=r"no leader let us go on from offset \d"):
            await follow(archive, quorum.servers, stop=asyncio.Event(), timeout_ms=500)

    assert log_bytes(archive) == before


async def test_another_cluster_is_not_followed(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        await quorum.append(b"a")
        archive = an_archive(tmp_path / "archive", cluster_id="red")
        with pytest.raises(TimeoutError):
            await follow(archive, quorum.servers, stop=asyncio.Event(), timeout_ms=500)

        assert log_bytes(archive) == b""


async def test_damage_stops_a_follower_before_it_writes(tmp_path: Path) -> None:
    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        for _ in range(3):
            await following.reach(await quorum.append(b"x" * 100))
        await following.end()
        (segment,) = archive.partition.glob("*.log")
        data = bytearray(segment.read_bytes())
        data[100] ^= 1
        segment.write_bytes(data)

        with pytest.raises(CorruptBatchError):
            await Following(archive, quorum.servers).task


@pytest.mark.parametrize("settings", [{"segment_bytes": 1}, {"servers": []}])
async def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], tmp_path: Path) -> None:
    arguments = {"servers": [Endpoint("127.0.0.1", 1)], **settings}
    with pytest.raises(KraftError):
        await follow(an_archive(tmp_path), stop=asyncio.Event(), **arguments)  # type: ignore[arg-type]


async def test_who_is_cancelled_amid_a_write_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread cannot be stopped: it would write into whatever file has the number of the closed one by then."""
    began, may_go, write = threading.Event(), threading.Event(), files.write_all_at

    def slow(descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> None:
        if b"second" in b"".join(parts) and threading.current_thread() is not threading.main_thread():
            began.set()
            may_go.wait(PATIENCE_S)
        write(descriptor, parts, position)

    async with voters(tmp_path) as quorum:
        archive = an_archive(tmp_path / "archive")
        following = Following(archive, quorum.servers)
        await following.reach(await quorum.append(b"first"))
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_all_at", slow)
            end_offset = await quorum.append(b"second")
            await until(began.is_set)
            for _ in range(2):
                following.task.cancel()
                await asyncio.wait([following.task], timeout=0.05)
            with pytest.raises(DirectoryInUseError):
                archive.lock()
            may_go.set()
            with pytest.raises(asyncio.CancelledError):
                await following.task
        assert describe(archive).ranges[-1].end_offset >= end_offset
        assert verify(archive).problems == []
