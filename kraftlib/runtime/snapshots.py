"""Snapshots on their way between replicas: chunks to others, and the download that may replace the log (KIP-630).

A download is bytes of another replica, taken in chunks over minutes. It is believed only as a whole: every batch,
header, footer and end are verified before it is frozen, and the old log goes only after that (reliability N4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError, CorruptBatchError, ensure
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.runtime.pace import unhurried
from kraftlib.storage.interface import ReplicatedLog, SnapshotSink
from kraftlib.types import Offset, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse

BATCH_BYTES: Final = 32 * 1024
"""Size of the batches of our snapshots. Small, since a batch is encoded in one go, and the loop may have to wait for
that; the same everywhere, since equal states shall make equal bytes."""

PIECE: Final = 64
"""How many values are encoded between two looks at the clock."""


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

    def write(self, log: ReplicatedLog, values: Iterable[bytes], *, step: Callable[[], None] = unhurried) -> None:
        """Write `values` and make them durable, beside log and flushes; `step` is called after every few of them."""
        with OpenSnapshot(self, log) as snapshot:
            rest = iter(values)
            while piece := list(islice(rest, PIECE)):
                snapshot.append(piece)
                step()


def plan_snapshot(log: ReplicatedLog, *, offset: Offset, high_watermark: Offset, view: LogView) -> SnapshotPlan:
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
    )


class OpenSnapshot:
    """A snapshot that is being written, front to back and with one batch in memory; others see it once it is frozen.

        with client.begin_snapshot(offset=offset) as snapshot:
            for value in state:
                snapshot.append([value])

    Leaving the block freezes it; an error on the way drops it. It may take any time, pauses included. Whatever happens,
    a snapshot is there as a whole or not at all. It blocks, so it is for a thread of your own, one at a time.
    """

    def __init__(
        self,
        plan: SnapshotPlan,
        log: ReplicatedLog,
        *,
        to_bytes: Callable[[Any], bytes] = bytes,
        on_frozen: Callable[[OffsetAndEpoch], object] = lambda snapshot_id: None,
    ) -> None:
        self.snapshot_id: Final = plan.snapshot_id
        """It replaces every record below `snapshot_id.offset`."""
        self._to_bytes = to_bytes
        self._on_frozen = on_frozen
        self._sink = log.create_snapshot(plan.snapshot_id)
        with self._or_abort():
            self._writer = SnapshotWriter(
                self._sink.write,
                epoch=plan.snapshot_id.epoch,
                last_contained_log_timestamp=plan.timestamp_ms,
                kraft_version=plan.kraft_version,
                voters=plan.voters,
                batch_bytes=BATCH_BYTES,
            )

    @property
    def size(self) -> int:
        """Bytes written so far; what waits for its batch to be full is not among them."""
        return self._writer.size

    def append(self, values: Iterable[Any]) -> None:
        """Add values of the state. Raises, and then it is dropped: RecordTooLargeError, ConfigError, StorageError."""
        with self._or_abort():
            self._writer.append(map(self._to_bytes, values))

    def freeze(self) -> OffsetAndEpoch:
        """Make it durable and let others see it; return its id."""
        with self._or_abort():
            self._writer.freeze()
            self._sink.freeze()
        self._on_frozen(self.snapshot_id)
        return self.snapshot_id

    def abort(self) -> None:
        """Drop what was written. Does nothing after `freeze`."""
        self._sink.abort()

    def __enter__(self) -> OpenSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif not self._writer.frozen:
            self.freeze()

    @contextmanager
    def _or_abort(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise


def verify_snapshot(log: ReplicatedLog, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None] = unhurried) -> None:
    """Read a stored snapshot to its end: CRCs, places, header and footer. Raises: CorruptBatchError, StorageError."""
    with SnapshotReader(log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
        for _ in reader.batches():
            step()


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
