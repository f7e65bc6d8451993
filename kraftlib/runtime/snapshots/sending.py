"""Snapshots for other replicas: their chunks, and hashes of the parts that another replica has already (KIP-630)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.errors import StorageError
from kraftlib.runtime.disk import Disk, InlineDisk
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.checks import SnapshotChecks, Unchecked
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashResponse

logger: Final = logging.getLogger(__name__)

READ_BYTES: Final = 1024 * 1024

HASHES_MAX: Final = 16
"""The number of hashes for others that may wait for the background, which has to look at the space on the disk, too."""

BEGUN_MAX: Final = 1_024
"""The number of downloads that are remembered. It is bounded, since a client may send any id."""


class SnapshotSender:
    """Sends the snapshots of one log. Hashes are made in the `background`."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        background: Disk | None = None,
        step: Callable[[], None] = unhurried,
        checks: SnapshotChecks | Unchecked | None = None,
    ) -> None:
        """`checks` know which of the stored snapshots are whole; without them each is believed."""
        self._log = log
        self._background = background or InlineDisk()
        self._step = step
        self._checks = checks or Unchecked()
        self._hashing = 0
        self._begun: set[tuple[ReplicaId, OffsetAndEpoch]] = set()
        """The replicas that were sent a part of a snapshot known to be whole, and of which snapshot."""

    def when_checked(self, action: act.SendSnapshotChunk, then: Callable[[], None]) -> None:
        """Call `then` once the snapshot was read to its end: Kafka's followers load a snapshot without a check.

        It is read once more for a replica that begins anew what it was sent before: the replica may have found damage.
        A request that is repeated while the snapshot is being read has that one reading.
        """
        if self._checks.is_sound(action.snapshot_id):
            self._note_download(action)
        self._checks.when_checked(action.snapshot_id, then)

    def _note_download(self, action: act.SendSnapshotChunk) -> None:
        download = (action.replica_id, action.snapshot_id)
        if action.position == 0 and download in self._begun:
            self._begun.discard(download)
            self._checks.doubt(action.snapshot_id)
            return
        if len(self._begun) >= BEGUN_MAX:
            self._begun.clear()
        self._begun.add(download)

    def chunk(self, action: act.SendSnapshotChunk) -> FetchSnapshotResponse:
        """Return the response with size and bytes put into its one partition, or with the error that it has none.

        A snapshot that cannot be read is read to its end before the next chunk of it leaves.
        """
        if action.snapshot_id not in self._log.snapshots() or self._checks.is_damaged(action.snapshot_id):
            return _with_partition(action.response, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        try:
            return self._read_chunk(action)
        except StorageError as error:
            logger.warning("a chunk of snapshot %s cannot be sent: %s", action.snapshot_id, error)
            self._checks.doubt(action.snapshot_id)
            return _with_partition(action.response, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)

    def _read_chunk(self, action: act.SendSnapshotChunk) -> FetchSnapshotResponse:
        source = self._log.open_snapshot(action.snapshot_id)
        try:
            if action.position >= source.size:
                return _with_partition(action.response, error_code=ErrorCode.POSITION_OUT_OF_RANGE)
            data = source.read_at(action.position, action.max_bytes)
            return _with_partition(action.response, size=source.size, unaligned_records=data)
        finally:
            source.close()

    def hash(self, action: act.SendSnapshotHash, done: Callable[[SnapshotHashResponse], None]) -> None:
        """Hash the first bytes of a stored snapshot beside the loop, and give `done` the response.

        If too many replicas have asked already, the response says to begin at 0.
        """
        if self._hashing >= HASHES_MAX:
            done(SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND))
            return
        self._hashing += 1

        def work() -> SnapshotHashResponse:
            source = self._log.open_snapshot(action.snapshot_id)
            try:
                if action.position > source.size:
                    return SnapshotHashResponse(error_code=ErrorCode.POSITION_OUT_OF_RANGE)
                digest = hash_of(source.read_at, action.position, step=self._step)
                return SnapshotHashResponse(size=source.size, digest=digest)
            finally:
                source.close()

        def finished(response: Any, error: BaseException | None) -> None:
            self._hashing -= 1
            # It was deleted meanwhile, or cannot be read: the follower begins at 0 with the snapshot that the leader
            # names then.
            done(response if error is None else SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND))

        self._background.run(work, finished)


def hash_of(read_at: Callable[[int, int], bytes], size: int, *, step: Callable[[], None]) -> bytes:
    """Return the SHA-256 of the first `size` bytes; `step` is called after each piece."""
    import hashlib  # only here: it takes milliseconds to load, and most replicas never hash a snapshot

    digest = hashlib.sha256()
    for position in range(0, size, READ_BYTES):
        digest.update(read_at(position, min(READ_BYTES, size - position)))
        step()
    return digest.digest()


def _with_partition(response: FetchSnapshotResponse, **changes: Any) -> FetchSnapshotResponse:
    """Return the response with fields of its one partition changed."""
    topic = response.topics[0]
    partition = attrs.evolve(topic.partitions[0], **changes)
    return attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),))
