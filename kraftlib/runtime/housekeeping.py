"""What a replica does beside its work: snapshots, retention, and the one thread in the background that they share.

The thread does one thing at a time, at a pace that the loop does not notice, and gives up at its next step when the
replica ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.errors import ConfigError
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.applier import Applier
from kraftlib.runtime.disk import ThreadDisk, call_soon_from_anywhere
from kraftlib.runtime.executor import Executor
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.opening import Opened
from kraftlib.runtime.pace import Pacer
from kraftlib.runtime.scrubber import Scrubber
from kraftlib.runtime.snapshots.checks import Soundness
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, Increments
from kraftlib.runtime.snapshots.retention import Retention
from kraftlib.runtime.snapshots.snapshotter import Done, Snapshotter
from kraftlib.runtime.snapshots.transfer import LogSnapshots
from kraftlib.runtime.snapshots.writing import OpenSnapshot, SnapshotPlan, plan_snapshot
from kraftlib.storage.interface import RoomyLog, SparingLog
from kraftlib.types import Offset, OffsetAndEpoch

PERIOD_MS = 60_000
SPACE_PERIOD_S = 1.0


class Background:
    """A thread for what takes long, and the pace at which it works there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: str) -> None:
        self.pacer = Pacer()
        self.disk = ThreadDisk(loop, name=name)
        self.snapshots: LogSnapshots

    def transfer(self, opened: Opened) -> LogSnapshots:
        """Return what sends and receives snapshots, with its hashing done here."""
        self.snapshots = LogSnapshots(
            opened.log, downloads=opened.downloads, background=self.disk, step=self.pacer.step
        )
        return self.snapshots

    def cancel(self) -> None:
        """Let what is being done end at its next step."""
        self.pacer.cancel()

    def close(self, within_s: float | None = None) -> bool:
        """Give up what is being done, and wait until it has ended, for so long at most; return whether it has."""
        self.pacer.cancel()
        return self.disk.close_within(within_s)


class Housekeeping:
    """Snapshots and retention of one replica, on its loop."""

    def __init__(
        self,
        config: RaftConfig,
        opened: Opened,
        *,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        executor: Executor,
        applier: Applier,
        view: LogView,
        machine: StateMachine | None,
        serde: RecordSerde[Any],
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = opened.log
        self._loop = loop
        self._executor = executor
        self._applier = applier
        self._view = view
        self._timer: asyncio.TimerHandle | None = None
        self.increments = self._make_increments(opened, machine, serde, background)
        self._space_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._background = background.disk
        self.soundness = Soundness(
            opened.log, background=background.disk, on_damage=self._damaged, step=background.pacer.step
        )
        background.snapshots.soundness = self.soundness
        self.scrubber = Scrubber(
            opened.log,
            interval_ms=config.scrub_interval_ms,
            bytes_per_s=config.scrub_bytes_per_s,
            background=background.disk,
            clock=clock,
            call_later=loop.call_later,
            on_damage=executor.damage_found,
            on_snapshot_damage=self.soundness.note_damaged,
            step=background.pacer.step,
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
            clock=clock,
            step=background.pacer.step,
            increments=self.increments,
        )
        self.retention = Retention(
            config,
            opened.log,
            background=background.disk,
            delete=lambda snapshot_id: executor.submit(ev.RetentionDue(snapshot_id)),
            wall_clock=wall_clock,
            call_soon=partial(call_soon_from_anywhere, loop),
            holds=opened.holds.read(),
            save=opened.holds.write,
            remove_late=opened.holds.remove_late,
            step=background.pacer.step,
            on_damage=self.soundness.note_damaged,
        )

    def _make_increments(
        self, opened: Opened, machine: StateMachine | None, serde: RecordSerde[Any], background: Background
    ) -> Increments | None:
        if opened.increments is None:
            return None
        opened.increments.find()
        if not isinstance(machine, IncrementalStateMachine) or not self._config.increments_max:
            return None
        return Increments(
            opened.log,
            opened.increments,
            machine,
            serde,
            chain_max=self._config.increments_max,
            step=background.pacer.step,
        )

    def watch_space(self) -> None:
        """Look every second how much space the disk has: while it is full, nothing else would."""
        if isinstance(self._log, RoomyLog | SparingLog):
            self._background.run(self._prepare, self._space_known)

    def _prepare(self) -> None:
        """On the background thread: see what space there is, and make ready what will be wanted."""
        log = self._log
        if isinstance(log, RoomyLog):
            log.look_at_space()
        if isinstance(log, SparingLog):
            log.prepare_spare()

    def _space_known(self, result: None, error: BaseException | None) -> None:
        if not self._stopped:
            self._executor.look_at_space()
            if isinstance(self._log, RoomyLog) and self._log.is_full:
                self.retention.make_room()
            self._space_timer = self._loop.call_later(SPACE_PERIOD_S, self.watch_space)

    def check_newest(self) -> None:
        """Read the newest snapshot before anybody wants it, who would have to wait for that."""
        newest = next(iter(reversed(self._log.snapshots())), None)
        if newest is not None:
            self.soundness.when_checked(newest, lambda: None)

    def _damaged(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        self._executor.submit(ev.SnapshotDamaged(snapshot_id, reason))

    def snapshot_lost(self, snapshot_id: OffsetAndEpoch) -> None:
        """A damaged snapshot was set aside."""
        self.soundness.forget(snapshot_id)
        self.retention.forget(snapshot_id)
        if self.increments is not None:
            self.increments.base = None
        self._loop.call_soon(self.snapshotter.renew)

    def start(self) -> None:
        """Look now and then whether a snapshot is due, and whether something may go."""
        self.snapshotter.look()
        self.retention.look()
        self.scrubber.look()
        period_ms = min(self._config.retention_interval_ms, self._config.snapshot_interval_ms or PERIOD_MS)
        self._timer = self._loop.call_later(period_ms / 1_000, self.start)

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
        """Write a snapshot of the state machine, or of `values`; `done` hears what came of it. Raises: ConfigError."""
        if values is None and offset is not None:
            raise ConfigError("a snapshot without values is one of the state machine as it stands: pass values")
        self.snapshotter.create(done, values, offset)

    def begin(self, offset: Offset | None, to_bytes: Callable[[Any], bytes]) -> OpenSnapshot:
        """Open a snapshot that is written elsewhere. Raises: ConfigError."""
        plan = self._plan(self._applier.applied_offset if offset is None else offset)

        def frozen(snapshot_id: OffsetAndEpoch) -> None:
            call_soon_from_anywhere(self._loop, self._announce, snapshot_id)

        return OpenSnapshot(plan, self._log, to_bytes=to_bytes, on_frozen=frozen)

    def _plan(self, offset: Offset) -> SnapshotPlan:
        high_watermark = self._executor.high_watermark or 0
        return plan_snapshot(self._log, offset=offset, high_watermark=high_watermark, view=self._view)

    def _created(self, snapshot_id: OffsetAndEpoch) -> None:
        self.retention.verified(snapshot_id)
        self.soundness.note_sound(snapshot_id)
        self._announce(snapshot_id)

    def _announce(self, snapshot_id: OffsetAndEpoch) -> None:
        self._executor.submit(ev.SnapshotCreated(snapshot_id))
        self.snapshotter.checkpoint_added(snapshot_id)
        self.retention.look()
