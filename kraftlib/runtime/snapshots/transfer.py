"""The transfer of snapshots: chunks for other replicas, and the download that may replace the log (KIP-630).

A download is bytes of another replica, taken in chunks over minutes. Each chunk is verified as it comes, batch by
batch, so that damage is noticed early; with the last byte header, footer, CRCs and end are known to be right.
Only then it is frozen, and the old log is deleted only after that (scenario N4).

The downloaded bytes are on the disk under a reserved name, with a note of the snapshot's id and size. After a restart
the download continues behind the last whole batch. Stores without a directory keep it for the life of the process.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Download
from kraftlib.errors import CorruptBatchError, StorageError, ensure
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.snapshot_scan import SnapshotScan
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk, InlineDisk
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.checks import SnapshotChecks, Unchecked
from kraftlib.storage.interface import ReplicatedLog, SnapshotSink
from kraftlib.storage.reserve import is_full
from kraftlib.storage.snapshots.download_files import DownloadFiles, DownloadNote
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


@attrs.define(kw_only=True)
class _Incoming:
    """A download, under way or interrupted."""

    snapshot_id: OffsetAndEpoch
    sink: SnapshotSink
    scan: SnapshotScan


class LogSnapshots:
    """The snapshots of one log, as the executor sends and receives them. Hashes are made in the `background`."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        downloads: DownloadFiles | None = None,
        background: Disk | None = None,
        step: Callable[[], None] = unhurried,
        checks: SnapshotChecks | Unchecked | None = None,
    ) -> None:
        """`checks` know which of the stored snapshots are whole; without them each is believed."""
        self._log = log
        self._capabilities = capabilities_of(log)
        self._downloads = downloads
        self._background = background or InlineDisk()
        self._step = step
        self._incoming: _Incoming | None = None
        self._checks = checks or Unchecked()
        self._hashing = 0
        self._begun: set[tuple[ReplicaId, OffsetAndEpoch]] = set()
        """The replicas that were sent a part of a snapshot known to be whole, and of which snapshot."""

    # --- to others ---------------------------------------------------------------------------------------------------

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
                digest = self._hashed(source.read_at, action.position)
                return SnapshotHashResponse(size=source.size, digest=digest)
            finally:
                source.close()

        def finished(response: Any, error: BaseException | None) -> None:
            self._hashing -= 1
            # It went meanwhile, or cannot be read: whoever asks begins at 0 with what the leader names then.
            done(response if error is None else SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND))

        self._background.run(work, finished)

    def _hashed(self, read_at: Callable[[int, int], bytes], size: int) -> bytes:
        digest = hashlib.sha256()
        for position in range(0, size, READ_BYTES):
            digest.update(read_at(position, min(READ_BYTES, size - position)))
            self._step()
        return digest.digest()

    # --- from the leader, on the disk --------------------------------------------------------------------------------

    def kept(self) -> Download | None:
        """Return the download of an earlier life, up to its last whole batch. Called once, before anything else."""
        found = self._downloads.reopen() if self._downloads is not None else None
        if found is None or self._downloads is None:
            return None
        note, sink = found
        scan = SnapshotScan(epoch=note.snapshot_id.epoch)
        try:
            for position in range(0, sink.size, READ_BYTES):
                scan.feed(sink.read_at(position, READ_BYTES), decode=False)
        except StorageError:
            # Torn by a crash, foreign, or lost by the disk: from the beginning.
            scan = SnapshotScan(epoch=note.snapshot_id.epoch)
        scan.forget_rest()
        if scan.position == 0 or note.size < scan.position:
            sink.abort()
            self._downloads.drop()
            return None
        sink.cut(scan.position)
        self._incoming = _Incoming(snapshot_id=note.snapshot_id, sink=sink, scan=scan)
        return Download(snapshot_id=note.snapshot_id, source_epoch=None, position=scan.position, size=note.size)

    def write(self, action: act.WriteSnapshotChunk) -> ev.SnapshotChunkWritten | ev.SnapshotRefused:
        """Add bytes to the download, beginning it anew at position 0; refuse those that no snapshot has there."""
        try:
            if action.position == 0:
                self.drop()
                self._incoming = self._begin(action)
            incoming = self._of(action.snapshot_id)
            size = incoming.sink.size
            ensure(size == action.position, f"chunk at {action.position} does not continue the download at {size}")
            incoming.sink.write(action.data)
        except StorageError as error:
            return self._given_up(action.snapshot_id, error)
        try:
            incoming.scan.feed(action.data)
        except CorruptBatchError as error:
            self.drop()
            return ev.SnapshotRefused(action.snapshot_id, str(error))
        return ev.SnapshotChunkWritten(action.snapshot_id, incoming.sink.size)

    def _given_up(self, snapshot_id: OffsetAndEpoch, error: StorageError) -> ev.SnapshotRefused:
        """Release the space of the download if the disk is full: the download begins again later."""
        if not is_full(error):
            raise error
        self.drop()
        return ev.SnapshotRefused(snapshot_id, str(error), lacks_space=True)

    def _begin(self, action: act.WriteSnapshotChunk) -> _Incoming:
        snapshot_id = action.snapshot_id
        if self._downloads is None:
            sink = self._log.create_snapshot(snapshot_id)
        else:
            note = DownloadNote(snapshot_id=snapshot_id, size=action.size)
            sink = self._downloads.create(note)
        return _Incoming(snapshot_id=snapshot_id, sink=sink, scan=SnapshotScan(epoch=snapshot_id.epoch))

    def hash_download(self, action: act.HashDownload, done: Callable[[ev.Event], None]) -> None:
        """Hash the first bytes of the download beside the loop, and call `done` on the loop."""
        incoming = self._incoming

        def work() -> bytes:
            if incoming is None or incoming.snapshot_id != action.snapshot_id:
                raise StorageError(f"there is no download of {action.snapshot_id}")
            return self._hashed(incoming.sink.read_at, action.position)

        def finished(digest: Any, error: BaseException | None) -> None:
            done(ev.DownloadHashed(action.snapshot_id, action.position, digest if error is None else b""))

        self._background.run(work, finished)

    def drop(self) -> None:
        """Forget the download, if there is one."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.sink.abort()
        if self._downloads is not None:
            self._downloads.drop()

    def install(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotInstalled | ev.SnapshotRefused:
        """Freeze the download and let it replace the log; or refuse it, if it is not whole, and change nothing."""
        frozen = self._freeze(snapshot_id)
        if isinstance(frozen, ev.SnapshotRefused):
            return frozen
        self._log.install_snapshot(snapshot_id)
        return ev.SnapshotInstalled(snapshot_id, frozen)

    def adopt(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotAdopted | ev.SnapshotRefused:
        """Freeze the download and let it replace the missing records below its end; the log behind it stays."""
        frozen = self._freeze(snapshot_id)
        if isinstance(frozen, ev.SnapshotRefused):
            return frozen
        log = self._log
        log.delete_before(snapshot_id)
        log.flush()
        return ev.SnapshotAdopted(
            snapshot_id=snapshot_id,
            controls=frozen,
            holes=self._capabilities.holes(),
            control_batches=self._capabilities.control_batches(),
        )

    def _freeze(self, snapshot_id: OffsetAndEpoch) -> tuple[object, ...] | ev.SnapshotRefused:
        """Let the download be a snapshot, and return the control records of its header; or refuse it."""
        incoming = self._of(snapshot_id)
        scan = incoming.scan
        try:
            scan.finish()
        except CorruptBatchError as error:
            self.drop()
            return ev.SnapshotRefused(snapshot_id, str(error))
        try:
            incoming.sink.freeze()
        except StorageError as error:
            return self._given_up(snapshot_id, error)
        self._incoming = None
        self._checks.note_sound(snapshot_id)
        if self._downloads is not None:
            self._downloads.drop()
        controls: list[object] = []
        if scan.kraft_version:
            controls.append(KRaftVersionRecord(kraft_version=scan.kraft_version))
        if scan.voters is not None:
            controls.append(scan.voters)
        return tuple(controls)

    # --- damaged ones ------------------------------------------------------------------------------------------------

    def set_aside(self, action: act.SetSnapshotAside) -> ev.SnapshotLost:
        """Forget a stored snapshot that is damaged, and describe the log without it."""
        if self._capabilities.checks is not None:
            self._capabilities.checks.set_snapshot_aside(action.snapshot_id, action.reason)
        return ev.SnapshotLost(
            snapshot_id=action.snapshot_id,
            start_offset=self._log.start_offset,
            epoch_starts=tuple(self._log.epoch_starts()),
            holes=self._capabilities.holes(),
        )

    def _of(self, snapshot_id: OffsetAndEpoch) -> _Incoming:
        incoming = self._incoming
        ensure(incoming is not None and incoming.snapshot_id == snapshot_id, f"no download of {snapshot_id}")
        return incoming  # type: ignore[return-value]  # just ensured


def _with_partition(response: FetchSnapshotResponse, **changes: Any) -> FetchSnapshotResponse:
    """Return the response with fields of its one partition changed."""
    topic = response.topics[0]
    partition = attrs.evolve(topic.partitions[0], **changes)
    return attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),))
