"""A replica whose disk has lost something that was durable, until it has it again.

Its log keeps its end: it has acknowledged what it cannot read any more, so it votes for nobody whose log is shorter,
and nothing is cut. It does not stand, since it could not serve. It fetches what is missing from the leader:

    ask     a Fetch at the end of our log, under nobody's name, so that it acknowledges nothing. If the leader finds it
            valid, everything that we ever had is in the leader's log, the missing records included; if it diverges, the
            end is cut as ever, and perhaps what is missing with it
    fill    Fetches from the start of the first hole on, under our own name: they say that we have nothing beyond. The
            records go to a file beside the log until the hole is full, and are swapped in then

Both happen in one epoch: with another leader the first step is taken again, so that records of two histories never meet
in one log.
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action, AdvanceHighWatermark, WriteRepair
from kraftlib.consensus.events import Repaired, RepairRefused, RepairWritten, StorageFailed
from kraftlib.consensus.received import read_batches_after
from kraftlib.consensus.roles import Candidate, Leader, Prospective
from kraftlib.consensus.state import Filling, ReplicaState, log
from kraftlib.consensus.transitions import become_resigned, become_unattached
from kraftlib.types import Offset, OffsetAndEpoch
from kraftlib.wire.messages.fetch import FetchResponse


def handle_storage_failed(state: ReplicaState, event: StorageFailed) -> list[Action]:
    """The disk has lost these ranges: lead no more, and fetch them. What a snapshot of ours has is not missing."""
    if event.begins_at is not None:
        state.log.delete_before(event.begins_at)
        if not event.holes:
            state.log.holes, state.filling = [], None
            if state.high_watermark is None or state.high_watermark > state.log.end_offset:
                return []
            return [AdvanceHighWatermark(state.high_watermark)]  # readers go on there
    if not event.holes:
        return []
    state.log.holes = list(event.holes)
    state.filling = None
    text = ", ".join(f"[{hole.start_offset}, {hole.end_offset})" for hole in event.holes)
    log.error("%s: the log is damaged, the records %s are missing: fetching them from the leader", state.id_text, text)
    role = state.role_state
    if isinstance(role, Leader):
        return become_resigned(state, "the log is damaged")
    if isinstance(role, Prospective):
        return become_unattached(state, state.epoch, "the log is damaged", leader_id=role.leader_id)
    if isinstance(role, Candidate):
        return become_unattached(state, state.epoch + 1, "the log is damaged")
    return []


def fetch_position(state: ReplicaState) -> OffsetAndEpoch:
    """Return from where to fetch: the end of the log, or while a hole is being filled what is missing of it."""
    filling = state.filling
    if filling is None:
        return state.log.end
    return OffsetAndEpoch(offset=filling.next_offset, epoch=filling.last_epoch)


def asks_first(state: ReplicaState) -> bool:
    """Whether the next Fetch is the question whether the leader has everything that we had."""
    return bool(state.log.holes) and state.filling is None


def is_anonymous(state: ReplicaState) -> bool:
    """Whether a Fetch must not say whose it is, since it would acknowledge what is not safe to count."""
    return asks_first(state) or state.amnesia is not None


def handle_answer(state: ReplicaState, partition: FetchResponse.PartitionData) -> list[Action] | None:
    """Use a valid answer of the leader, without divergence or snapshot. None: it is of no use."""
    hole = state.log.holes[0]
    if state.filling is None:
        before = state.log.epoch_before(hole.start_offset)
        state.filling = Filling(epoch=state.epoch, next_offset=hole.start_offset, last_epoch=before)
        return []
    filling = state.filling
    if filling.epoch != state.epoch:  # what this leader sends must not meet there with what another one has sent
        return None
    if filling.is_writing:
        return None
    position = OffsetAndEpoch(offset=filling.next_offset, epoch=filling.last_epoch)
    batches = read_batches_after(state, partition.records or b"", position)
    is_last = hole == state.log.holes[-1] and hole.end_offset == state.log.end_offset
    if not is_last:  # what stands behind it is as long as it ever was, and what fills it ends there
        batches = tuple(batch for batch in batches if batch.end_offset <= hole.end_offset)
    if not batches:
        state.filling = None
        return None
    filling.is_writing = True
    return [WriteRepair(batches)]


def handle_repair_written(state: ReplicaState, event: RepairWritten) -> list[Action]:
    """Go on behind what is in the file beside the log."""
    if state.filling is not None:
        state.filling.is_writing = False
        state.filling.next_offset, state.filling.last_epoch = event.end_offset, event.epoch
    return []


def handle_repair_refused(state: ReplicaState, event: RepairRefused) -> list[Action]:
    """The disk is full: begin the repair again in a while."""
    log.warning("%s: the repair of the log is put off: %s", state.id_text, event.reason)
    state.filling = None
    if state.leader_id is not None:
        state.connections.failed(state.leader_id, state.now_ms, state.jittered_backoff_ms())
    return []


def handle_repaired(state: ReplicaState, event: Repaired) -> list[Action]:
    """A hole is full; perhaps there is another one."""
    state.filling = None
    state.log.repaired(event.holes, event.end_offset, event.epoch_starts, event.control_batches)
    log.warning("%s: the log is repaired%s", state.id_text, ", but for another range" * bool(event.holes))
    return []


def forget_old_leader(state: ReplicaState) -> None:
    """Begin again with another leader."""
    filling = state.filling
    if filling is not None and not filling.is_writing and filling.epoch != state.epoch:
        state.filling = None


def truncated_end(state: ReplicaState, end_offset: Offset) -> Offset:
    """Return where a truncation to `end_offset` ends: what is cut off in a hole goes from its start."""
    for hole in state.log.holes:
        if hole.start_offset < end_offset <= hole.end_offset:
            return hole.start_offset
    return end_offset
