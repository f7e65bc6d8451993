"""What the leader knows of the others, and what follows from it: the high watermark.

The offset of a valid Fetch is how far a replica is, flushed (KIP-595): the leader keeps one `Progress` for each. What a
majority of the voters has is committed, and stays so.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlib.consensus.actions import Action, AdvanceHighWatermark
from kraftlib.consensus.contact import note_contact, restart_check_quorum
from kraftlib.consensus.quorum import majority_offset
from kraftlib.consensus.roles import Leader, Progress
from kraftlib.consensus.state import ReplicaState
from kraftlib.errors import InvariantError
from kraftlib.types import Offset, ReplicaId, ReplicaKey

HIGH_WATERMARK_NEWS_DELAY_MS = 2
"""How long an answer that would only tell a new high watermark (KIP-1166) waits for records to go with it.

A caller that appends again as soon as its last record is committed then finds the followers' Fetches parked instead of
on their way: one round trip per commit instead of two.
"""

OBSERVERS_MAX = 1_000
"""So many observers are remembered, those that fetched last: whoever calls itself otherwise each time costs no more."""

FULL_DISK_MAX_BYTES = 1
"""For how much a replica asks whose disk is full: nothing is taken, but an answer says that the leader lives."""

WENT_BACK = "a voter went back"
"""Under which `ReplicaState.refused` counts voters that fetch from before what they had acknowledged."""


def record_progress(state: ReplicaState, role: Leader, key: ReplicaKey, offset: Offset) -> list[Action]:
    """A valid Fetch at `offset`: everything below is flushed at that replica."""
    if key in state.voters:
        progress = role.progress.get(key.id)
        if progress is None:
            raise InvariantError(f"voter {key} has no progress")
        if offset < progress.end_offset:
            # Nobody forgets within an epoch what its leader has seen it hold, unless records are missing on its disk,
            # an older copy of the disk is in its place (scenario S14), or two run with one identity (M13).
            state.refuse(WENT_BACK, f"voter {key} fetches from {offset} after {progress.end_offset}")
        moved = offset != progress.end_offset
        progress.fetched(offset, state.log.end_offset, state.now_ms)
        note_contact(state, role, key)
        return update_high_watermark(state, role) if moved else []
    observer = role.observers.get(key)
    if observer is None:
        if len(role.observers) >= OBSERVERS_MAX:
            del role.observers[min(role.observers, key=lambda known: role.observers[known].last_fetch_ms or 0)]
        observer = role.observers[key] = Progress(key=key)
    observer.fetched(offset, state.log.end_offset, state.now_ms)
    return []


def update_high_watermark(state: ReplicaState, role: Leader) -> list[Action]:
    """Advance to what a majority has flushed, our own copy included once it is flushed.

    Only beyond the start of the own epoch: a record of an older one is committed by the first of ours (Raft, figure 8).
    """
    offsets = [progress.end_offset for progress in role.progress.values()]
    if state.is_voter:
        offsets.append(state.log.flushed_offset)
    offset = majority_offset(offsets)
    known = state.high_watermark
    if offset <= role.epoch_start_offset or (known is not None and offset <= known):
        return []
    for parked in role.parked.values():
        parked.deadline_ms = min(parked.deadline_ms, state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
        role.parked_deadline_ms = min(role.parked_deadline_ms or parked.deadline_ms, parked.deadline_ms)
    role.stalled_since_ms = None
    state.setbacks = 0
    return advance_high_watermark(state, offset)


def advance_high_watermark(state: ReplicaState, offset: Offset) -> list[Action]:
    """Everything below `offset` is committed, for good."""
    if not offset <= state.log.end_offset:
        raise InvariantError(f"high watermark {offset} beyond the log end {state.log.end_offset}")
    state.high_watermark = offset
    state.stalls = 0
    state.committed_offset = max(state.committed_offset, offset)
    return [AdvanceHighWatermark(offset)]


def follow_voters(state: ReplicaState, role: Leader) -> None:
    """Move progress between voters and observers as the new voter set says; what is known of a replica is kept."""
    known = {progress.key: progress for progress in (*role.progress.values(), *role.observers.values())}
    was_alone = not role.progress
    remote = {voter.key.id: voter.key for voter in state.voters.others(state.key)}
    role.progress = {replica_id: _progress_of(key, known, role.progress) for replica_id, key in remote.items()}
    kept = {id(progress) for progress in role.progress.values()}
    role.observers = {key: progress for key, progress in known.items() if id(progress) not in kept}
    role.fetched_voters &= set(remote)
    if was_alone and remote:
        # While nobody else was needed, nobody was missed; the first other voter has its time, too.
        restart_check_quorum(state, role)


def _progress_of(
    key: ReplicaKey, known: Mapping[ReplicaKey, Progress], voters: Mapping[ReplicaId, Progress]
) -> Progress:
    """What is known of a voter: of this very key, or of the voter whose directory id the log now names, or no more.

    Of an observer without a directory id nobody knows whose disk it fetches for: what it has does not count.
    """
    progress, voter = known.get(key), voters.get(key.id)
    if progress is not None:
        return progress
    if voter is not None and (key.matches(voter.key) or voter.key.matches(key)):
        voter.key = key
        return voter
    return Progress(key=key)
