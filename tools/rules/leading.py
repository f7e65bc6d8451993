"""The duties of a leader to its voters, and when it must lead no more (KIP-595, KIP-853).

It introduces itself to each voter that does not fetch (BeginQuorumEpoch, KAFKA-16926), resigns when no majority has
been heard for one and a half fetch timeouts and not before, and names its successors in order (EndQuorumEpoch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.types import Offset, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from tools.rules.election_life import Life
from tools.rules.election_parts import HALVINGS_MAX, Known, Leading, majority_of, same_replica
from tools.rules.election_requests import key_of

STALLED = "a majority fetches and gets nowhere"

# --- what it hears ---------------------------------------------------------------------------------------------------


def asked(
    life: Life, part: Leading, event: ev.RequestReceived[Any], actions: Sequence[act.Action], end: Offset
) -> None:
    """Take note of a request that shows how far its sender is, or that it lives."""
    request = event.request
    if act.SendResponse(event.request_id, None) in actions:
        return  # it is refused without a word
    if isinstance(request, FetchRequest):
        if _is_valid_fetch(event.request_id, actions):
            partition = request.topics[0].partitions[0]
            replica_id = max(request.replica_id, request.replica_state.replica_id)
            if replica_id >= 0 and replica_id != life.key.id:
                key = key_of(replica_id, partition.replica_directory_id)
                if _voter(life, key) or not event.of_observer:  # else another replica may have said so
                    _fetched(life, part, key, partition.fetch_offset, end)
                if _voter(life, key):
                    part.voters[key.id].has_space = request.max_bytes > 1
    elif isinstance(request, FetchSnapshotRequest):
        if any(isinstance(action, act.SendSnapshotChunk) for action in actions) and request.replica_id >= 0:
            directory_id = request.topics[0].partitions[0].replica_directory_id
            key = key_of(request.replica_id, directory_id)
            contact(life, part, key)
            if _voter(life, key) and key.id in part.voters:
                part.voters[key.id].moved_ms = life.now_ms
    elif isinstance(request, UpdateRaftVoterRequest):
        said = _answer_to(event.request_id, actions)
        if said is not None and said.error_code == ErrorCode.NONE:
            contact(life, part, ReplicaKey(request.voter_id, request.voter_directory_id))
    elif isinstance(request, ElectionPriorityRequest):
        said = _answer_to(event.request_id, actions)
        if said is not None and said.error_code == ErrorCode.NONE:
            part.priorities[request.voter_id] = (request.priority, life.now_ms + life.config.priority_takeover_ms)


def _answer_to(request_id: int, actions: Sequence[act.Action]) -> Any:
    for action in actions:
        if isinstance(action, act.SendResponse) and action.request_id == request_id:
            return action.response
    return None


def _is_valid_fetch(request_id: int, actions: Sequence[act.Action]) -> bool:
    """Whether a Fetch is from a position in our log: it is answered with records, or with nothing, or later."""
    answer = _answer_to(request_id, actions)
    if answer is None:
        return True
    if answer.error_code != ErrorCode.NONE:
        return False
    row = answer.responses[0].partitions[0]
    if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return True  # it was kept, and the leadership ended in the same step
    return bool(row.error_code == ErrorCode.NONE and row.diverging_epoch.epoch < 0 and row.snapshot_id.epoch < 0)


def _voter(life: Life, key: ReplicaKey) -> bool:
    return any(same_replica(voter.key, key) for voter in life.voters.voters)


def _fetched(life: Life, part: Leading, key: ReplicaKey, offset: Offset, end: Offset) -> None:
    known = part.voters[key.id] if _voter(life, key) else part.others.setdefault(key, Known(key=key))
    if offset != known.end_offset or offset >= end:
        known.moved_ms = life.now_ms
    known.end_offset, known.fetched_ms = offset, life.now_ms
    contact(life, part, key)


def contact(life: Life, part: Leading, key: ReplicaKey) -> None:
    """A voter lives: with a majority of them, check quorum has its whole time again."""
    if not _voter(life, key):
        return
    part.contacts.add(key.id)
    if len(part.contacts) >= majority_of(life.voters) - (1 if life.is_voter else 0):
        part.contacts.clear()
        part.quorum_until_ms = life.now_ms + life.config.fetch_timeout_ms * 3 // 2


def voters_changed(life: Life, part: Leading) -> None:
    """Voters come and go: the knowledge of a replica stays."""
    known = {one.key: one for one in (*part.voters.values(), *part.others.values())}
    before, was_alone = part.voters, not part.voters
    part.voters = {}
    for voter in life.remote_voters:
        one = known.get(voter.key)
        old = before.get(voter.key.id)
        is_same = old is not None and (same_replica(voter.key, old.key) or same_replica(old.key, voter.key))
        if one is None and old is not None and is_same:
            one, old.key = old, voter.key
        part.voters[voter.key.id] = one or Known(key=voter.key)
    kept = [id(one) for one in part.voters.values()]
    part.others = {key: one for key, one in known.items() if id(one) not in kept}
    part.contacts &= set(part.voters)
    if was_alone and part.voters:
        part.contacts.clear()
        part.quorum_until_ms = life.now_ms + life.config.fetch_timeout_ms * 3 // 2


# --- when it must go -------------------------------------------------------------------------------------------------


def must_resign(life: Life, part: Leading) -> str:
    """Return why it must resign now; empty if there is no reason to."""
    is_needed = len(life.voters.voters) > 1
    if life.shutdown_ms is not None and is_needed:
        return "it shuts down"
    if part.resign_requested:
        return "it was asked to, or its removal is committed"
    waits_since_ms = life.flush_waits_since_ms
    if is_needed and waits_since_ms is not None and life.now_ms - waits_since_ms >= life.config.fetch_timeout_ms:
        return "its disk makes nothing durable"
    if life.now_ms >= part.quorum_until_ms and (is_needed or not life.is_voter):
        return f"no majority was heard until {part.quorum_until_ms}"
    if stalls(life, part):
        return STALLED
    return ""


def stalls(life: Life, part: Leading) -> bool:
    """Whether a majority fetches and gets nowhere, for too long."""
    until_ms = stalled_until_ms(life, part)
    return until_ms is not None and life.now_ms >= until_ms


def stalled_until_ms(life: Life, part: Leading) -> int | None:
    """Return until when a leader waits for a majority that gets nowhere; None while nothing waits to be committed."""
    needed = majority_of(life.voters) - (1 if life.is_voter else 0)
    if part.stalled_since_ms is None or needed <= 0:
        return None
    patience_ms = life.config.fetch_timeout_ms << min(life.stalls, HALVINGS_MAX) + 1
    moved = sorted((known.moved_ms for known in part.voters.values()), reverse=True)
    return max(part.stalled_since_ms, moved[needed - 1]) + patience_ms


def successors(part: Leading) -> tuple[ReplicaKey, ...]:
    """The successors in order: the target of its hand-over, then by offset, priority and id."""

    def rank(known: Known) -> tuple[bool, int, int, int]:
        wanted = part.transfer is not None and part.transfer[0] == known.key.id
        return not wanted, -known.end_offset, -part.priorities.get(known.key.id, (0, 0))[0], known.key.id

    return tuple(known.key for known in sorted(part.voters.values(), key=rank))
