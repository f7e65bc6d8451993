"""Follow a quorum and archive what it commits.

The replica is an ordinary observer with an `ArchiveLog`; it finds the leader, fetches, truncates and downloads
checkpoints as any other. The loop here waits until the high watermark passes the end of the archive, has a thread write
and sync what lies between, and begins again. Everything that arrives meanwhile shares the next write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.log import ArchiveLog
from kraftlib.archive.writer import SEGMENT_BYTES, SEGMENT_MS, ArchiveWriter
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, StorageError, TimedOutError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.storage.memory import MemoryQuorumStateStore
from kraftlib.types import ElectionState, Endpoint, Epoch, Offset

SEGMENT_BYTES_MIN: Final = 1 << 16
SEGMENT_BYTES_MAX: Final = 2**31 - 1


@attrs.frozen(kw_only=True)
class Progress:
    """The progress of an archive. Everything up to it is durable."""

    end_offset: Offset
    """One past the last record."""
    epoch: Epoch
    """Of the last record."""
    high_watermark: Offset
    """One past the last record that is known to be committed."""
    bytes_written: int
    """Since the follower was started."""


class Stop(Protocol):
    """The signal to end, such as an `asyncio.Event`."""

    async def wait(self) -> Any:
        """Return when it is."""
        ...


async def follow(
    directory: ArchiveDirectory,
    servers: Sequence[Endpoint],
    *,
    stop: Stop,
    on_progress: Callable[[Progress], object] = lambda progress: None,
    segment_bytes: int = SEGMENT_BYTES,
    segment_ms: int = SEGMENT_MS,
    timeout_ms: int = 10_000,
    until_offset: Offset | None = None,
    tls: TlsConfig | None = None,
    sasl: SaslConfig | None = None,
    **client_settings: Any,
) -> Progress:
    """Archive what the quorum behind `servers` commits until `stop`, or until the archive reaches `until_offset`.

    `on_progress` is called on the loop after every write. `tls` has the files of TLS, `sasl` user and
    password, and `client_settings` go to `RaftClient` (`client_ssl`).
    Returns how far it came.

    Raises: TimedOutError, if no leader is found within `timeout_ms`, or if one is found and then refuses us;
    DirectoryInUseError, CorruptBatchError, ReplicaFailedError; StorageError, also if it was made a voter.
    """
    if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX:
        raise ConfigError(f"segment_bytes={segment_bytes} must be {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}")
    if not servers:
        raise ConfigError("an archive follows a quorum: name the address of one of its controllers")
    lock = directory.lock()
    try:
        writer = ArchiveWriter(directory, segment_bytes=segment_bytes, segment_ms=segment_ms)
        try:
            client: RaftClient[bytes] = RaftClient(
                attrs.evolve(observer_config(directory, servers), tls=tls, sasl=sasl),
                log=(log := ArchiveLog(directory, writer)),
                elections=MemoryQuorumStateStore(ElectionState(epoch=writer.last_epoch)),
                random=random.Random(directory.node_id),
                **client_settings,
            )
            async with client:
                await _reach_leader(client, writer, timeout_ms)
                return await _write_on(client, log, writer, stop, on_progress, until_offset)
        finally:
            writer.close()
    finally:
        lock.release()


def observer_config(directory: ArchiveDirectory, servers: Sequence[Endpoint]) -> RaftConfig:
    """Return the configuration of the replica behind an archive."""
    return RaftConfig(
        node_id=directory.node_id,
        cluster_id=directory.cluster_id,
        bootstrap_servers=tuple(servers),
        engine="inline",
        retention_bytes=-1,
        retention_ms=-1,
    )


async def _reach_leader(client: RaftClient[bytes], writer: ArchiveWriter, timeout_ms: int) -> None:
    """Wait until the leader has answered a Fetch: it accepts the end of the archive as the beginning of its log."""
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            await client.wait_for_leader()
            if writer.end_offset > 0:
                await client.wait_for_offset(writer.end_offset - 1)
    except TimeoutError:
        raise TimedOutError(
            f"within {timeout_ms} ms no leader let us go on from offset {writer.end_offset} of epoch"
            f" {writer.last_epoch}: {client.status()}"
        ) from None


async def _write_on(
    client: RaftClient[bytes],
    log: ArchiveLog,
    writer: ArchiveWriter,
    stop: Stop,
    on_progress: Callable[[Progress], object],
    until_offset: Offset | None,
) -> Progress:
    stopped = asyncio.ensure_future(stop.wait())
    ended = asyncio.ensure_future(client.wait_closed())
    try:
        while True:
            progress = Progress(
                end_offset=writer.end_offset,
                epoch=writer.last_epoch,
                high_watermark=client.high_watermark() or 0,
                bytes_written=writer.bytes_written,
            )
            on_progress(progress)
            if until_offset is not None and progress.end_offset >= until_offset:
                return progress
            if not await _first(client.wait_for_offset(progress.end_offset), stopped, ended):
                return progress
            _refuse_to_vote(client)
            await _write(log, client.high_watermark() or 0)
    finally:
        stopped.cancel()
        ended.cancel()


async def _write(log: ArchiveLog, high_watermark: Offset) -> None:
    """Write on a thread. A task that is cancelled waits for it: it might write into a file that was closed by then."""
    writing = asyncio.ensure_future(asyncio.to_thread(log.write_committed, high_watermark))
    try:
        await asyncio.shield(writing)
        log.forget_written()
    finally:
        while not writing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([writing])


async def _first(more: Awaitable[Any], stopped: asyncio.Future[Any], ended: asyncio.Future[None]) -> bool:
    """Wait for one of the three; return whether it is `more`. Raises: ReplicaFailedError."""
    waiting = asyncio.ensure_future(more)
    try:
        await asyncio.wait([waiting, stopped, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
        if waiting.done():
            waiting.result()
        return not stopped.done() and not ended.done()
    finally:
        waiting.cancel()


def _refuse_to_vote(client: RaftClient[bytes]) -> None:
    if client.status().is_voter:
        raise StorageError(
            f"replica {client.node_id} was made a voter, and it is an archive, which keeps nothing that is not"
            " committed: remove it from the voters at once"
        )
