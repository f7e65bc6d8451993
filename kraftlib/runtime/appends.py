"""Appends at the leader: admission, batching, waiting callers and results.

`Appends` stands between an application that has values and a core that takes batches. It lives as long as the replica;
its accumulator lives as long as one leadership. Offsets are assigned at once, so the
offsets of an append are known before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, DiskFullError, KraftError, NotLeaderError, ReplicaFailedError
from kraftlib.records.accumulator import UNDRAINED_MAX_BATCHES, BatchAccumulator
from kraftlib.records.batch import Batch
from kraftlib.records.control import ControlRecord
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.ports import Core
from kraftlib.runtime.waiters import (
    APPENDED,
    APPLIED,
    COMMITTED,
    FLUSHED,
    Promise,
    Waiter,
    Waiters,
    again,
    unknown_outcome,
)
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset


class Appends:
    """Appends of this replica that are not settled yet. `wake` is called when there is something to drain."""

    def __init__(
        self,
        core: Core,
        *,
        config: RaftConfig,
        waiters: Waiters,
        metrics: RaftMetrics,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.waiters = waiters
        self.written_end: Offset = 0
        """One past the last record given to the core in this leadership: later ones were never appended."""
        self.pending = False
        """Whether `drain` may have something to give, now or when it is due."""
        self.epoch: Epoch = -1
        """The epoch in which this replica leads; -1, if it does not."""
        self._accumulator: BatchAccumulator | None = None
        self._core = core
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._queues = waiters.queues
        # Without a linger the time at which a value came is not needed.
        self._lingers = config.append_linger_ms > 0
        # When the disk becomes full, a drain, what waits behind it, and a vote fit into the reserve.
        self._drain_max_bytes = config.disk_reserve_bytes // 4 or config.backlog_max_bytes
        self._wall_clock = wall_clock
        self._wake = wake
        self._failure: ReplicaFailedError | None = None
        self._closing = self._disk_full = self._renounced = False
        self._guarded = False
        """Whether appends must be looked at closely: closing, a full disk, or a failed state machine."""

    # --- the application ---------------------------------------------------------------------------------------------

    def append_one(self, value: bytes, epoch: Epoch | None, level: int, promise: Promise) -> None:
        """Append one value: the hot path. Raises as `append` does."""
        accumulator = self._accumulator
        if accumulator is None or epoch is not None or level == APPLIED or self._guarded:
            accumulator = self._leading(epoch, level)
        current = self.epoch
        offset = accumulator.append_one(value, epoch=current, now_ms=self._clock() if self._lingers else 0)
        self._queues[level].append((offset, offset, current, promise))
        if not self.pending:
            self.pending = True
            self._wake()

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int, promise: Promise) -> None:
        """Append `values` atomically; settle `promise` when they have come to `level`.

        Raises, and then nothing was appended: NotLeaderError, ConfigError (newer epoch, no values, an empty value),
        BacklogFullError, DiskFullError, RecordTooLargeError, ClosedError, ReplicaFailedError.
        """
        accumulator = self._leading(epoch, level)
        last_offset = accumulator.append(values, epoch=self.epoch, now_ms=self._clock() if self._lingers else 0)
        self._queues[level].append((last_offset, last_offset + 1 - len(values), self.epoch, promise))
        if not self.pending:
            self.pending = True
            self._wake()

    def prepare(self, values: Sequence[bytes], *, epoch: Epoch) -> Offset:
        """Promise offsets to `values` and hold them back until `schedule_prepared`; return the last one."""
        return self._leading(epoch).prepare_append(values, epoch=epoch, now_ms=self._clock() if self._lingers else 0)

    def schedule_prepared(self) -> None:
        """Let what was prepared be written. Does nothing if the leadership is over: then it never is."""
        if self._accumulator is not None:
            self._accumulator.schedule_prepared_append()
            self.pending = True
            self._wake()

    # --- the executor ------------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether records are taken."""
        return self._accumulator is not None

    def follows(self, level: int) -> bool:
        """Whether an append of `level` is refused for no other reason than that another replica leads.

        A caller that only asks need not raise: the traceback of an error keeps all frames below it alive.
        """
        is_well = self._failure is None and not self._closing
        return self._accumulator is None and is_well and (level != APPLIED or self.waiters.apply_failure is None)

    def disk_full(self, full: bool) -> None:
        """Refuse appends from now on, or accept them again. Accepted ones are still written, if they `fit_reserve`."""
        self._disk_full = full
        self._guarded = full or self._closing or self._renounced

    @property
    def fit_reserve(self) -> bool:
        """Whether a full disk has space for what was accepted and not drained."""
        return self._accumulator is None or self._accumulator.undrained_bytes <= self._drain_max_bytes

    def renounce(self) -> None:
        """The state machine has failed: refuse appends from now on. This replica transfers its leadership."""
        self._renounced = self._guarded = True

    def resume(self) -> None:
        """The state machine is well again: accept appends, where this replica leads."""
        self._renounced = False
        self._guarded = self._disk_full or self._closing

    def accept(self, epoch: Epoch, base_offset: Offset) -> None:
        """This replica leads: the first record gets `base_offset`."""
        self.epoch, self.written_end = epoch, base_offset
        self._metrics.leadership_began()
        batch_max_bytes = self._config.batch_max_bytes
        grow_max_bytes = min(self._drain_max_bytes, batch_max_bytes)
        self._accumulator = BatchAccumulator(
            epoch=epoch,
            base_offset=base_offset,
            leader_id=self._config.node_id,
            linger_ms=self._config.append_linger_ms,
            batch_max_bytes=batch_max_bytes,
            grow_max_bytes=grow_max_bytes,
            max_bytes=self._config.backlog_max_bytes,
            # As many bytes may wait as in batches that grow to the most that one may have.
            max_undrained_batches=UNDRAINED_MAX_BATCHES * batch_max_bytes // grow_max_bytes,
        )

    def refuse(self, epoch: Epoch, high_watermark: Offset) -> None:
        """The leadership of `epoch` is over."""
        self._end_leadership()
        self.waiters.leadership_lost(
            written_end=self.written_end,
            high_watermark=high_watermark,
            refusal=self.not_leader,
            reason=f"replica {self._config.node_id} lost the leadership of epoch {epoch}",
        )

    def append_control(self, records: Sequence[ControlRecord]) -> None:
        """Put control records behind what was appended, as a batch of their own."""
        if self._accumulator is not None:
            self._accumulator.append_control(records, epoch=self.epoch, now_ms=self._clock())
            self.pending = True

    def next_deadline_ms(self) -> int | None:
        """When a linger ends; None, if none is running."""
        if self._accumulator is None or not self._lingers:
            return None
        return self._accumulator.next_deadline_ms

    def drain(self, now_ms: int) -> tuple[Batch, ...]:
        """Return the batches that are due; the caller must write them."""
        accumulator = self._accumulator
        if accumulator is None:
            self.pending = False
            return ()
        batches = tuple(accumulator.drain(now_ms, timestamp_ms=self._wall_clock(), max_bytes=self._drain_max_bytes))
        self.pending = accumulator.undrained_count > 0
        if batches:
            self.written_end = batches[-1].last_offset + 1
            self._metrics.drained(batches)
        return batches

    def written(self, end_offset: Offset) -> None:
        """The log has been written up to `end_offset`."""
        if self._queues[APPENDED]:
            self.waiters.appended(end_offset)

    def flushed(self, end_offset: Offset) -> None:
        """The log is durable here up to `end_offset`."""
        if self._accumulator is not None and self._queues[FLUSHED]:
            self.waiters.flushed(end_offset)

    def committed(self, high_watermark: Offset) -> None:
        """Everything below is committed: it makes room for more."""
        if self._accumulator is not None:
            self._accumulator.release(self._metrics.committed(high_watermark))
            self.waiters.committed(high_watermark)

    def begin_close(self) -> None:
        """Refuse new appends; accepted ones continue."""
        self._closing = self._guarded = True

    def close(self) -> None:
        """The replica ends: appends that were not written are refused, the outcome of the others is unknown."""
        self._closing = self._guarded = True
        self.waiters.fail(self._closed_outcome)
        self._end_leadership()

    def fail(self, failure: Callable[[], ReplicaFailedError]) -> None:
        """The replica has stopped itself."""
        self._failure = failure()
        self.waiters.fail(lambda _: failure())
        self._end_leadership()

    def not_leader(self) -> NotLeaderError:
        """Return the error that says who leads instead."""
        leader = self._core.leader_and_epoch
        endpoint: Endpoint | None = None
        if leader.leader_id is None:
            remedy = "no leader is known yet: wait for one"
        elif leader.leader_id == self._config.node_id:
            remedy = "it was elected and is about to: wait for wait_for_leader()"
        else:
            voter = self._core.voters.get(leader.leader_id)
            endpoint = None if voter is None else voter.endpoints.get(self._config.listener_name.upper())
            remedy = f"append to {leader.leader_id}" + ("" if endpoint is None else f" at {endpoint}")
        return NotLeaderError(
            f"replica {self._config.node_id} does not lead epoch {leader.epoch}, nothing was appended; {remedy}",
            leader=leader,
            endpoint=endpoint,
        )

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _end_leadership(self) -> None:
        if self._accumulator is not None:
            self._accumulator.close()
        self._accumulator, self.epoch = None, -1
        self.pending = False

    def _leading(self, epoch: Epoch | None, level: int = COMMITTED) -> BatchAccumulator:
        """Return the accumulator of the current leadership, or say why an append for `epoch` cannot be taken."""
        node_id = self._config.node_id
        if self._failure is not None:
            raise again(self._failure)
        if self._closing:
            raise ClosedError(f"replica {node_id} is closed, or about to be: nothing was appended")
        no_results = self.waiters.apply_failure
        if level == APPLIED and no_results is not None:
            raise again(no_results)
        newest = self._core.leader_and_epoch.epoch
        if epoch is not None and not isinstance(epoch, int):
            raise ConfigError(f"epoch={epoch!r} is no epoch: take it from leader_and_epoch()")
        if epoch is not None and epoch > newest:
            raise ConfigError(
                f"epoch={epoch} is newer than {newest}, the newest that replica {node_id} knows of: take it from "
                f"leader_and_epoch()"
            )
        if self._accumulator is None:
            raise self.not_leader()
        if self._renounced:
            epoch_only = LeaderAndEpoch(None, newest)
            raise NotLeaderError(
                f"the state machine of replica {node_id} has failed, and it hands its leadership over: nothing was "
                f"appended; wait for the next leader, or restart this replica if no other voter can lead",
                leader=epoch_only,
            )
        if self._disk_full:
            raise DiskFullError(
                f"the disk of replica {node_id}, the leader, is full: nothing was appended; try again later"
            )
        if epoch is not None and epoch != self.epoch:
            raise NotLeaderError(
                f"epoch={epoch} is over: replica {node_id} leads epoch {self.epoch} now, and a decision made in "
                f"the old one may not hold; nothing was appended",
                leader=self._core.leader_and_epoch,
            )
        return self._accumulator

    def _closed_outcome(self, waiter: Waiter) -> KraftError:
        if waiter[1] >= self.written_end:
            return ClosedError(f"replica {self._config.node_id} was closed before it wrote these records")
        return unknown_outcome(waiter, f"replica {self._config.node_id} was closed")
