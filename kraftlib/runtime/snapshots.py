"""Snapshots on their way between replicas: chunks to others, and the download that may replace the log (KIP-630).

A download is bytes of another replica, taken in chunks over minutes. It is believed only as a whole: every batch,
header, footer and end are verified before it is frozen, and the old log goes only after that (reliability N4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError, CorruptBatchError, ensure
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.storage.interface import ReplicatedLog, SnapshotSink
from kraftlib.types import Offset, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse


class LogSnapshots:
    """The snapshots of one log, as the executor sends and receives them."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self._download: tuple[OffsetAndEpoch, SnapshotSink] | None = None

    # --- to others ---------------------------------------------------------------------------------------------------

    def chunk(self, action: act.SendSnapshotChunk) -> FetchSnapshotResponse:
        """Return the response with size and bytes put into its one partition, or with the error that it has none."""
        if action.snapshot_id not in self._log.snapshots():
            return _with_partition(action.response, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        source = self._log.open_snapshot(action.snapshot_id)
        try:
            if action.position >= source.size:
                return _with_partition(action.response, error_code=ErrorCode.POSITION_OUT_OF_RANGE)
            data = source.read_at(action.position, action.max_bytes)
            return _with_partition(action.response, size=source.size, unaligned_records=data)
        finally:
            source.close()

    # --- from the leader, on the disk --------------------------------------------------------------------------------

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> int:
        """Add bytes to the download, beginning it anew at position 0; return its size."""
        if position == 0:
            self.drop()
            self._download = (snapshot_id, self._log.create_snapshot(snapshot_id))
        sink = self._sink_of(snapshot_id)
        ensure(sink.size == position, f"chunk at {position} does not continue the download at {sink.size}")
        sink.write(data)
        return sink.size

    def drop(self) -> None:
        """Forget the download, if there is one."""
        if self._download is not None:
            _, sink = self._download
            self._download = None
            sink.abort()

    def install(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotInstalled | ev.SnapshotRefused:
        """Verify the download, freeze it and let it replace the log; or refuse it, and change nothing."""
        sink = self._sink_of(snapshot_id)
        try:
            reader = SnapshotReader(_Unfrozen(sink), epoch=snapshot_id.epoch)
            reader.verify()
        except CorruptBatchError as error:
            self.drop()
            return ev.SnapshotRefused(snapshot_id, str(error))
        self._download = None
        sink.freeze()
        self._log.install_snapshot(snapshot_id)
        controls: list[object] = []
        if reader.kraft_version:
            controls.append(KRaftVersionRecord(kraft_version=reader.kraft_version))
        if reader.voters is not None:
            controls.append(reader.voters)
        return ev.SnapshotInstalled(snapshot_id, tuple(controls))

    def _sink_of(self, snapshot_id: OffsetAndEpoch) -> SnapshotSink:
        ensure(self._download is not None and self._download[0] == snapshot_id, f"no download of {snapshot_id}")
        return self._download[1]  # type: ignore[index]  # just ensured


@attrs.frozen(kw_only=True)
class SnapshotPlan:
    """A snapshot that is to be written: everything that must be known before the loop goes on."""

    snapshot_id: OffsetAndEpoch
    timestamp_ms: int
    """Of the last record that it covers."""
    kraft_version: int
    voters: VotersRecord | None
    values: Sequence[bytes]

    def write(self, log: ReplicatedLog) -> None:
        """Write it and make it durable. Takes its time, so it runs on a thread of its own, beside log and flushes."""
        sink = log.create_snapshot(self.snapshot_id)
        try:
            writer = SnapshotWriter(
                sink.write,
                epoch=self.snapshot_id.epoch,
                last_contained_log_timestamp=self.timestamp_ms,
                kraft_version=self.kraft_version,
                voters=self.voters,
            )
            writer.append(self.values)
            writer.freeze()
            sink.freeze()
        except BaseException:
            sink.abort()
            raise


def plan_snapshot(
    log: ReplicatedLog, values: Sequence[bytes], *, offset: Offset, high_watermark: Offset, view: LogView
) -> SnapshotPlan:
    """Plan the snapshot that replaces every record below `offset`.

    Raises: ConfigError, if that is not committed, not in the log any more, or in the midst of a batch (reliability N7).
    """
    if not log.start_offset < offset <= high_watermark:
        raise ConfigError(
            f"a snapshot cannot end at offset {offset}: it replaces committed records that the log still holds, from "
            f"{log.start_offset + 1} to {high_watermark}"
        )
    last = log.read(offset - 1, 1)[0]
    if last.last_offset != offset - 1:
        raise ConfigError(f"a snapshot cannot end at offset {offset}, in the midst of {last}: take {last.end_offset}")
    kraft_version = view.kraft_version.at(offset - 1)
    return SnapshotPlan(
        snapshot_id=OffsetAndEpoch(epoch=last.epoch, offset=offset),
        timestamp_ms=last.max_timestamp,
        kraft_version=kraft_version,
        voters=view.voters.at(offset - 1).to_record() if kraft_version >= 1 else None,
        values=values,
    )


@attrs.frozen
class _Unfrozen:
    """A sink as the source of its own bytes."""

    sink: SnapshotSink

    @property
    def size(self) -> int:
        return self.sink.size

    def read_at(self, position: int, size: int) -> bytes:
        return self.sink.read_at(position, size)

    def close(self) -> None:
        """Nothing: whoever writes it decides on its end."""


def _with_partition(response: FetchSnapshotResponse, **changes: Any) -> FetchSnapshotResponse:
    """Return the response with fields of its one partition changed."""
    topic = response.topics[0]
    partition = attrs.evolve(topic.partitions[0], **changes)
    return attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),))
