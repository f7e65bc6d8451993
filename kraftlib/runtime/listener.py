"""The application's side of the log: KRaft's `Listener` with its batches, and the simple `StateMachine` on top.

A listener gets every committed batch in order and exactly once, a snapshot where the log no longer reaches back far
enough, and the changes of leadership. Control batches come too, with no values, so that its position can reach the high
watermark.

All of these are called on the engine's loop, one at a time, and share it with the replica: **they must not block.**
A listener that takes longer holds the reader, returns, and goes on elsewhere, a thread for instance; `close` then asks
for the next one. Two methods of a state machine may take their time, since they run beside the loop: `restore`, and the
iteration over what `freeze` returned.

The application's functions are called in comprehensions and never by `map`: a StopIteration that one of them raises, a
bare `next()` for instance, would end a `map` without a word, and the records behind it would be skipped.
`kraftlib.runtime.committed` has the batches and snapshots that are given to a listener.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kraftlib.errors import UnsupportedError
from kraftlib.runtime.committed import BatchReader, CommittedRecord, LoadedSnapshot
from kraftlib.runtime.disk import Disk, InlineDisk
from kraftlib.runtime.pace import unhurried
from kraftlib.types import LeaderAndEpoch, Offset

if TYPE_CHECKING:
    from kraftlib.runtime.client.service import Companion


def is_ctrl_c(error: BaseException) -> bool:
    """Whether Ctrl-C was pressed during a call of the application: the host handles that."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class Listener:
    """KRaft's listener: override the methods that you need.

    An exception in a callback stops this listener, which gets no further calls; the replica continues. Without a state
    machine nothing counts as applied from then on, until the listener is unregistered: waiting callers get an error.
    """

    def handle_commit(self, reader: BatchReader) -> None:
        """Take committed batches. They follow what was given before, without a gap."""

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Forget everything and begin with this snapshot: the log does not reach back to the offset of this listener.

        Let a CorruptBatchError of the reader pass: the snapshot has rotted on the disk. Forget what was loaded of it;
        another snapshot follows, or the log from its beginning.
        """

    def handle_load_bootstrap(self, reader: LoadedSnapshot) -> None:
        """Take the checkpoint with which a dynamic quorum was formatted: control records, hardly ever of interest.

        Kafka 4.4 puts there, too, what the first controller of a cluster is to write (KIP-1170). It is not committed.
        """

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear of the leader: at most twice an epoch, first without one.

        A leader hears of itself once it was given everything from before its epoch and the first record of it, and of
        the next epoch before it is given a record of that. No notice says that it resigned: until the next epoch,
        failed appends and `status()` do.
        """

    def begin_shutdown(self) -> None:
        """The client is about to close."""


class StateMachine:
    """The simple way: records in, results out, the state in memory.

    `apply` must be a function of the state and the record alone, because every replica calls it, and on every replica
    it must have the same result. It refuses a record by its result: an exception stops this state machine.

    With `digest_interval_ms` replicas compare their snapshots: then equal states must make equal values, in the same
    order, whatever their past. A `dict` in the order of its insertions is not enough: after a `restore` that is another
    one, unless the snapshot keeps it. `sorted` is.
    """

    snapshot_version: int = 0
    """The version of the form of the snapshots. A release that writes the same state as other values has a greater one:
    states are compared only between replicas with the same version."""

    companion: Companion | None = None
    """Works for it on the replica that runs it, and may propose records, if there is one."""

    def apply(self, record: CommittedRecord) -> Any:
        """Change the state by a committed record; the result goes to the caller that proposed it on this replica."""
        raise NotImplementedError

    def snapshot(self) -> Iterable[Any]:
        """Return values from which `restore` rebuilds the state as it is now.

        They are written while further records are applied: the returned values must not change with them.
        """
        raise NotImplementedError

    def freeze(self) -> Iterable[Any]:
        """Return what `snapshot` would, to be iterated over later, on another thread, while records are applied.

        This runs on the loop and blocks it: by default it reads all of `snapshot()`, a tenth of a second
        for a million values. A large state is better copied as a whole and taken apart later, for instance
        `copy = dict(self.items)`, then `return copy.items()`. Its contents must not be changed in place.
        """
        return list(self.snapshot())

    def restore(self, values: Iterable[Any]) -> None:
        """Replace the state by that of a snapshot.

        It runs beside the loop, so that a large state does not hold up the replica. Nothing is applied meanwhile; but
        a reader of the state that uses neither `read_barrier` nor `wait_for_offset` may see it half restored,
        unless it is built aside and put in place at the end. If `values` raises, the snapshot is not whole.
        """
        raise NotImplementedError

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Hear of the leader, as `Listener.handle_leader_change` does."""


class StateMachineListener(Listener):
    """Feeds a state machine, and passes its results to the waiting callers.

    `deliver(end_offset, base_offset, results)` is called per batch; `wants_results` says whether a caller waits.
    Snapshots are restored in the `background`, and `step` is called after each batch of them.
    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        deliver: Callable[[Offset, Offset, Sequence[Any]], None],
        wants_results: Callable[[], bool],
        background: Disk | None = None,
        step: Callable[[], None] = unhurried,
    ) -> None:
        self.machine = machine
        self._deliver = deliver
        self._wants_results = wants_results
        self._background = background or InlineDisk()
        self._step = step

    def handle_commit(self, reader: BatchReader) -> None:
        """Apply every record of every batch."""
        apply = self.machine.apply
        for batch in reader:
            if batch.is_control:
                continue
            record = None
            try:
                results = [apply(record := each) for each in batch.records]
            except BaseException as error:
                what = f"{batch!r} cannot be decoded" if record is None else f"it was the record at {record.offset}"
                remedy = "If no replica can apply it, see `kraftlib skip-record --help`."
                if isinstance(error, UnsupportedError):
                    remedy = "A newer release can apply it: upgrade this replica. It is not one to skip."
                error.add_note(f"kraftlib: {what}. {remedy}")
                raise
            if self._wants_results():
                # A batch with a skipped record was written before any caller that waits for results now.
                is_whole = len(results) == batch.last_offset + 1 - batch.base_offset
                self._deliver(batch.last_offset + 1, batch.base_offset, results if is_whole else ())

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Restore the state from the values of the snapshot, beside the loop."""
        reader.hold(step=self._step)
        self._background.run(lambda: self.machine.restore(reader.values()), lambda _, error: reader.close(error))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Pass it on."""
        self.machine.leader_changed(leader)
