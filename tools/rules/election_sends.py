"""The requests that a replica must send in its role, to which replicas, and no others (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftlib.consensus import actions as act
from kraftlib.consensus.roles import Role
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC, ZERO_UUID
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.rules.election_life import Life
from tools.rules.election_parts import Asking, Following, Leading, Resigned, Sent
from tools.rules.election_requests import voters_tag

ASKERS = frozenset({Asking, Resigned})
CONVERSATION = frozenset({VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest})


def judge_sends(life: Life, actions: Sequence[act.Action], *, after: int) -> None:
    """Compare what is sent with what must be; then wait for the answers."""
    part = life.part
    sends = [action for action in actions[after:] if type(action) is act.SendRequest]
    asked = {action.destination: action for action in sends if type(action.request) in CONVERSATION}
    follows = type(part) is Following
    if asked or not follows:
        if isinstance(part, Asking):
            _votes(life, part, asked)
        elif isinstance(part, Leading):
            _begins(life, part, asked)
        elif isinstance(part, Resigned):
            _ends(life, part, asked)
        elif asked:
            raise BrokenRuleError("RV8", f"{life.state.id_text} asks {asked} as {part}")
    if life.forgotten is not None:
        _relearns(life, sends)
    for action in sends:
        destination = action.destination
        question = None
        if follows and destination == part.leader_id and type(action.request) is FetchRequest:  # type: ignore[union-attr]
            question = life.question()
        life.sent[action.correlation_id] = Sent(destination, action.request, life.now_ms, question)
        life.awaiting[destination] = action.correlation_id


def owes_requests(life: Life) -> bool:
    """Whether a request may be due although none was sent."""
    part = life.part
    if isinstance(part, Leading):
        return life.now_ms >= part.begin_due_ms
    return type(part) in ASKERS


def _compare(
    life: Life, rule: str, expected: dict[int, Any], asked: dict[int, act.SendRequest[Any]], *, may: bool = False
) -> None:
    """Every destination of `expected` that is ready is asked exactly this, and no other one anything."""
    text = life.state.id_text
    for destination, action in asked.items():
        if destination not in expected:
            raise BrokenRuleError(
                rule, f"{text} at {life.now_ms} asks {destination}, which it need not: {action.request}; {life.part}"
            )
        if not life.may_be_ready(destination):
            raise BrokenRuleError(rule, f"{text} at {life.now_ms} asks {destination} again too soon: {life.pauses}")
        if action.request != expected[destination]:
            raise BrokenRuleError(rule, f"{text} asks {action.request}, and must ask {expected[destination]}")
    for destination in expected:
        if destination not in asked and not may and life.must_be_ready(destination):
            raise BrokenRuleError(
                rule, f"{text} at {life.now_ms} does not ask {destination}, and must: {life.pauses}; {life.part}"
            )


def _votes(life: Life, part: Asking, asked: dict[int, act.SendRequest[Any]]) -> None:
    log = life.state.log
    is_durable = log.flushed_offset == log.end_offset
    expected: dict[int, Any] = {}
    if not part.lost and (part.role is Role.PROSPECTIVE or is_durable):
        said = voters_tag(life)
        for voter in part.electors.voters:
            voter_id = voter.key.id
            if voter_id in part.granted or voter_id in part.rejected or life.listener not in voter.endpoints:
                continue
            row = VoteRequest.PartitionData(
                replica_epoch=life.epoch,
                replica_id=life.key.id,
                replica_directory_id=life.key.directory_id or ZERO_UUID,
                voter_directory_id=voter.key.directory_id or ZERO_UUID,
                last_offset_epoch=log.last_epoch,
                last_offset=log.end_offset,
                pre_vote=part.role is Role.PROSPECTIVE,
            )
            topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
            expected[voter_id] = VoteRequest(
                cluster_id=life.cluster_id, voter_id=voter_id, topics=(topic,), unknown_tagged_fields=said
            )
    _compare(life, "RV4", expected, asked)


def _begins(life: Life, part: Leading, asked: dict[int, act.SendRequest[Any]]) -> None:
    half_ms = life.config.fetch_timeout_ms // 2
    is_due = life.now_ms >= part.begin_due_ms
    if is_due:
        part.begin_due_ms = life.now_ms + half_ms
    if not asked and not is_due:
        return
    silent: dict[int, Any] = {}
    others: dict[int, Any] = {}
    for voter in life.remote_voters:
        known = part.voters.get(voter.key.id)
        fetched_ms = None if known is None else known.fetched_ms
        is_silent = is_due and (fetched_ms is None or life.now_ms - fetched_ms >= half_ms)
        if life.listener in voter.endpoints:
            (silent if is_silent else others)[voter.key.id] = _begin(life, voter)
    is_read = life.reads
    _compare(life, "RV5", silent, {one: action for one, action in asked.items() if one in silent or not is_read})
    _compare(life, "RV5", others, {one: action for one, action in asked.items() if one in others and is_read}, may=True)


def _begin(life: Life, voter: Any) -> BeginQuorumEpochRequest:
    row = BeginQuorumEpochRequest.PartitionData(
        voter_directory_id=voter.key.directory_id or ZERO_UUID, leader_id=life.key.id, leader_epoch=life.epoch
    )
    return BeginQuorumEpochRequest(
        cluster_id=life.cluster_id,
        voter_id=voter.key.id,
        topics=(BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,)),),
        leader_endpoints=tuple(
            BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=own.host, port=own.port)
            for name, own in life.endpoints.items()
        ),
        unknown_tagged_fields=voters_tag(life),
    )


def _ends(life: Life, part: Resigned, asked: dict[int, act.SendRequest[Any]]) -> None:
    info = EndQuorumEpochRequest.ReplicaInfo
    row = EndQuorumEpochRequest.PartitionData(
        leader_id=life.key.id,
        leader_epoch=life.epoch,
        preferred_successors=tuple(key.id for key in part.preferred),
        preferred_candidates=tuple(
            info(candidate_id=key.id, candidate_directory_id=key.directory_id or ZERO_UUID) for key in part.preferred
        ),
    )
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    request = EndQuorumEpochRequest(cluster_id=life.cluster_id, topics=(topic,), unknown_tagged_fields=voters_tag(life))
    expected = {
        voter.key.id: request
        for voter in life.remote_voters
        if voter.key.id in part.unacknowledged and life.listener in voter.endpoints
    }
    _compare(life, "RV6", expected, asked)


def _relearns(life: Life, sends: Sequence[act.SendRequest[Any]]) -> None:
    """A replica that has forgotten its vote says nothing under its name, and asks each voter for its epoch."""
    state, forgotten = life.state, life.forgotten
    for action in sends:
        request = action.request
        if type(request) is FetchRequest:
            named = max(request.replica_id, request.replica_state.replica_id)
        elif type(request) is FetchSnapshotRequest:
            named = request.replica_id
        else:
            continue
        if named >= 0:
            raise BrokenRuleError(
                "RV7", f"{state.id_text} fetches under its name, and has forgotten its vote: {request}"
            )
    if forgotten is None or life.shutdown_ms is not None:
        return
    filling = state.filling
    if state.log.flushed_offset != state.log.end_offset or state.is_truncating:
        return
    if filling is not None and filling.is_writing:
        return
    sets = state.log.voters.since(state.committed_offset - 1)
    asked = {action.destination for action in sends}
    leader_id = life.part.leader_id if isinstance(life.part, Following) else None
    for voters in sets:
        for voter in voters.voters:
            voter_id = voter.key.id
            if voter_id in (life.key.id, leader_id) or voter_id in forgotten.reported or voter_id in asked:
                continue
            if life.listener in voter.endpoints and life.must_be_ready(voter_id) and not life.entered:
                raise BrokenRuleError("RV7", f"{state.id_text} does not ask {voter_id} for its epoch: {forgotten}")
