"""Incremental snapshots of a state machine that knows what it has changed: the cost follows the change, not the state.

A chain is a checkpoint and the increments that lead on from it. When it is long enough, or its increments have grown to
half of the checkpoint, it is merged into the checkpoint of its end, in the background and without the state machine;
the increments go then. Kafka's followers only ever see checkpoints, and the log is only cut on the word of one.

An increment needs a base whose keys are known to be in order: a full snapshot or a merge of this process, or a chain
that was loaded through. A checkpoint that the application writes, or that is downloaded, has its values in any order:
nothing leads on from it. While it is the newest one, and after anything that went wrong, the next snapshot is full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from threading import Lock
from typing import Any, Final

from kraftlib.errors import KraftError
from kraftlib.records.increment import Change, IncrementReader, keyed, merge
from kraftlib.records.serde import RecordSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.committed import CommittedBatch, LoadedSnapshot
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.writing import PIECE, OpenSnapshot, SnapshotPlan
from kraftlib.storage.compaction import compact
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.snapshots.increment_files import IncrementFiles
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger("kraftlib.runtime.snapshots.increments")

SORT_BYTES: Final = 4 << 20
"""Bytes that are sorted in one go: a sort cannot be interrupted."""


def sorted_by_key(
    values: Iterable[Any],
    key_of: Callable[[Any], bytes],
    to_bytes: Callable[[Any], bytes],
    *,
    step: Callable[[], None] = unhurried,
) -> Iterator[bytes]:
    """Encode the values of a state and put them in the order of their keys. For the background."""
    pairs = ((key_of(value), to_bytes(value)) for value in values)
    return (value for _, value in compact(pairs, memory_bytes=SORT_BYTES, step=step) if value is not None)


class IncrementalStateMachine(StateMachine):
    """A state machine whose snapshot is a set of values with keys, and that knows which have changed.

    `key_of(value)` is the key of a value of its snapshot; `freeze_changes()` returns the changes since the last
    `freeze`, `freeze_changes` or `restore`, as pairs of key and value, with None for a key that is gone. Both see
    values as the serde makes them. Everything else is as in `StateMachine`; `restore` gets the values of the whole
    state, in the order of their keys.
    """

    def key_of(self, value: Any) -> bytes:
        """Return the key of a value. A function of the value alone."""
        raise NotImplementedError

    def freeze_changes(self) -> Iterable[tuple[bytes, Any | None]]:
        """Return what changed, to be iterated over on another thread, and begin to note changes anew."""
        raise NotImplementedError


class MergedSnapshot(LoadedSnapshot):
    """A checkpoint with its increments, as one snapshot of their end."""

    def __init__(
        self,
        snapshot_id: OffsetAndEpoch,
        reader: SnapshotReader,
        serde: RecordSerde[Any],
        increments: Sequence[IncrementReader],
        key_of: Callable[[bytes], bytes],
        *,
        checkpoint_id: OffsetAndEpoch,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(snapshot_id, reader, serde, on_close=on_close)
        self.checkpoint_id = checkpoint_id
        """The checkpoint that the increments lead on from."""
        self._increments = increments
        self._key_of = key_of

    def values(self) -> Iterator[Any]:
        """Yield the values of the state, in the order of their keys."""
        plain = (value for batch in super().__iter__() for value in batch.raw_values)
        changes = (increment.changes() for increment in self._increments)
        merged = merge(keyed(plain, self._key_of), *changes)
        yield from self.noting(self._serde.from_bytes(value) for _, value in merged)

    def __iter__(self) -> Iterator[CommittedBatch]:
        raise NotImplementedError("a merged snapshot has values and no batches")

    def close(self, error: BaseException | None = None) -> None:
        """Be done with it."""
        if not self.closed:
            for increment in self._increments:
                increment.close()
        super().close(error)


class Increments:
    """The chain on the newest checkpoint: grows by `write`, is merged by `merge`, and loaded by `loaded`."""

    def __init__(
        self,
        log: ReplicatedLog,
        stored: IncrementFiles,
        machine: IncrementalStateMachine,
        serde: RecordSerde[Any],
        *,
        chain_max: int,
        step: Callable[[], None] = unhurried,
    ) -> None:
        self._log = log
        self._files = stored
        self._machine = machine
        self._serde = serde
        self._chain_max = chain_max
        self._step = step
        self.base: OffsetAndEpoch | None = None
        """The snapshot since which the state machine notes its changes; None: the next snapshot must be a full one."""
        self._ordered: frozenset[OffsetAndEpoch] = frozenset()
        """Checkpoints whose values are known to be in the order of their keys. Replaced under the lock."""
        self._lock = Lock()

    @property
    def usable_base(self) -> OffsetAndEpoch | None:
        """The snapshot that the next increment may lead on from: a chain reaches it from the newest checkpoint."""
        newest, base = self._newest(), self.base
        if base is None or newest not in self._ordered:
            return None
        return base if base == newest or base in self._files.chain(newest) else None

    def key_of(self, value: bytes) -> bytes:
        """Return the key of an encoded value."""
        return self._machine.key_of(self._serde.from_bytes(value))

    def sorted_values(self, values: Iterable[Any]) -> Iterator[bytes]:
        """Encode the values of a full snapshot and put them in the order of their keys. For the background."""
        return sorted_by_key(values, self._machine.key_of, self._serde.to_bytes, step=self._step)

    def write(self, plan: SnapshotPlan, changes: Iterable[tuple[bytes, Any | None]], base: OffsetAndEpoch) -> None:
        """Write an increment on `base`. For the background."""
        to_bytes = self._serde.to_bytes
        encoded: Iterator[Change] = ((key, None if value is None else to_bytes(value)) for key, value in changes)
        self._files.write(
            plan.snapshot_id,
            compact(encoded, keep_tombstones=True, memory_bytes=SORT_BYTES, step=self._step),
            base=base,
            timestamp_ms=plan.timestamp_ms,
            kraft_version=plan.kraft_version,
            voters=plan.voters,
            step=self._step,
        )

    def merge_if_due(self) -> OffsetAndEpoch | None:
        """Merge the chain into a checkpoint, if it is long or large enough; return its id. For the background."""
        base = self._newest()
        if base not in self._ordered:
            return None
        chain = self._files.chain(base) if base is not None else ()
        if base is None or not chain:
            return None
        with SnapshotReader(self._log.open_snapshot(base), epoch=base.epoch) as reader, ExitStack() as opened:
            if len(chain) < self._chain_max and self._files.size_of(chain) * 2 < reader.size:
                return None
            readers = [opened.enter_context(self._files.open(increment)) for increment in chain]
            self._merge(reader, readers, chain[-1])
        return chain[-1]

    def _merge(self, base: SnapshotReader, increments: Sequence[IncrementReader], end: OffsetAndEpoch) -> None:
        last = increments[-1]
        plan = SnapshotPlan(
            snapshot_id=end,
            timestamp_ms=last.header.last_contained_log_timestamp,
            kraft_version=last.kraft_version,
            voters=last.voters,
        )
        plain = (value for batch in base.batches() for value in batch.values())
        merged = merge(keyed(plain, self.key_of), *(increment.changes() for increment in increments))
        with OpenSnapshot(plan, self._log) as snapshot:
            while piece := [value for _, value in islice(merged, PIECE)]:
                snapshot.append(piece)
                self._step()

    def written(self, snapshot_id: OffsetAndEpoch, *, is_ordered: bool) -> None:
        """There is a checkpoint of this id: the increments that lead up to it go. For the background.

        So does what leads on from it, unless its values are in the order of their keys.
        """
        self._files.drop_up_to(snapshot_id)
        if not is_ordered:
            self.forget(snapshot_id)
            return
        with self._lock:
            kept = self._log.snapshots()
            self._ordered = frozenset((*(known for known in self._ordered if known in kept), snapshot_id))

    def forget(self, snapshot_id: OffsetAndEpoch) -> None:
        """This checkpoint is not one of ours, or is gone: nothing leads on from it. For the background."""
        with self._lock:
            self._ordered -= {snapshot_id}
        self._files.drop_beyond(snapshot_id)

    def is_ordered(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the values of this checkpoint are known to be in the order of their keys."""
        return snapshot_id in self._ordered

    def loaded(
        self, base: OffsetAndEpoch, high_watermark: Offset, reader: SnapshotReader, on_close: Callable[[], None]
    ) -> MergedSnapshot | None:
        """Return checkpoint and increments as one snapshot; None, if no increment that is committed leads on."""
        chain = [increment for increment in self._files.chain(base) if increment.offset <= high_watermark]
        if not chain:
            return None
        try:
            with ExitStack() as opened:
                readers = [opened.enter_context(self._files.open(increment)) for increment in chain]
                opened.pop_all()  # all are there: the snapshot closes them
        except KraftError as error:
            logger.warning("increments on %s cannot be used, the log is applied instead: %s", base, error)
            return None
        return MergedSnapshot(
            chain[-1], reader, self._serde, readers, self.key_of, checkpoint_id=base, on_close=on_close
        )

    def give_up(self, snapshot: LoadedSnapshot) -> bool:
        """It cannot be read to its end. Remove its increments, if it has any, and return whether it had.

        Perhaps they lead on from a checkpoint whose keys are in no order: that one has no increments any more, either.
        """
        if not isinstance(snapshot, MergedSnapshot):
            return False
        logger.error("the increments up to %s cannot be read, the log is applied instead", snapshot.snapshot_id)
        self._files.drop_beyond(snapshot.checkpoint_id)
        self.base = None
        return True

    def was_loaded(self, snapshot: LoadedSnapshot) -> None:
        """The state machine has taken this: its changes are changes of it, if it may be a base."""
        self.base = None
        if isinstance(snapshot, MergedSnapshot):
            self.base = snapshot.snapshot_id
            with self._lock:
                self._ordered |= {snapshot.checkpoint_id}  # all of it was merged, in order

    def _newest(self) -> OffsetAndEpoch | None:
        return next(iter(reversed(self._log.snapshots())), None)
