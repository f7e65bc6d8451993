"""The invariants of what applications, their listeners and the readers of a log are told: see `invariants`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from kraftlib.testing.facts import Facts
from kraftlib.testing.images import DiskImage
from kraftlib.testing.violation import Complaint
from kraftlib.types import Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId


def i15_listener_in_order(node: DiskImage, expected: Offset, base_offset: Offset) -> Complaint:
    """I15, the listener's contract: every committed record once, in order, without a gap."""
    return None if base_offset == expected else f"a listener of {node.key} is given {base_offset}, due was {expected}"


def i15_listener_hears_committed_only(facts: Facts, node: DiskImage, last_offset: Offset, epoch: Epoch) -> Complaint:
    """I15: records given to a listener are committed."""
    entry = facts.committed.covering(last_offset)
    if entry is not None and entry.epoch == epoch:
        return None
    return f"a listener of {node.key} is given {last_offset} of epoch {epoch}, committed there is {entry}"


def i15_listener_never_goes_back(node: DiskImage, before: Offset, snapshot_offset: Offset) -> Complaint:
    """I15: a snapshot is loaded to get ahead, never back."""
    if snapshot_offset >= before:
        return None
    return f"a listener of {node.key} is given a snapshot up to {snapshot_offset}, it stands at {before}"


def i15_leader_is_news(node: DiskImage, told: LeaderAndEpoch | None, leader: LeaderAndEpoch) -> Complaint:
    """I15: a listener hears of an epoch at most twice, first without a leader and then of it; never of an older one."""
    if told is None or leader.epoch > told.epoch:
        return None
    if leader.epoch == told.epoch and told.leader_id is None and leader.leader_id is not None:
        return None
    return f"a listener of {node.key} is told of {leader} after {told}"


def i15_leader_has_caught_up(
    node: DiskImage, leader_id: ReplicaId | None, applied: Offset, epoch_start: Offset | None
) -> Complaint:
    """I15: a leader hears of itself when it was given everything from before its epoch, and the first record of it."""
    if leader_id != node.key.id or epoch_start is None or applied > epoch_start:
        return None
    return f"a listener of {node.key} hears that it leads at {applied}, the epoch starts at {epoch_start}"


def i15_listener_that_is_gone_hears_nothing(node: DiskImage, is_gone: bool) -> Complaint:
    """I15: a listener that was taken away, or has raised, hears nothing any more."""
    return f"{node.key} tells a listener that is gone" if is_gone else None


def v9_leader_is_told(node: DiskImage, known: LeaderAndEpoch, told: Sequence[LeaderAndEpoch | None]) -> Complaint:
    """V9: the application and the listeners of a replica know the leader that its core knows."""
    return None if {*told} == {known} else f"the core of {node.key} knows {known}, and {told} was told"


def v9_election_is_timed(node: DiskImage, longest_ms: float) -> Complaint:
    """V9: the metrics of a leader that others have elected tell how long that took."""
    return f"{node.key} was elected, and its metrics do not say how long that took" if math.isnan(longest_ms) else None


def v10_nothing_waits_in_vain(node: DiskImage, number: int, is_waiting: bool) -> Complaint:
    """V10: an append that nothing holds up is with the core in the next turn of the loop."""
    return (
        f"{node.key} leaves append {number} waiting, and neither its disk nor its core is busy" if is_waiting else None
    )


def hold_is_kept_for_the_next_life(node: DiskImage, name: str, stored: Collection[str]) -> Complaint:
    """HOLD: a hold is stored, so that a restart does not end it."""
    return None if name in stored else f"the hold {name!r} of {node.key} is not stored, only {sorted(stored)}"


def hold_that_is_given_holds(node: DiskImage, name: str, is_over: bool) -> Complaint:
    """HOLD: a hold that is given out is not over, also where one of the same name has expired."""
    return f"{node.key} gives out the hold {name!r}, which is over" if is_over else None


def hold_keeps_the_log(node: DiskImage, snapshot: OffsetAndEpoch, held: Mapping[str, Offset]) -> Complaint:
    """HOLD: nothing is deleted that a reader holds; a hold that is too costly expires first."""
    lost = {name: offset for name, offset in held.items() if offset < snapshot.offset}
    return f"{node.key} deletes what is below {snapshot}, and readers hold {lost}" if lost else None
