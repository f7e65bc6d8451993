"""Writes the snapshots of this replica: planned on the loop, written beside it, there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Final

from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError, StorageError
from kraftlib.frozen import immutable
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.runtime.pace import unhurried
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import Offset, OffsetAndEpoch

BATCH_BYTES: Final = 32 * 1024
"""Size of the batches of our snapshots. Small, since a batch is encoded in one go, and the loop may have to wait for
that; the same everywhere, since equal states shall make equal bytes."""

PIECE: Final = 64
"""Number of values that are encoded between two looks at the clock."""


@immutable(kw_only=True)
class SnapshotPlan:
    """The plan of a snapshot: everything that must be known before the loop continues."""

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

    Raises: ConfigError, if that is not committed, not in the log any more, or in the midst of a batch (scenario N7); or
    if the voters there are not known.
    """
    latest = min(high_watermark, log.end_offset)  # the log may have lost what was committed, and fetch it again
    if not log.start_offset < offset <= latest:
        raise ConfigError(
            f"a snapshot cannot end at offset {offset}: it replaces committed records that the log still holds, from "
            f"{log.start_offset + 1} to {latest}"
        )
    known_from = view.voters_known_from
    if offset < known_from:
        raise ConfigError(
            f"a snapshot cannot end at offset {offset}: this replica has read who votes from a snapshot that ends at "
            f"{known_from}, and not who did before: take {known_from} or more"
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

    Leaving the block freezes it; an error on the way drops it. It may take any time, pauses included. A snapshot is
    there as a whole or not at all. It blocks, so it is for a thread of your own, one at a time.
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
        """Bytes written so far; values that wait for their batch to be full are not among them."""
        return self._writer.size

    def append(self, values: Iterable[Any]) -> None:
        """Add values of the state. Raises, and then it is dropped: RecordTooLargeError, ConfigError, StorageError."""
        with self._or_abort():
            self._writer.append(self._to_bytes(value) for value in values)

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
    """Read a stored snapshot to its end: CRCs, places, header and footer. Raises: CorruptBatchError, StorageError.

    A snapshot that was deleted meanwhile, because a newer one replaced it, is not an error.
    """
    try:
        source = log.open_snapshot(snapshot_id)
    except StorageError:
        if snapshot_id not in log.snapshots() and snapshot_id.offset <= log.start_offset:
            return
        raise
    with SnapshotReader(source, epoch=snapshot_id.epoch) as reader:
        for _ in reader.batches():
            step()
