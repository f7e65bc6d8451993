"""Positions in a log, worked out anew for the rules of the log and of Fetch (KIP-595, KIP-320, KIP-630).

They read plain values only: where the log begins and ends, its epochs and its snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftlib.types import BOOTSTRAP_SNAPSHOT, Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange


class LogPositions(Protocol):
    """The ends, epochs and snapshots of a log, be it the core's or a rule's."""

    start_offset: Offset
    end_offset: Offset
    epoch_starts: list[EpochStart]
    snapshots: list[OffsetAndEpoch]
    holes: list[OffsetRange]


def epoch_before(log: LogPositions, offset: Offset) -> Epoch:
    """Return the epoch of the record before `offset`; that of a snapshot, if the log begins behind that record."""
    for start in reversed(log.epoch_starts):
        if start.start_offset < offset:
            return start.epoch
    return max((snapshot.epoch for snapshot in log.snapshots if snapshot.offset <= offset), default=0)


def last_epoch(log: LogPositions) -> Epoch:
    """Return the epoch of the last record, or the one that has begun behind it."""
    if log.epoch_starts:
        return log.epoch_starts[-1].epoch
    return max((snapshot.epoch for snapshot in log.snapshots if snapshot.offset == log.start_offset), default=0)


def end_of(log: LogPositions) -> OffsetAndEpoch:
    """Return where the log ends."""
    return OffsetAndEpoch(offset=log.end_offset, epoch=last_epoch(log))


def end_of_epoch(log: LogPositions, epoch: Epoch) -> OffsetAndEpoch:
    """Return the newest epoch of the log up to `epoch`, and where it ends.

    If all epochs of the log are newer, none of its records is here: it ends where the log begins. If that is the end of
    the oldest snapshot, the epoch of the snapshot is named (KIP-630).
    """
    end = log.end_offset
    for start in reversed(log.epoch_starts):
        if start.epoch <= epoch:
            return _known(log, OffsetAndEpoch(offset=end, epoch=start.epoch), epoch)
        end = start.start_offset
    return _known(log, OffsetAndEpoch(offset=end, epoch=epoch) if log.epoch_starts else end_of(log), epoch)


def _known(log: LogPositions, end: OffsetAndEpoch, epoch: Epoch) -> OffsetAndEpoch:
    at_oldest = bool(log.snapshots) and min(log.snapshots).offset == end.offset and end.epoch == epoch
    return min(log.snapshots) if at_oldest else end


def sendable_snapshot(log: LogPositions) -> OffsetAndEpoch | None:
    """Return the newest snapshot, unless that is the checkpoint that the quorum was formatted with."""
    newest = max(log.snapshots, default=BOOTSTRAP_SNAPSHOT)
    return None if newest == BOOTSTRAP_SNAPSHOT else newest


def snapshot_for(log: LogPositions, offset: Offset, epoch: Epoch) -> OffsetAndEpoch | None:
    """Return the snapshot that a follower at this position needs; None if the log has what comes next."""
    newest = sendable_snapshot(log)
    if newest is None:
        return None
    oldest = min(log.snapshots)
    behind = offset < log.start_offset or (offset == log.start_offset and epoch != oldest.epoch)
    is_needed = offset == 0 or ((log.start_offset, offset) != (0, 0) and (behind or epoch < oldest.epoch))
    return newest if is_needed else None


def divergence(log: LogPositions, offset: Offset, epoch: Epoch) -> OffsetAndEpoch | None:
    """Return where the follower's log leaves this one; None if it is a prefix of it."""
    if offset == 0 and log.start_offset == 0:
        return None
    if log.epoch_starts and log.epoch_starts[-1].epoch == epoch and offset <= log.end_offset:
        return None
    end = end_of_epoch(log, epoch)
    return None if end.epoch == epoch and offset <= end.offset else end


def cut(log: LogPositions, leader_end: OffsetAndEpoch) -> Offset:
    """Return where a log is to be cut whose leader has `leader_end` as the end of the newest epoch in common.

    If this log has the epoch, what both ends have in common is kept; else everything older than it.
    """
    if leader_end.epoch == 0:
        return min(leader_end.offset, log.end_offset)
    own = end_of_epoch(log, leader_end.epoch)
    return min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset


def without_half_a_hole(log: LogPositions, end_offset: Offset) -> Offset:
    """Return where a cut at `end_offset` ends: one amid a hole, or at its end, takes all of the hole.

    That may be the end of another hole.
    """
    halved = [hole.start_offset for hole in log.holes if hole.start_offset < end_offset <= hole.end_offset]
    return without_half_a_hole(log, min(halved)) if halved else end_offset


def has_all_before(log: LogPositions, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether the log has, or had before it was damaged, the very records that a snapshot of this id replaces."""
    offset = snapshot_id.offset
    if not log.start_offset < offset <= log.end_offset or is_amid(log.holes, offset):
        return False
    return epoch_before(log, offset) == snapshot_id.epoch


def is_amid(holes: Sequence[OffsetRange], offset: Offset) -> bool:
    """Whether records are missing on both sides of `offset`."""
    return any(hole.start_offset < offset < hole.end_offset for hole in holes)


def may_stand_in(log: LogPositions, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether the snapshot of a leader that has all that this log had may replace its beginning.

    The epoch is compared where this log can tell it.
    """
    offset = snapshot_id.offset
    if not log.start_offset < offset <= log.end_offset:
        return False
    is_unknown = any(hole.start_offset < offset <= hole.end_offset for hole in log.holes)
    return is_unknown or epoch_before(log, offset) == snapshot_id.epoch
