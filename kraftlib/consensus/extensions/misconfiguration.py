"""Replicas that do not belong together, by a mistake of their operator: none of them is silent.

| mistake | seen in | refused with |
|---|---|---|
| a directory formatted for another cluster | any request with a cluster id | INCONSISTENT_CLUSTER_ID, as in Kafka |
| a list of static voters that was edited | Vote, Begin-, EndQuorumEpoch, the first Fetches | INCONSISTENT_VOTER_SET |
| the same, where a replica of Kafka leads | the LeaderChange record of its epoch | nothing; it is not appended |
| an address that leads to another node, a new disk | Vote, BeginQuorumEpoch | INVALID_VOTER_KEY, as in Kafka |

Both sides warn, once for each peer and mistake, and count (`ReplicaState.refuse`). Values that Kafka's messages have no
place for stand in tagged fields of ours, which a reader that does not know them skips (KIP-482). The runtime sends them
to replicas of ours alone:

    10000   requests: ids of the static voters in force, ascending, int32 each; empty where the voters stand in the log
    10001   errors: the identity of the replica that refuses, as text for a log line
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kraftlib.codec.declared import Message
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.vote import VoteRequest

VOTERS_TAG: Final = 10_000
DETAIL_TAG: Final = 10_001

OTHER_CLUSTER: Final = "another cluster"
OTHER_VOTERS: Final = "another list of voters"
MISDIRECTED: Final = "meant for another replica"
NOT_THE_ONE_MEANT: Final = "not the replica that was meant"
"""The reasons by which `ReplicaState.refused` counts these mistakes."""

NAMING_THEIR_RECEIVER: Final = (VoteRequest, BeginQuorumEpochRequest)
"""The requests that say for which replica they are meant."""

SHOWN_MAX: Final = 200
"""The number of characters of a peer's text that a log line shows."""

TaggedFields = tuple[tuple[int, bytes], ...]


def introduction(state: ReplicaState) -> TaggedFields:
    """Return the tagged field of a request that says which voters we count."""
    ids = state.static_voters
    return ((VOTERS_TAG, struct.pack(f">{len(ids)}i", *ids)),)


def refusal_detail(state: ReplicaState, request: Any, error: ErrorCode) -> TaggedFields:
    """Return the tagged field of a refusal that tells a replica of ours what we are."""
    if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        detail = f"cluster {state.cluster_id!r}"
    elif error is ErrorCode.INCONSISTENT_VOTER_SET:
        detail = f"voters {ids_text(state.static_voters)}"
    else:
        return ()
    return ((DETAIL_TAG, detail.encode()),) if _tagged(request, VOTERS_TAG) is not None else ()


def look_at_asker(state: ReplicaState, event: RequestReceived[Message]) -> ErrorCode:
    """Warn of a request that should not have come here; return an error if its sender counts other static voters.

    That is refused before anything of it is believed, its epoch included. The other mistakes are refused by the replica
    that handles the request, in Kafka's order.
    """
    request = event.request
    cluster_id = getattr(request, "cluster_id", None)
    if cluster_id != state.cluster_id and None not in (cluster_id, state.cluster_id):
        asker, ours = claimed_id(request), state.cluster_id
        detail = f"{_asker_text(request)} is of cluster {_shown(cluster_id)}, and we are of {ours!r}: one was formatted"
        state.refuse(OTHER_CLUSTER, f"{detail} for another cluster, or reaches for a wrong address", peer=asker)
        return ErrorCode.NONE
    if isinstance(request, NAMING_THEIR_RECEIVER):
        _look_at_receiver(state, request)
    said = _tagged(request, VOTERS_TAG) if request.unknown_tagged_fields else None
    if not said or not state.static_voters or said == introduction(state)[0][1]:
        return ErrorCode.NONE
    ours, theirs = ids_text(state.static_voters), _voters_text(said)
    detail = f"{_asker_text(request)} counts the voters {theirs}, and we count {ours}: two majorities might not meet."
    state.refuse(OTHER_VOTERS, f"{detail} Give all replicas the list that they began with", peer=claimed_id(request))
    return ErrorCode.INCONSISTENT_VOTER_SET


def _look_at_receiver(state: ReplicaState, request: VoteRequest | BeginQuorumEpochRequest) -> None:
    for topic in request.topics[:1]:
        for partition in topic.partitions[:1]:
            meant = ReplicaKey.of(request.voter_id, partition.voter_directory_id)
            if request.voter_id >= 0 and not meant.matches(state.key):
                detail = f"{_asker_text(request)} means {meant}, and we are {state.key}: its list of voters has a wrong"
                detail += " address, or our disk is not the one that it knows"
                state.refuse(MISDIRECTED, detail, peer=claimed_id(request))


def claimed_id(request: Any) -> ReplicaId | None:
    """Return as which replica a request speaks; None if it speaks as none."""
    claimed: int
    match request:
        case VoteRequest():
            claimed = max((part.replica_id for topic in request.topics for part in topic.partitions), default=-1)
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            claimed = max((part.leader_id for topic in request.topics for part in topic.partitions), default=-1)
        case FetchRequest():
            claimed = max(request.replica_id, request.replica_state.replica_id)
        case FetchSnapshotRequest() | ReadBarrierRequest() | SnapshotHashRequest() | StateDigestRequest():
            claimed = request.replica_id
        case UpdateRaftVoterRequest() | ElectionPriorityRequest():
            claimed = request.voter_id
        case ControllerRegistrationRequest():
            claimed = request.controller_id
        case _:
            return None
    return claimed if claimed >= 0 else None


def look_at_refusal(state: ReplicaState, outstanding: Outstanding[Message], error: int, detail: str) -> None:
    """Warn of an answer which says that this replica, or the one that answers, should not be here."""
    destination = outstanding.destination
    peer = f"{outstanding.endpoint}" + (f", where we look for replica {destination}," if destination >= 0 else "")
    says = f"; it says: {_shown(detail)}" if detail else ""
    name = type(outstanding.request).__name__
    if error == ErrorCode.INCONSISTENT_CLUSTER_ID:
        text = f"{peer} refuses {name}: it is of another cluster than ours, {state.cluster_id!r}{says}"
        state.refuse(OTHER_CLUSTER, text, peer=destination)
    elif error == ErrorCode.INCONSISTENT_VOTER_SET:
        text = f"{peer} refuses {name}: it counts other voters than ours, {ids_text(state.static_voters)}{says}"
        state.refuse(OTHER_VOTERS, text, peer=destination)
    elif error == ErrorCode.INVALID_VOTER_KEY:
        voter = state.voters.get(destination)
        meant = destination if voter is None else voter.key
        text = f"{peer} answers {name} that it is not {meant}: another replica or another disk is there, or one that"
        state.refuse(NOT_THE_ONE_MEANT, f"{text} has lost its election state", peer=destination)


def detail_of(response: Any) -> str:
    """Return what a replica that refuses says of itself; empty if it says nothing."""
    return (_tagged(response, DETAIL_TAG) or b"")[:SHOWN_MAX].decode("utf-8", "replace")


def _tagged(message: Any, tag: int) -> bytes | None:
    return next((data for known, data in message.unknown_tagged_fields if known == tag), None)


def _voters_text(said: bytes) -> str:
    if len(said) % 4:
        return _shown(said)
    return _cut(ids_text(struct.unpack(f">{len(said) // 4}i", said)))


def ids_text(voter_ids: tuple[ReplicaId, ...]) -> str:
    """Return how log lines name a list of voters."""
    return "{" + ", ".join(map(str, voter_ids)) + "}"


def _asker_text(request: Any) -> str:
    asker = claimed_id(request)
    return f"{type(request).__name__} of " + ("somebody" if asker is None else f"replica {asker}")


def _shown(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
