"""The work of a replica on its own log: snapshots, retention, the scrub, and a look at the space on its disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.applier import Applier
from kraftlib.runtime.background import Background
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.executor import Executor
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.loop import Loop, Timer
from kraftlib.runtime.opening import Opened
from kraftlib.runtime.scrubber import Scrubber
from kraftlib.runtime.snapshots.checks import SnapshotChecks
from kraftlib.runtime.snapshots.increments import Increments
from kraftlib.runtime.snapshots.retention import Retention
from kraftlib.runtime.snapshots.snapshotter import Done, Snapshotter
from kraftlib.runtime.snapshots.writing import OpenSnapshot, SnapshotPlan, plan_snapshot
from kraftlib.runtime.waiters import again
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger("kraftlib.runtime.housekeeping")

PERIOD_MS = 60_000
SPACE_PERIOD_S = 1.0


class Housekeeping:
    """Snapshots and retention of one replica, on its loop."""

    def __init__(
        self,
        config: RaftConfig,
        opened: Opened,
        *,
        loop: Loop,
        background: Background,
        executor: Executor,
        applier: Applier,
        view: LogView,
        machine: StateMachine | None,
        serde: RecordSerde[Any],
        increments: Increments | None,
        checks: SnapshotChecks,
    ) -> None:
        self._config = config
        self._log = opened.log
        self._loop = loop
        self._executor = executor
        self._applier = applier
        self._view = view
        self._increments = increments
        self._checks = checks
        self._background = background.disk
        self._timer: Timer | None = None
        self._space_timer: Timer | None = None
        self._space_trouble: str | None = None
        """Why the last look at the space has failed, if it has."""
        self._stopped = False
        capabilities = capabilities_of(opened.log)
        self._space = capabilities.space
        self._spare = capabilities.spare
        self.scrubber = Scrubber(
            opened.log,
            interval_ms=config.scrub_interval_ms,
            bytes_per_s=config.scrub_bytes_per_s,
            background=background.disk,
            clock=loop.now_ms,
            call_later=loop.call_later,
            on_damage=executor.damage_found,
            on_snapshot_damage=checks.note_damaged,
            step=background.step,
        )
        self.snapshotter = Snapshotter(
            config,
            opened.log,
            machine,
            serde=serde,
            background=background.disk,
            plan=self._plan,
            applied_offset=lambda: applier.applied_offset,
            on_created=self._created,
            clock=loop.now_ms,
            known_from=lambda: opened.view.voters_known_from,
            step=background.step,
            increments=increments,
        )
        self.retention = Retention(
            config,
            opened.log,
            background=background.disk,
            delete=self._delete_before,
            wall_clock=loop.wall_ms,
            call_soon=loop.call_soon_threadsafe,
            holds=opened.holds.read(),
            save=opened.holds.write,
            remove_late=opened.holds.remove_late,
            step=background.step,
            on_damage=checks.note_damaged,
        )

    def start(self) -> None:
        """Check the newest snapshot, and look from now on: at snapshots, retention and scrub now and then, at space
        every second."""
        self._check_newest()
        self._look()
        self._watch_space()

    def _look(self) -> None:
        self.snapshotter.look()
        self.retention.look()
        self.scrubber.look()
        self._checks.keep_only(self._log.snapshots())
        period_ms = min(self._config.retention_interval_ms, self._config.snapshot_interval_ms or PERIOD_MS)
        self._timer = self._loop.call_later(period_ms / 1_000, self._look)

    def _watch_space(self) -> None:
        """Check the space of the disk: while it is full, no write would notice that there is space again."""
        if self._space is not None or self._spare is not None:
            self._background.run(self._prepare, self._space_known)

    def _prepare(self) -> None:
        """On the background thread: check the free space, and prepare the next segment."""
        if self._space is not None:
            self._space.look_at_space()
        if self._spare is not None:
            self._spare.prepare_spare()

    def _space_known(self, result: None, error: BaseException | None) -> None:
        if not self._stopped:
            before, self._space_trouble = self._space_trouble, None if error is None else str(error)
            if self._space_trouble not in (None, before):
                logger.warning("replica %d: cannot look at its disk: %s", self._config.node_id, error, exc_info=error)
            self._executor.look_at_space()
            if self._space is not None and self._space.is_full:
                self.retention.make_room()
            self._space_timer = self._loop.call_later(SPACE_PERIOD_S, self._watch_space)

    def _check_newest(self) -> None:
        """Read the newest snapshot before it is needed, so that no listener or follower has to wait for that."""
        newest = next(iter(reversed(self._log.snapshots())), None)
        if newest is not None:
            self._checks.when_checked(newest, lambda: None)

    def _delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        self._executor.submit(ev.RetentionDue(snapshot_id))

    def snapshot_lost(self, snapshot_id: OffsetAndEpoch) -> None:
        """A damaged snapshot was set aside."""
        self._checks.forget(snapshot_id)
        self.retention.forget(snapshot_id)
        if self._increments is not None:
            self._increments.base = None
        self._loop.call_soon(self.snapshotter.renew)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        self.scrubber.stop()
        self.retention.stop()
        if self._space_timer is not None:
            self._space_timer.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def create(self, done: Done, values: Iterable[bytes] | None, offset: Offset | None) -> None:
        """Write a snapshot of the state machine, or of `values`; `done` gets the result. Raises: ConfigError."""
        if values is None and offset is not None:
            raise ConfigError("a snapshot without values is one of the state machine as it stands: pass values")
        self.snapshotter.create(done, values, offset)

    def begin(self, offset: Offset | None, to_bytes: Callable[[Any], bytes]) -> OpenSnapshot:
        """Open a snapshot that is written elsewhere. Raises: ConfigError, ReplicaFailedError."""
        if self.snapshotter.suspended is not None:
            raise again(self.snapshotter.suspended)
        plan = self._plan(self._applier.applied_offset if offset is None else offset)

        def frozen(snapshot_id: OffsetAndEpoch) -> None:
            self._loop.call_soon_threadsafe(self._announce, snapshot_id)

        return OpenSnapshot(plan, self._log, to_bytes=to_bytes, on_frozen=frozen)

    def _plan(self, offset: Offset) -> SnapshotPlan:
        high_watermark = self._executor.high_watermark or 0
        return plan_snapshot(self._log, offset=offset, high_watermark=high_watermark, view=self._view)

    def _created(self, snapshot_id: OffsetAndEpoch) -> None:
        self.retention.verified(snapshot_id)
        self._checks.note_sound(snapshot_id)
        self._announce(snapshot_id)

    def _announce(self, snapshot_id: OffsetAndEpoch) -> None:
        self._executor.submit(ev.SnapshotCreated(snapshot_id))
        self.snapshotter.checkpoint_added(snapshot_id)
        self.retention.look()
