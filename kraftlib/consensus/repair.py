"""A replica whose disk has lost something that was durable, until it has it again. (Beyond Kafka.)

**Missing records.** Its log keeps its end: it has acknowledged records that it cannot read any more, so it votes for no
candidate with a shorter log, and nothing is cut. It does not stand, since it could not serve. It fetches what is
missing from the leader:

    ask     a Fetch at the end of our log, without a replica id, so that it acknowledges nothing. If the leader finds it
            valid, everything that we ever had is in the leader's log, the missing records included; if it diverges, the
            end is cut as ever, and perhaps what is missing with it
    fill    Fetches from the start of the first hole on, under our own name: they say that we have nothing beyond. The
            records go to a file beside the log until the hole is full, and are swapped in then

Both happen in one epoch: with another leader the first step is taken again, so that records of two histories never meet
in one log.

**A lost election state** (KIP-595, Vote). It may have voted in an epoch that it does not know any more. A second vote
in it could make a second leader; and records that it acknowledges to a leader of an older epoch would be counted there,
though it has helped to elect a newer one that lacks them. So it neither votes nor stands nor counts: it fetches without
a replica id, and confirms no leader. Its vote comes back when, in one epoch e, all of this is true:

1. it follows the leader L of e, and L knows its high watermark: a majority holds a record of e;
2. an answer of L without records has shown that everything in L's log is here, flushed: L's end was reached;
3. every other voter, of the set in force at the last committed record and of each later one in the log, has told its
   epoch since, by answering a Fetch. A newer epoch is taken over when it is told, so none is above e.

The proof that no second vote is cast then stands in docs/explanation/damaged-disks.md. A majority of answers is not
enough for 3: the voter that did not answer may be the one that was voted for. Nor is the high watermark for 2: a voter
that was added by a record beyond it is known to those alone who have the record.
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action, AdvanceHighWatermark, WriteRepair
from kraftlib.consensus.events import Repaired, RepairRefused, RepairWritten, StorageFailed
from kraftlib.consensus.received import read_batches_after
from kraftlib.consensus.requests import place_to_ask
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.consensus.state import Amnesia, Filling, ReplicaState, logger
from kraftlib.consensus.transitions import become_resigned, persist, stop_standing
from kraftlib.consensus.voters import Voter
from kraftlib.types import Endpoint, Epoch, Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.messages.fetch import FetchResponse

# --- missing records --------------------------------------------------------------------------------------------------


def handle_storage_failed(state: ReplicaState, event: StorageFailed) -> list[Action]:
    """The disk has lost these ranges: lead no more, and fetch them. A range that a snapshot of ours covers is not
    missing."""
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
    logger.error(
        "%s: the log is damaged, the records %s are missing: fetching them from the leader", state.id_text, text
    )
    leads = isinstance(state.role_state, Leader)
    return become_resigned(state, "the log is damaged") if leads else stop_standing(state, "the log is damaged")


def fetch_position(state: ReplicaState) -> OffsetAndEpoch:
    """Return the offset and epoch to fetch after: the end of the log, or while a hole is being filled what is missing
    of it."""
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


def handle_repair_response(state: ReplicaState, partition: FetchResponse.PartitionData) -> list[Action] | None:
    """Use a valid answer of the leader, without divergence or snapshot. None: it is of no use."""
    hole = state.log.holes[0]
    if state.filling is None:
        before = state.log.epoch_before(hole.start_offset)
        state.filling = Filling(epoch=state.epoch, next_offset=hole.start_offset, last_epoch=before)
        return []
    filling = state.filling
    if filling.epoch != state.epoch:  # records of this leader must not meet there with those of another one
        return None
    if filling.is_writing:
        return None
    position = OffsetAndEpoch(offset=filling.next_offset, epoch=filling.last_epoch)
    batches = read_batches_after(state, partition.records or b"", position)
    is_last = hole == state.log.holes[-1] and hole.end_offset == state.log.end_offset
    if not is_last:  # the log behind the hole keeps its length, and the fetched records end where it begins
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
    logger.warning("%s: the repair of the log is put off: %s", state.id_text, event.reason)
    state.filling = None
    if state.leader_id is not None:
        state.connections.failed(state.leader_id, state.now_ms, state.jittered_backoff_ms())
    return []


def handle_repaired(state: ReplicaState, event: Repaired) -> list[Action]:
    """A hole is full; perhaps there is another one."""
    state.filling = None
    state.log.repaired(event.holes, event.end_offset, event.epoch_starts, event.control_batches)
    logger.warning("%s: the log is repaired%s", state.id_text, ", but for another range" * bool(event.holes))
    return []


def forget_old_leader(state: ReplicaState) -> None:
    """Begin again with another leader."""
    filling = state.filling
    if filling is not None and not filling.is_writing and filling.epoch != state.epoch:
        state.filling = None


def truncated_end(state: ReplicaState, end_offset: Offset) -> Offset:
    """Return where a truncation to `end_offset` ends: a hole of which any record is the last one goes from its start.

    So the last record is never a missing one, and the log tells of which epoch it is. Holes that touch go together.
    """
    for hole in reversed(state.log.holes):
        if hole.start_offset < end_offset <= hole.end_offset:
            end_offset = hole.start_offset
    return end_offset


# --- a lost election state --------------------------------------------------------------------------------------------


def doubt_vote(state: ReplicaState) -> list[Action]:
    """Grant no vote, durably, until all records of the leader are here: records that we acknowledged are gone."""
    state.amnesia = state.amnesia or Amnesia()
    return persist(state)


def note_epoch(state: ReplicaState, replica_id: ReplicaId, epoch: Epoch) -> None:
    """A replica has answered a Fetch, and named the epoch that it is in.

    A newer epoch than ours has been taken over by now. Where it was not, the answer was refused and is no word of that
    replica, which is asked again: waiting for an epoch that never begins would cost our vote for good.
    """
    amnesia = state.amnesia
    if amnesia is not None and 0 <= epoch <= state.epoch and replica_id in _others(state):
        amnesia.reported.add(replica_id)


def note_leader_end(state: ReplicaState, high_watermark: Offset) -> None:
    """The leader has nothing behind the end of our log; its high watermark is -1 while it does not know it."""
    if state.amnesia is not None and high_watermark >= 0:
        state.amnesia.leader_epoch = state.epoch


def seeks_leader_end(state: ReplicaState) -> bool:
    """Whether the leader's end is still to be reached. A Fetch that the leader held would never be without records."""
    return state.amnesia is not None and state.amnesia.leader_epoch != state.epoch


def unreported(state: ReplicaState) -> list[ReplicaId]:
    """Return the other voters that have not told their epoch."""
    if state.amnesia is None:
        return []
    reported = state.amnesia.reported
    return [replica_id for replica_id in _others(state) if replica_id not in reported]


def _others(state: ReplicaState) -> dict[ReplicaId, Voter]:
    """Return the other voters of every set that may be in force somewhere: of the last committed one, and all later."""
    sets = state.log.voters.since(state.committed_offset - 1)
    return {voter.key.id: voter for voters in sets for voter in voters.others(state.key)}


def voters_to_ask(state: ReplicaState) -> list[tuple[ReplicaId, Endpoint]]:
    """Return the voters that have not told their epoch and may be asked now, and where. The leader is fetched from."""
    others = _others(state)
    leader_id = state.leader_id if isinstance(state.role_state, Follower) else None
    places = {id_: place_to_ask(state, id_, others[id_].endpoints) for id_ in unreported(state) if id_ != leader_id}
    return [(replica_id, place) for replica_id, place in places.items() if place is not None]


def maybe_recall(state: ReplicaState) -> list[Action]:
    """End the amnesia, durably, if it is safe now."""
    amnesia, role = state.amnesia, state.role_state
    if amnesia is None or not isinstance(role, Follower) or not state.voters.others(state.key) or unreported(state):
        return []
    if state.log.holes or role.download is not None:
        return []  # its end is where it was, and not what is there
    if not state.is_voter and not state.are_voters_committed:
        # It was sent the change that removes it because it has no vote to refuse (`fetch_leader.may_send`).
        return []
    if amnesia.leader_epoch != state.epoch:
        return []
    logger.warning(
        "%s: it votes again: no voter has told a newer epoch, and all that the leader has is here", state.id_text
    )
    state.amnesia = None
    return persist(state)
