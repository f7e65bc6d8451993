"""The download of a snapshot, which may replace the log (KIP-630). `sending` is the other side.

A download is bytes of another replica, taken in chunks over minutes. Each chunk is verified as it comes, batch by
batch, so that damage is noticed early; with the last byte header, footer, CRCs and end are known to be right.
Only then it is frozen, and the old log is deleted only after that (scenario N4).

The downloaded bytes are on the disk under a reserved name, with a note of the snapshot's id and size. After a restart
the download continues behind the last whole batch. Stores without a directory keep it for the life of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Download
from kraftlib.errors import CorruptBatchError, StorageError, ensure
from kraftlib.frozen import define
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.records.snapshot_scan import SnapshotScan
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk, InlineDisk
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.checks import SnapshotChecks, Unchecked
from kraftlib.runtime.snapshots.sending import READ_BYTES, hash_of
from kraftlib.storage.interface import ReplicatedLog, SnapshotSink
from kraftlib.storage.reserve import is_full
from kraftlib.storage.snapshots.download_files import DownloadFiles, DownloadNote
from kraftlib.types import OffsetAndEpoch


@define(kw_only=True)
class _Incoming:
    """A download, under way or interrupted."""

    snapshot_id: OffsetAndEpoch
    sink: SnapshotSink
    scan: SnapshotScan


class LogSnapshots:
    """The snapshots of one log, as the executor receives them. Hashes are made in the `background`."""

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
            return hash_of(incoming.sink.read_at, action.position, step=self._step)

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
        checks = self._capabilities.checks
        if self._downloads is None and checks is not None and snapshot_id in self._log.snapshots():
            # One of our own, which may have been begun before our state was found to be wrong. Files are replaced.
            checks.set_snapshot_aside(snapshot_id, "that of the leader takes its place")
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
