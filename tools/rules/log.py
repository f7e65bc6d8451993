"""The log of a replica, kept a second time from what the core heard and asked for (KIP-595, KIP-630, KIP-853).

| id | rule |
|---|---|
| RF1 | the core takes its log for what it has made of it |
| RF2 | what is appended continues the log: offsets without a gap, epochs that do not fall |
| RF3 | what is appended, and each later beginning, is flushed in the version that the log has then; nothing else is |
| RF4 | the log begins later only where a stored, committed snapshot stands in, and does so whenever it is asked to |
| RF5 | a snapshot that is damaged is set aside, once |
| RF6 | a replica that lacks records neither leads nor stands |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Candidate, Leader, Prospective
from kraftlib.records.batch import Batch
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange
from tools.rules.positions import has_all_before, last_epoch
from tools.rules.rule_set import RuleSet


class Mirror:
    """The log as it must be."""

    def __init__(self, log: LogView) -> None:
        self.start_offset: Offset = log.start_offset
        self.end_offset: Offset = log.end_offset
        self.flushed_offset: Offset = log.flushed_offset
        self.log_version = log.log_version
        self.epoch_starts: list[EpochStart] = list(log.epoch_starts)
        self.snapshots: list[OffsetAndEpoch] = list(log.snapshots)
        self.holes: list[OffsetRange] = list(log.holes)

    def begin_epoch(self, epoch: Epoch, offset: Offset) -> None:
        """An epoch begins; one that has no records is not remembered."""
        known = self.epoch_starts
        if known and known[-1].epoch == epoch:
            return
        self.epoch_starts = [*(start for start in known if start.start_offset < offset),
                             EpochStart(epoch=epoch, start_offset=offset)]  # fmt: skip

    def append(self, batches: Sequence[Batch]) -> None:
        """Batches are appended."""
        for batch in batches:
            if not self.epoch_starts or self.epoch_starts[-1].epoch != batch.epoch:
                self.begin_epoch(batch.epoch, batch.base_offset)
            self.end_offset = batch.end_offset

    def truncate(self, end_offset: Offset) -> None:
        """All records at or behind an offset go; a flush that is under way vouches for nothing."""
        self.log_version += 1
        self.end_offset, self.flushed_offset = end_offset, min(self.flushed_offset, end_offset)
        self.epoch_starts = [start for start in self.epoch_starts if start.start_offset < end_offset]
        self.holes = [hole for hole in self.holes if hole.start_offset < end_offset]

    def begin_at(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins at the end of a snapshot."""
        start = self.start_offset = max(self.start_offset, snapshot_id.offset)
        self.snapshots = [kept for kept in self.snapshots if kept >= snapshot_id]
        self.holes = [OffsetRange(max(hole.start_offset, start), hole.end_offset)
                      for hole in self.holes if hole.end_offset > start]  # fmt: skip
        older = [begun for begun in self.epoch_starts if begun.start_offset <= start]
        if older:
            newest = EpochStart(epoch=older[-1].epoch, start_offset=start)
            self.epoch_starts = [newest, *self.epoch_starts[len(older) :]]

    def replace(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot takes the place of the whole log. Newer ones stay."""
        self.log_version += 1
        self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset
        self.epoch_starts, self.holes = [], []
        self.snapshots = sorted({snapshot_id, *(kept for kept in self.snapshots if kept >= snapshot_id)})

    def lose(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot is gone. Where it was the whole log, its epoch still is that of the last record."""
        self.snapshots = [kept for kept in self.snapshots if kept != snapshot_id]
        if not self.epoch_starts and 0 < self.end_offset == snapshot_id.offset:
            self.epoch_starts = [EpochStart(epoch=snapshot_id.epoch, start_offset=snapshot_id.offset - 1)]


class LogRules(RuleSet):
    """RF1 to RF6: the log itself."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self.log = Mirror(core.state.log)
        self._unflushed = False
        self._damage = False
        self._retains: OffsetAndEpoch | None = None
        """The snapshot at which the log is to begin now."""
        self._is_rare = True

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """The sole voter of a quorum leads at once."""
        self._follow(actions)

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """The disk has done it before the core hears of it."""
        hear = _HEARD.get(type(event))
        if hear is not None:
            self._is_rare = type(event) is not ev.Flushed
            hear(self, event, now_ms)

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """The disk does in order what the core asks for."""
        if actions or type(event) in _HEARD:
            self._follow(actions)
        role = self.core.state.role_state
        if self.log.holes and isinstance(role, Leader | Candidate | Prospective):
            raise BrokenRuleError("RF6", f"{self.log.holes} are missing, and this replica is {role.role}")
        if type(event) is ev.SnapshotDamaged:
            self._set_aside(event, actions)

    def _follow(self, actions: Sequence[act.Action]) -> None:
        for action in actions:
            do = _DONE.get(type(action))
            if do is not None:
                do(self, action)
        if self._unflushed:
            raise BrokenRuleError(
                "RF3", f"nothing flushes what was done to the log, which ends at {self.log.end_offset}"
            )
        if self._retains is not None:
            raise BrokenRuleError(
                "RF4", f"the log does not begin at {self._retains}, though that is committed and stored"
            )
        self._compare()

    # --- what the core asks for --------------------------------------------------------------------------------------

    def _append(self, action: act.AppendToLog) -> None:
        log, end, epoch = self.log, self.log.end_offset, last_epoch(self.log)
        for batch in action.batches:
            if batch.base_offset != end or batch.epoch < epoch or batch.epoch > self.core.epoch:
                text = f"{batch} does not continue {end}@{epoch} in epoch {self.core.epoch}"
                raise BrokenRuleError("RF2", text)
            end, epoch = batch.end_offset, batch.epoch
        log.append(action.batches)
        self._unflushed = True

    def _begin_epoch(self, action: act.BeginEpoch) -> None:
        if action.start_offset != self.log.end_offset or action.epoch <= last_epoch(self.log):
            raise BrokenRuleError(
                "RF2", f"epoch {action.epoch} begins at {action.start_offset}, the log ends elsewhere"
            )
        self.log.begin_epoch(action.epoch, action.start_offset)

    def _truncate(self, action: act.TruncateLog) -> None:
        self._is_rare = True
        self.log.truncate(action.end_offset)

    def _flush(self, action: act.FlushLog) -> None:
        if not self._unflushed or action.log_version != self.log.log_version:
            what = (
                "nothing was done to the log" if not self._unflushed else f"the log has version {self.log.log_version}"
            )
            raise BrokenRuleError("RF3", f"a flush of version {action.log_version}: {what}")
        self._unflushed = False

    def _delete_before(self, action: act.DeleteBefore) -> None:
        if action.snapshot_id != self._retains:
            wanted = self._retains or "stay as it is"
            raise BrokenRuleError("RF4", f"the log begins at {action.snapshot_id} and should {wanted}")
        self._retains, self._is_rare, self._unflushed = None, True, True
        self.log.begin_at(action.snapshot_id)

    # --- what the core hears -----------------------------------------------------------------------------------------

    def _flushed(self, event: ev.Flushed, now_ms: int) -> None:
        if event.log_version == self.log.log_version:
            self.log.flushed_offset = max(self.log.flushed_offset, event.end_offset)

    def _truncated(self, event: ev.LogTruncated, now_ms: int) -> None:
        if event.end_offset < self.log.end_offset:
            self.log.truncate(event.end_offset)

    def _created(self, event: ev.SnapshotCreated, now_ms: int) -> None:
        log, snapshot_id = self.log, event.snapshot_id
        if self.core.state.digests.quarantine is not None:
            return  # of a wrong state: it is set aside (RD4)
        at_start = [kept for kept in log.snapshots if kept.offset == log.start_offset and kept != snapshot_id]
        if snapshot_id.offset < log.start_offset or (snapshot_id.offset == log.start_offset and at_start):
            return
        if snapshot_id not in log.snapshots:
            log.snapshots = sorted([*log.snapshots, snapshot_id])
        lacks_beginning = bool(log.holes) and log.holes[0].start_offset == log.start_offset
        if lacks_beginning and has_all_before(log, snapshot_id) and snapshot_id.offset <= self._committed:
            self._retains = snapshot_id

    @property
    def _committed(self) -> Offset:
        return self.core.state.committed_offset

    def _retention(self, event: ev.RetentionDue, now_ms: int) -> None:
        log, snapshot_id, state = self.log, event.snapshot_id, self.core.state
        if snapshot_id not in log.snapshots or snapshot_id == log.snapshots[0]:
            return
        if snapshot_id.offset > min(self._committed, log.end_offset):
            return
        if log.holes and not has_all_before(log, snapshot_id):
            return
        after_ms = max(now_ms, state.now_ms) - state.config.fetch_timeout_ms
        if not state.disk_full and any(kept < snapshot_id and at_ms > after_ms for kept, at_ms in state.sent.items()):
            return
        self._retains = snapshot_id

    def _damaged(self, event: ev.SnapshotDamaged, now_ms: int) -> None:
        self._damage = event.snapshot_id in self.log.snapshots
        if self._damage:
            self.log.lose(event.snapshot_id)

    def _set_aside(self, event: ev.SnapshotDamaged, actions: Sequence[act.Action]) -> None:
        asked = [action.snapshot_id for action in actions if isinstance(action, act.SetSnapshotAside)]
        if asked != [event.snapshot_id] * self._damage:
            raise BrokenRuleError("RF5", f"{event.snapshot_id} is damaged, and {asked} is set aside")

    def _lose(self, action: act.SetSnapshotAside) -> None:
        if action.snapshot_id in self.log.snapshots:
            self._is_rare = True
            self.log.lose(action.snapshot_id)

    def _lost(self, event: ev.SnapshotLost, now_ms: int) -> None:
        self.log.start_offset = event.start_offset
        self.log.epoch_starts = list(event.epoch_starts)
        self.log.lose(event.snapshot_id)
        self.log.holes = list(event.holes)

    def _failed(self, event: ev.StorageFailed, now_ms: int) -> None:
        if event.begins_at is not None:
            self.log.begin_at(event.begins_at)
        if event.holes or event.begins_at is not None:
            self.log.holes = list(event.holes)

    def _repaired(self, event: ev.Repaired, now_ms: int) -> None:
        log = self.log
        log.holes, log.epoch_starts = list(event.holes), list(event.epoch_starts)
        log.end_offset = log.flushed_offset = max(log.end_offset, event.end_offset)

    def _adopted(self, event: ev.SnapshotAdopted, now_ms: int) -> None:
        log, snapshot_id = self.log, event.snapshot_id
        if snapshot_id not in log.snapshots:
            log.snapshots = sorted([*log.snapshots, snapshot_id])
        log.begin_at(snapshot_id)
        log.holes = list(event.holes)

    def _installed(self, event: ev.SnapshotInstalled, now_ms: int) -> None:
        self.log.replace(event.snapshot_id)

    # --- what the core knows -----------------------------------------------------------------------------------------

    def _compare(self) -> None:
        ours, theirs = self.log, self.core.state.log
        if (
            ours.end_offset != theirs.end_offset
            or ours.flushed_offset != theirs.flushed_offset
            or ours.log_version != theirs.log_version
            or ours.start_offset != theirs.start_offset
            or len(ours.snapshots) != len(theirs.snapshots)
            or ours.epoch_starts[-1:] != theirs.epoch_starts[-1:]
        ):
            self._differ()
        if self._is_rare:
            self._is_rare = False
            if (
                ours.epoch_starts != theirs.epoch_starts
                or ours.snapshots != theirs.snapshots
                or ours.holes != theirs.holes
            ):
                self._differ()

    def _differ(self) -> None:
        ours, theirs = self.log, self.core.state.log
        names = ("start_offset", "end_offset", "flushed_offset", "log_version", "epoch_starts", "snapshots", "holes")
        pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
        text = "; ".join(f"{name} {known}, must be {right}" for name, known, right in pairs if known != right)
        raise BrokenRuleError("RF1", text)


_DONE: Final[dict[type, Callable[[LogRules, Any], None]]] = {
    act.AppendToLog: LogRules._append,
    act.BeginEpoch: LogRules._begin_epoch,
    act.TruncateLog: LogRules._truncate,
    act.FlushLog: LogRules._flush,
    act.DeleteBefore: LogRules._delete_before,
    act.SetSnapshotAside: LogRules._lose,
}

_HEARD: Final[dict[type, Callable[[LogRules, Any, int], None]]] = {
    ev.Flushed: LogRules._flushed,
    ev.LogTruncated: LogRules._truncated,
    ev.SnapshotCreated: LogRules._created,
    ev.RetentionDue: LogRules._retention,
    ev.SnapshotDamaged: LogRules._damaged,
    ev.SnapshotLost: LogRules._lost,
    ev.StorageFailed: LogRules._failed,
    ev.Repaired: LogRules._repaired,
    ev.SnapshotAdopted: LogRules._adopted,
    ev.SnapshotInstalled: LogRules._installed,
}
