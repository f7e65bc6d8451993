"""Feeds committed batches to listeners: in order, exactly once, and never at the cost of the replica.

Every listener has its own position. A turn gives each of them at most one slice of the log and ends after a
millisecond; the rest waits for the next turn of the loop, behind the Fetches that have arrived meanwhile. A slow
listener therefore delays its own results and no commit.

An exception of the application is logged, the listener gets no further calls, and the replica continues. While such a
listener is registered, nothing counts as applied, unless there is a state machine: then its position decides. Only
errors of the log itself are reported, through `on_failure`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kraftlib.errors import CorruptBatchError, ReplicaFailedError, StorageError
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.committed import BatchReader, CommittedBatch, LoadedSnapshot
from kraftlib.runtime.feed import Feed
from kraftlib.runtime.listener import Listener, is_ctrl_c
from kraftlib.runtime.loading import Checks, Loading, Overlay
from kraftlib.runtime.offset_waiters import OffsetWaiters
from kraftlib.runtime.slices import Slices
from kraftlib.runtime.waiters import Post, Promise, Waiters, again, call_here
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId

logger = logging.getLogger("kraftlib.runtime.applier")

TURN_NS: Final = 1_000_000
"""Time for which a turn goes on giving slices."""

CallSoon = Callable[[Callable[[], None]], object]


class Applier:
    """The listeners of one replica and the committed records for them."""

    def __init__(
        self,
        *,
        node_id: ReplicaId,
        log: ReplicatedLog,
        serde: RecordSerde[Any],
        waiters: Waiters,
        call_soon: CallSoon,
        call_soon_threadsafe: CallSoon,
        on_failure: Callable[[BaseException], None],
        on_machine_failed: Callable[[ReplicaFailedError], None] = lambda failure: None,
        on_damage: Callable[[Offset, CorruptBatchError], None] | None = None,
        post: Post = call_here,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        on_applied: Callable[[Sequence[CommittedBatch]], None] = lambda batches: None,
        increments: Overlay | None = None,
        checks: Checks | None = None,
        skipped: Collection[tuple[Offset, Epoch]] = (),
        cut: Callable[[Sequence[CommittedBatch]], int] = len,
        on_loaded: Callable[[], None] = lambda: None,
        on_healed: Callable[[OffsetAndEpoch], None] = lambda snapshot_id: None,
    ) -> None:
        """`on_applied` is told what the state machine was given; `on_damage` which record cannot be read;
        `on_machine_failed` why the state machine was stopped.

        After that the next `advance` or `wake` tries again. Without `on_damage` it is a failure like any other.
        `increments` lead on from a checkpoint, for the state machine. `checks` know which snapshots are whole; without
        them each is believed. Records that are `skipped` are given to no listener. `cut` says how many batches the
        state machine is given at once; `on_loaded` and `on_healed` are told that it has loaded a snapshot.
        """
        self._node_id = node_id
        self._log = log
        self._waiters = waiters
        self._call_soon = call_soon
        self._call_soon_threadsafe = call_soon_threadsafe
        self._on_failure = on_failure
        self._on_machine_failed = on_machine_failed
        self._on_damage = on_damage
        self._clock_ns = clock_ns
        self._on_applied = on_applied
        self._slices = Slices(log, serde, node_id=node_id, skipped=skipped)
        self._cut = cut
        self._on_loaded = on_loaded
        self._on_healed = on_healed
        self._loading = Loading(
            log,
            serde,
            waiters,
            increments=increments,
            checks=checks,
            wake=self._schedule,
            reader_closed=self._reader_closed,
            guarded=self._guarded,
            stop=self._stop,
        )
        self.offset_waiters = OffsetWaiters(post)
        """Callers that wait until a record was applied."""
        self._feeds: list[Feed] = []
        self._state_machine: Feed | None = None
        self._high_watermark: Offset | None = None
        self._leader: LeaderAndEpoch | None = None
        self._epoch_start: Offset = 0
        self._scheduled = False
        self._closed = False

    # --- what happens ------------------------------------------------------------------------------------------------

    def register(self, listener: Listener, *, state_machine: bool = False) -> None:
        """Begin to feed `listener`: the latest snapshot if there is one, then the log."""
        self._forget(listener, only_stopped=True)
        feed = Feed(listener, is_machine=state_machine)
        self._feeds.append(feed)
        if state_machine:
            self._state_machine = feed
        self._schedule()

    def unregister(self, listener: Listener) -> None:
        """Stop feeding `listener`."""
        self._forget(listener)
        self._schedule()

    def _forget(self, listener: Listener, *, only_stopped: bool = False) -> None:
        self._feeds = [
            feed for feed in self._feeds if feed.listener is not listener or (only_stopped and not feed.is_stopped)
        ]
        self._waiters.apply_failure = next((feed.failure for feed in self._counting if feed.failure), None)

    def advance(self, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is committed."""
        self._high_watermark = high_watermark
        if self._feeds or self._waiters.wants_results or self.offset_waiters:
            self._schedule()

    def announce(self, leader: LeaderAndEpoch, *, epoch_start: Offset) -> None:
        """Tell the listeners of the leader; `epoch_start` is where its epoch starts, if it is this replica.

        The core repeats it at every change of role; each listener is told only changes.
        """
        self._leader, self._epoch_start = leader, epoch_start
        self._schedule()

    def leadership_over(self) -> None:
        """It has led: a listener that does not know it yet is told the next leader only (Kafka's Resigned)."""
        if self._leader is not None and self._leader.leader_id == self._node_id:
            self._leader = None

    def quarantine(self, failure: ReplicaFailedError, reason: str) -> None:
        """The state of the state machine is wrong: it gets nothing, and a caller that waits for it gets an error, until
        `reload`."""
        feed = self._state_machine
        if feed is None or feed.is_stopped:
            return
        feed.is_stopped, feed.failure = True, failure
        self._fail_waiting(failure, reason)

    def reload(self, snapshot_id: OffsetAndEpoch) -> None:
        """A good snapshot is stored: load it into the state machine, and go on behind it."""
        feed = self._state_machine
        if feed is not None and (feed.is_stopped or feed.heals_with is not None):
            feed.is_stopped, feed.must_reload, feed.heals_with = False, True, snapshot_id
            self._schedule()

    def begin_shutdown(self) -> None:
        """Tell the listeners that the client is about to close."""
        for feed in list(self._feeds):
            if not feed.is_stopped:
                self._guarded(feed, feed.listener.begin_shutdown)

    def close(self) -> None:
        """Stop feeding listeners."""
        self._closed = True

    def wake(self) -> None:
        """Look whether there is something to give."""
        self._schedule()

    # --- where we are ------------------------------------------------------------------------------------------------

    @property
    def applied_offset(self) -> Offset:
        """One past the last record that was applied here.

        The position of the state machine; without one that of the last of the listeners; without any the high
        watermark.
        """
        return min((feed.next_offset or 0 for feed in self._counting), default=self._high_watermark or 0)

    @property
    def _counting(self) -> Sequence[Feed]:
        """The feeds that count as applied: the state machine, else every listener."""
        return self._feeds if self._state_machine is None else (self._state_machine,)

    @property
    def settled_offset(self) -> Offset | None:
        """The position of the state machine, if it shows the state there; None while it is stopped or loads one."""
        feed = self._state_machine
        is_ready = feed is not None and not (feed.is_stopped or feed.must_reload or feed.reader or feed.is_loading)
        return feed.next_offset if feed is not None and is_ready else None

    @property
    def is_loading(self) -> bool:
        """Whether another thread may be replacing the state. It begins in a turn of the loop and never amid one."""
        return any(feed.is_loading for feed in self._counting)

    @property
    def machine_failure(self) -> ReplicaFailedError | None:
        """Why the state machine was stopped, if it was."""
        return None if self._state_machine is None else self._state_machine.failure

    def wait_for(self, offset: Offset, promise: Promise) -> None:
        """Settle `promise` with the applied offset once the record at `offset` was applied."""
        self.offset_waiters.add(offset, promise)
        self._schedule()

    # --- turns -------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        end_ns = self._clock_ns() + TURN_NS
        damage: dict[Feed, tuple[Offset, CorruptBatchError]] = {}
        more = True
        try:
            while more and not self._closed:
                more = False
                for feed in [feed for feed in self._feeds if feed not in damage]:
                    more |= self._feed_unless_damaged(feed, damage)
                if self._clock_ns() >= end_ns:
                    break
        except BaseException as error:
            self._on_failure(error)  # the log's own: the executor stops the replica for it
            if not isinstance(error, Exception):
                raise
            return
        self._settle_applied()
        if more:
            self._schedule()
        for offset, damaged in dict(damage.values()).items():
            self._damage_found(offset, damaged)

    def _feed_unless_damaged(self, feed: Feed, damage: dict[Feed, tuple[Offset, CorruptBatchError]]) -> bool:
        """Feed a listener. If a damaged place is next, it waits for the repair; the other listeners do not."""
        try:
            return self._feed(feed)
        except CorruptBatchError as error:
            damage[feed] = self._slices.start, error
            return False

    def _damage_found(self, offset: Offset, error: CorruptBatchError) -> None:
        if self._on_damage is None:
            self._on_failure(error)
        else:
            self._on_damage(offset, error)

    def _feed(self, feed: Feed) -> bool:
        """Give `feed` one thing that is due; return whether more may be."""
        if feed.is_stopped or feed not in self._feeds or (feed.reader is not None and not feed.reader.closed):
            return False
        reader, feed.reader = feed.reader, None
        if isinstance(reader, LoadedSnapshot):
            self._loading.loaded(feed, reader)
            if feed.is_machine:
                self._machine_loaded(feed, reader.snapshot_id)
            return True
        if isinstance(reader, BatchReader):
            feed.next_offset = reader.last_offset + 1  # it has held the reader, and is done with it
        if feed.must_reload:
            feed.must_reload, feed.next_offset = False, None
        leader = self._leader_for(feed)
        if leader is not None and feed.is_news(leader):
            # Before any record: a listener that led must not take those of the next leader for its own.
            feed.told = leader
            self._guarded(feed, lambda: feed.listener.handle_leader_change(leader))
            return True
        return self._high_watermark is not None and self._give(feed, self._high_watermark)

    def _machine_loaded(self, feed: Feed, snapshot_id: OffsetAndEpoch) -> None:
        """The state machine is done with a snapshot. One that heals it ends its quarantine."""
        self._on_loaded()
        if feed.heals_with == snapshot_id and not feed.is_stopped and not feed.is_loading:
            feed.heals_with, feed.failure, self._waiters.apply_failure = None, None, None
            self._on_healed(snapshot_id)

    def _leader_for(self, feed: Feed) -> LeaderAndEpoch | None:
        """Return the leader as a listener may know it. An epoch that this replica leads has none until the listener
        has caught up; that an earlier one is over, it hears at once."""
        leader = self._leader
        if leader is None or not self._must_catch_up(feed, leader):
            return leader
        return None if feed.told is None else LeaderAndEpoch(None, leader.epoch)

    def _must_catch_up(self, feed: Feed, leader: LeaderAndEpoch) -> bool:
        """Whether this replica leads, and this listener was not given all that came before, and the proof of it.

        The proof is the first record of the epoch: until it is committed, this leadership is a claim.
        """
        return leader.leader_id == self._node_id and (feed.next_offset or 0) <= self._epoch_start

    def _give(self, feed: Feed, high_watermark: Offset) -> bool:
        if feed.next_offset is None or feed.next_offset < self._log.start_offset:
            return self._loading.load(feed, high_watermark)
        if feed.next_offset >= min(high_watermark, self._log.end_offset):  # the log may have lost what was committed
            return False
        try:
            batches = self._slices.read(feed.next_offset, high_watermark, keep=len(self._feeds) > 1)
        except StorageError:
            if feed.next_offset >= self._log.start_offset:
                raise
            return True  # the disk thread has let the log begin elsewhere meanwhile: a snapshot is loaded instead
        if not batches:
            return False
        if feed.is_machine:
            batches = batches[: self._cut(batches)]
        reader = feed.reader = BatchReader(batches, on_close=self._reader_closed)
        if self._guarded(feed, lambda: feed.listener.handle_commit(reader)) and not reader.held:
            feed.reader, reader.closed = None, True
            feed.next_offset = batches[-1].last_offset + 1
            if feed.is_machine:
                self._on_applied(batches)
        return True

    def _guarded(self, feed: Feed, call: Callable[[], object]) -> bool:
        """Call into the application; return whether it succeeded. An exception stops this listener and nothing else.

        That goes for a CancelledError or SystemExit, too: on this loop it would end in silence, or end the loop. Ctrl-C
        is not of its making and goes on.
        """
        try:
            call()
            return True
        except BaseException as error:
            self._stop(feed, error)
            if is_ctrl_c(error):
                raise
            return False

    def _stop(self, feed: Feed, error: BaseException) -> None:
        """Stop this listener, because of its exception."""
        name, where = type(feed.listener).__name__, feed.next_offset
        logger.error("replica %d: %s raised at offset %s and is stopped", self._node_id, name, where, exc_info=error)
        feed.is_stopped = True
        is_machine = feed.is_machine
        what = "the state machine" if is_machine else f"the listener {name}"
        until = "this replica is restarted" if is_machine else "that listener is unregistered"
        feed.failure = ReplicaFailedError(
            f"{what} of replica {self._node_id} raised {error!r} in the batch at offset {where}: nothing is applied "
            f"here any more until {until}"
        )
        feed.failure.__cause__ = error
        if feed in self._feeds and feed in self._counting:
            self._fail_waiting(self._waiters.apply_failure or feed.failure, f"{what} raised {error!r}")
        if is_machine:
            self._on_machine_failed(feed.failure)

    def _fail_waiting(self, failure: ReplicaFailedError, reason: str) -> None:
        self._waiters.fail_applied(failure, reason)
        self.offset_waiters.fail(lambda: again(failure))

    def _reader_closed(self) -> None:
        # A held reader may be closed by any thread.
        self._call_soon_threadsafe(self._schedule)

    def _settle_applied(self) -> None:
        if self._waiters.apply_failure is not None or self.is_loading:
            return
        applied = self.applied_offset
        if self._waiters.wants_results:
            self._waiters.applied(applied)
        self.offset_waiters.applied(applied)
