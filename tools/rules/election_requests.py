"""The one right answer to Vote, BeginQuorumEpoch and EndQuorumEpoch (KIP-595, KIP-853, KIP-996).

Each function changes the `Life` as the request does and returns the one answer that is right; None is a closed
connection.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tools.rules.election_life import Life
from tools.rules.election_parts import Asking, Following, Leading, Unattached, same_replica

VOTERS_TAG = 10_000

ANSWERS: dict[type, Any] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
}

LogEnd = tuple[int, int]
"""Epoch of the last record, end offset: in this order they compare (KIP-595)."""


def key_of(replica_id: int, directory_id: Any) -> ReplicaKey:
    """Return the key that a request names."""
    return ReplicaKey(replica_id, None if directory_id == ZERO_UUID else directory_id)


def the_partition(topics: Sequence[Any]) -> Any:
    """Return the one partition of a request or answer; None where there is not exactly that."""
    if len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC and len(topics[0].partitions) == 1:
        partition = topics[0].partitions[0]
        return partition if partition.partition_index == 0 else None
    return None


def voters_tag(life: Life) -> tuple[tuple[int, bytes], ...]:
    """Return what our requests say of a static set of voters, in a tagged field."""
    log = life.state.log
    ids = [voter.key.id for voter in life.voters.voters] if log.voters.latest_offset is None else []
    return ((VOTERS_TAG, struct.pack(f">{len(ids)}i", *ids)),)


class Refusal(int):
    """A top-level error: the fields beside it are not judged."""


def top_level(life: Life, request: Any) -> Refusal | None:
    """Return the error that refuses a request before anything of it is believed."""
    if None not in (request.cluster_id, life.cluster_id) and request.cluster_id != life.cluster_id:
        return Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)
    said = next((data for tag, data in request.unknown_tagged_fields if tag == VOTERS_TAG), None)
    ours = voters_tag(life)[0][1]
    if said and ours and said != ours:
        return Refusal(ErrorCode.INCONSISTENT_VOTER_SET)
    return None if the_partition(request.topics) is not None else Refusal(ErrorCode.INVALID_REQUEST)


def is_closed_strictly(life: Life, request: Any) -> bool:
    """Whether strict mode closes the connection."""
    if not life.config.strict:
        return False
    if request.cluster_id is None:
        return True
    partition = the_partition(request.topics)
    if partition is None or isinstance(request, EndQuorumEpochRequest):
        return False
    return not is_meant(life, request.voter_id, partition.voter_directory_id)


def is_meant(life: Life, voter_id: int, directory_id: Any) -> bool:
    """Whether a request has reached the replica that it is meant for."""
    return voter_id < 0 or same_replica(key_of(voter_id, directory_id), life.key)


def answer(life: Life, request: Any, error: int, version: int, **fields: Any) -> Any:
    """Return the answer of the partition, with the epoch and the leader as they are now."""
    kind = ANSWERS[type(request)]
    leader_id = -1 if life.leader_id is None else life.leader_id
    partition = kind.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=life.epoch, **fields)
    place = life.leader_place if version >= 1 else None
    nodes = () if place is None else (kind.NodeEndpoint(node_id=leader_id, host=place.host, port=place.port),)
    return kind(topics=(kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),), node_endpoints=nodes)


# --- Vote ------------------------------------------------------------------------------------------------------------


def vote(life: Life, event: ev.RequestReceived[Any], own_end: LogEnd) -> Any:
    """Answer a Vote: first what is impossible, then the epoch, then who is meant, then the log."""
    request: VoteRequest = event.request
    if is_closed_strictly(life, request):
        return None
    refusal = top_level(life, request)
    if refusal is not None:
        return refusal
    asked = the_partition(request.topics)
    end = (asked.last_offset_epoch, asked.last_offset)
    newest = asked.replica_epoch - (0 if asked.pre_vote else 1)
    if min(end) < 0 or end[0] > newest:
        return answer(life, request, ErrorCode.INVALID_REQUEST, event.version)
    if asked.replica_epoch < life.epoch:
        return answer(life, request, ErrorCode.FENCED_LEADER_EPOCH, event.version)
    if asked.replica_id < 0:
        return answer(life, request, ErrorCode.INVALID_REQUEST, event.version)
    if not life.believes(asked.replica_epoch):
        life.is_in_doubt = True
        return None
    if asked.replica_epoch > life.epoch:
        life.unattached(asked.replica_epoch)
    if not is_meant(life, request.voter_id, asked.voter_directory_id):
        return answer(life, request, ErrorCode.INVALID_VOTER_KEY, event.version)
    asker = key_of(asked.replica_id, asked.replica_directory_id)
    if asker.id == life.key.id:
        granted: bool | None = False
    elif asked.pre_vote:
        granted = _pre_vote(life, end, own_end)
        _after_pre_vote(life, asker, end, own_end, granted=granted)
    else:
        granted = _binding_vote(life, asker, end, own_end)
    return answer(life, request, ErrorCode.NONE, event.version, vote_granted=granted)


def _pre_vote(life: Life, end: LogEnd, own_end: LogEnd) -> bool | None:
    """Whether a pre-vote is granted (KIP-996); None where what this judge knows does not say."""
    part = life.part
    if life.forgotten is not None or isinstance(part, Leading) or end < own_end:
        return False
    if not isinstance(part, Following) or part.has_fetched is False:
        return True
    stands_in_time = life.may_stand and life.machine_failed_ms is None
    if stands_in_time or life.now_ms < part.timer.low:
        return False if part.has_fetched else None
    return True if part.timer.high <= life.now_ms else None


def _after_pre_vote(life: Life, asker: ReplicaKey, end: LogEnd, own_end: LogEnd, *, granted: bool | None) -> None:
    """Two that ask each other: a refusal of before counts no more, and one lets the other go first (decision 0010)."""
    part = life.part
    if not isinstance(part, Asking) or part.role is not Role.PROSPECTIVE:
        return
    part.rejected.discard(asker.id)
    if granted and part.gave_way_ms is None and (end > own_end or asker.id < life.key.id):
        part.gave_way_ms = life.now_ms


def _binding_vote(life: Life, asker: ReplicaKey, end: LogEnd, own_end: LogEnd) -> bool:
    """Whether a vote is granted, which is then durable before it is spoken (KIP-595)."""
    part = life.part
    if life.forgotten is not None:
        return False
    if not isinstance(part, Unattached) and not (isinstance(part, Asking) and part.role is Role.PROSPECTIVE):
        return False
    if part.voted is not None:
        return same_replica(part.voted, asker)
    if part.leader_id is not None or end < own_end:
        return False
    part.voted = asker
    if part.timer is not None:
        part.timer = life.election_timer()
    life.write()
    return True


# --- BeginQuorumEpoch and EndQuorumEpoch -----------------------------------------------------------------------------


def _learn(life: Life, event: ev.RequestReceived[Any]) -> tuple[bool, Any]:
    """The part that both share: whether it goes on, else the answer."""
    request = event.request
    if is_closed_strictly(life, request):
        return False, None
    refusal = top_level(life, request)
    if refusal is not None:
        return False, refusal
    asked = the_partition(request.topics)
    if asked.leader_epoch < life.epoch:
        return False, answer(life, request, ErrorCode.FENCED_LEADER_EPOCH, event.version)
    if asked.leader_id < 0:
        return False, answer(life, request, ErrorCode.INVALID_REQUEST, event.version)
    places = {
        place.name.upper(): Endpoint(place.host, place.port)
        for place in request.leader_endpoints
        if place.host and place.port
    }
    return life.learn(asked.leader_epoch, asked.leader_id, places) is not None, None


def begin_quorum_epoch(life: Life, event: ev.RequestReceived[Any]) -> Any:
    """Follow the leader that introduces itself, even to another replica; an amnesiac confirms no leader."""
    goes_on, refusal = _learn(life, event)
    if not goes_on:
        return refusal
    request: BeginQuorumEpochRequest = event.request
    directory_id = the_partition(request.topics).voter_directory_id
    error = ErrorCode.NONE if is_meant(life, request.voter_id, directory_id) else ErrorCode.INVALID_VOTER_KEY
    if life.forgotten is not None:
        error = ErrorCode.INVALID_VOTER_KEY
    return answer(life, request, error, event.version)


def end_quorum_epoch(life: Life, event: ev.RequestReceived[Any]) -> Any:
    """The leader leaves: stand after the pause of our place in its list."""
    goes_on, refusal = _learn(life, event)
    if not goes_on:
        return refusal
    asked, part = the_partition(event.request.topics), life.part
    if isinstance(part, Following) and part.leader_id == asked.leader_id:
        pause_ms = successor_pause_ms(life, asked)
        part.timer = life.exactly(pause_ms)
        if pause_ms == 0:
            life.setbacks += 1
            part.is_successor = True
        part.said_good_bye, part.has_fetched = True, False
    return answer(life, event.request, ErrorCode.NONE, event.version)


def successor_pause_ms(life: Life, asked: Any) -> int:
    """The first successor stands at once, each other one later, twice as long each time (KIP-595)."""
    named = [key_of(one.candidate_id, one.candidate_directory_id) for one in asked.preferred_candidates]
    named = named or [ReplicaKey(one) for one in asked.preferred_successors]
    place = next((number for number, key in enumerate(named) if same_replica(key, life.key)), None)
    longest = life.config.election_backoff_max_ms
    if not named or place == 0:
        return 0
    if place is None:
        return longest
    shortest = max(longest >> (len(named) - 1), life.config.leader_loss_stagger_ms)
    return min(longest, shortest << (place - 1))
