"""Takes snapshots of the state machine: after a number of bytes, records or ms, and on request.

On the loop the state is only frozen, which is as quick as the state machine makes it. Encoding, writing, syncing and
reading it back happen in the background, in small slices, while records are committed and applied. Only one snapshot is
written at a time. If a snapshot cannot be written, nothing is lost: the log still has everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, ReplicaFailedError
from kraftlib.frozen import define
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.committed import CommittedBatch
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.listener import StateMachine, is_ctrl_c
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, Increments
from kraftlib.runtime.snapshots.writing import SnapshotPlan, verify_snapshot
from kraftlib.runtime.waiters import again
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch

logger: Final = logging.getLogger("kraftlib.runtime.snapshots.snapshotter")

Done = Callable[[OffsetAndEpoch | None, BaseException | None], None]
"""Takes the id of a new snapshot, or why there is none."""


def can_snapshot(machine: StateMachine | None) -> bool:
    """Whether this state machine says how to write its state."""
    return machine is not None and (
        type(machine).snapshot is not StateMachine.snapshot or type(machine).freeze is not StateMachine.freeze
    )


@define
class _Applied:
    """Bytes and records that were applied since the last snapshot."""

    bytes: int = 0
    records: int = 0


class Snapshotter:
    """The snapshots of one replica. Everything but the writing is for the loop.

    `plan` returns the contents of a snapshot that ends at an offset, which it can from `known_from` on; `on_created` is
    called with each durable one.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: ReplicatedLog,
        machine: StateMachine | None,
        *,
        serde: RecordSerde[Any],
        background: Disk,
        plan: Callable[[Offset], SnapshotPlan],
        applied_offset: Callable[[], Offset],
        on_created: Callable[[OffsetAndEpoch], None],
        clock: Callable[[], int],
        known_from: Callable[[], Offset] = lambda: 0,
        step: Callable[[], None] = unhurried,
        increments: Increments | None = None,
    ) -> None:
        self._config = config
        self._log = log
        self._machine = machine
        self._serde = serde
        self._background = background
        self._plan = plan
        self._applied_offset = applied_offset
        self._on_created = on_created
        self._clock = clock
        self._known_from = known_from
        self._step = step
        self._increments = increments
        self._automatic = can_snapshot(machine)
        self._applied = _Applied()
        self._last_ms = clock()
        self.suspended: ReplicaFailedError | None = None
        """The reason why no snapshot may be written: the state is wrong. None, if it is not."""
        self._writing = 0
        """Number of snapshots that are being written, or wait for their turn."""
        if machine is not None and not self._automatic:
            logger.warning(
                "replica %d: %s has no snapshot(), so its log grows for ever and every start applies all of it",
                *(config.node_id, type(machine).__name__),
            )

    def applied(self, batches: Sequence[CommittedBatch]) -> None:
        """The state machine was given these batches; take a snapshot if one is due."""
        applied = self._applied
        for batch in batches:
            applied.bytes += batch.size
            applied.records += batch.last_offset + 1 - batch.base_offset
        self.look()

    def look(self) -> None:
        """Take a snapshot of the state machine, if it is time for one."""
        if not self._may_begin() or not self._is_due():
            return
        try:
            base = self._increments.usable_base if self._increments is not None else None
            if self._increments is not None and base is not None:
                self._take_increment(self._increments, base)
            else:
                self.create(self._log_outcome, None, None)
        except BaseException as error:  # noqa: BLE001 - the application's, and it costs no more than this snapshot
            self._give_up(error)

    def _may_begin(self) -> bool:
        is_free = self._automatic and not self._writing and self.suspended is None
        return is_free and self._applied_offset() >= self._known_from()

    def renew(self) -> None:
        """Take a snapshot of the applied state now: one was lost, or another replica wants one."""
        if self._may_begin() and self._applied_offset() > 0:
            try:
                self.create(self._log_outcome, None, None)
            except BaseException as error:  # noqa: BLE001 - as in `look`
                self._give_up(error)

    def suspend(self, failure: ReplicaFailedError) -> None:
        """The state is wrong: write no snapshot. The increments go, since a start would load what they have of it."""
        self.suspended = failure
        if self._increments is not None:
            self._forget(self._increments, BOOTSTRAP_SNAPSHOT)

    def checkpoint_added(self, snapshot_id: OffsetAndEpoch) -> None:
        """There is a checkpoint of this id, perhaps one of the application's: no increment leads on from that."""
        increments = self._increments
        if increments is not None and not increments.is_ordered(snapshot_id):
            self._forget(increments, snapshot_id)

    def _forget(self, increments: Increments, beyond: OffsetAndEpoch) -> None:
        self._background.run(lambda: increments.forget(beyond), self._forgotten)

    def _forgotten(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("replica %d: increments cannot be removed: %s", self._config.node_id, error)

    def _is_due(self) -> bool:
        config, applied = self._config, self._applied
        return (
            0 < config.snapshot_interval_bytes <= applied.bytes
            or 0 < config.snapshot_interval_records <= applied.records
            or (applied.records > 0 and 0 < config.snapshot_interval_ms <= self._clock() - self._last_ms)
        )

    def create(self, done: Done, values: Iterable[bytes] | None, offset: Offset | None) -> None:
        """Write a snapshot, of the state machine or of `values`; `done` gets the result.

        Raises, before anything is written: ConfigError, ReplicaFailedError, and any exception of the state machine.
        """
        if self.suspended is not None:
            raise again(self.suspended)
        if offset is None:
            offset = self._applied_offset()
        if values is None:
            if self._machine is None:
                raise ConfigError("a snapshot without values is one of the state machine as it stands: pass values")
            plan = self._plan(offset)
            self._applied, self._last_ms = _Applied(), self._clock()
            frozen = self._machine.freeze()
            if self._increments is not None:
                self._increments.base = plan.snapshot_id
                values = self._increments.sorted_values(frozen)
            else:
                values = (self._serde.to_bytes(value) for value in frozen)
            self._write(plan, values, done, is_ordered=True)
        else:
            self._write(self._plan(offset), values, done, is_ordered=False)

    def _write(self, plan: SnapshotPlan, values: Iterable[bytes], done: Done, *, is_ordered: bool) -> None:
        def write() -> None:
            is_new = plan.snapshot_id not in self._log.snapshots()  # one of this id stays as it is
            plan.write(self._log, values, step=self._step)
            verify_snapshot(self._log, plan.snapshot_id, step=self._step)
            if self._increments is not None:
                self._increments.written(plan.snapshot_id, is_ordered=is_ordered and is_new)

        def written(_: object, error: BaseException | None) -> None:
            self._writing -= 1
            if error is None:
                self._on_created(plan.snapshot_id)
            elif self._increments is not None:
                self._increments.base = None
            done(plan.snapshot_id, error)
            self._look_again(error)

        self._writing += 1
        self._background.run(write, written)

    def _take_increment(self, increments: Increments, base: OffsetAndEpoch) -> None:
        """Write what changed since `base`; then merge the chain, if it is time for that."""
        plan = self._plan(self._applied_offset())
        self._applied, self._last_ms = _Applied(), self._clock()
        # From here on the changes are noted anew: should this one not be written, the next snapshot is a full one.
        increments.base = None
        changes = cast(IncrementalStateMachine, self._machine).freeze_changes()
        increments.base = plan.snapshot_id

        def write() -> OffsetAndEpoch | None:
            increments.write(plan, changes, base)
            known = self._log.snapshots()
            merged = increments.merge_if_due()
            if merged is not None:
                verify_snapshot(self._log, merged, step=self._step)
                increments.written(merged, is_ordered=merged not in known)
            return merged

        def written(merged: Any, error: BaseException | None) -> None:
            self._writing -= 1
            if error is not None:
                increments.base = None
            elif merged is not None:
                self._on_created(merged)
            self._log_outcome(plan.snapshot_id, error)
            self._look_again(error)

        self._writing += 1
        self._background.run(write, written)

    def _look_again(self, error: BaseException | None) -> None:
        """Check whether the records that were applied during a snapshot are enough for the next one."""
        if error is None:
            self.look()

    def _give_up(self, error: BaseException) -> None:
        self._log_outcome(None, error)
        if is_ctrl_c(error):
            raise error

    def _log_outcome(self, snapshot_id: OffsetAndEpoch | None, error: BaseException | None) -> None:
        if error is None:
            logger.info("replica %d: snapshot %s is there", self._config.node_id, snapshot_id)
        elif not isinstance(error, ClosedError):
            logger.error(
                "replica %d: no snapshot was taken: %s; the log still has everything, the next attempt comes when due",
                *(self._config.node_id, error),
                exc_info=error,
            )
