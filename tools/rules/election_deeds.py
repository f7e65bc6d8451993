"""The actions of a step of an election: their order, and how an epoch begins (KIP-595)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import ElectionState
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tools.rules.election_life import Life
from tools.rules.election_parts import Leading, same_replica
from tools.rules.election_requests import key_of

KRAFT_VERSION_MAX = 1

ANSWERS = (VoteResponse, BeginQuorumEpochResponse, EndQuorumEpochResponse)


def judge_order(life: Life, event: ev.Event | None, actions: Sequence[act.Action], before: ElectionState) -> None:
    """RV12: an epoch, and a vote, is durable before anyone hears of it."""
    durable = before
    for action in actions:
        epoch: int | None = None
        if type(action) is act.PersistElection:
            durable = action.election
        elif type(action) is act.SendRequest:
            epoch = _epoch_of(action.request)
        elif type(action) is act.SendResponse and isinstance(action.response, ANSWERS) and action.response.topics:
            said = action.response.topics[0].partitions[0]
            epoch = said.leader_epoch
            asked = event.request.topics[0].partitions[0] if isinstance(event, ev.RequestReceived) else None
            if getattr(said, "vote_granted", False) and asked is not None and not asked.pre_vote:
                asker = key_of(asked.replica_id, asked.replica_directory_id)
                if durable.voted_key is None or not same_replica(durable.voted_key, asker):
                    raise BrokenRuleError("RV12", f"{life.state.id_text} votes for {asker}; durable is {durable}")
        if epoch is not None and epoch != durable.epoch:
            raise BrokenRuleError("RV12", f"{life.state.id_text} says {action}; durable is {durable}")


def _epoch_of(request: Any) -> int | None:
    if isinstance(request, VoteRequest):
        return request.topics[0].partitions[0].replica_epoch
    if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
        return request.topics[0].partitions[0].leader_epoch
    return request.topics[0].partitions[0].current_leader_epoch if isinstance(request, FetchRequest) else None


@attrs.frozen
class LogBefore:
    """The log when the event came."""

    end_offset: int
    voters: VoterSet
    voters_at: int | None
    kraft_version: int


def judge_first_batch(life: Life, part: Leading, actions: Sequence[act.Action], before: LogBefore) -> None:
    """RV13: a new leader begins its epoch with a LeaderChange record, and nothing is known to be committed."""
    state, start = life.state, before.end_offset
    records: list[Any] = [
        LeaderChangeMessage(
            leader_id=life.key.id,
            voters=tuple(LeaderChangeMessage.Voter(voter_id=voter.key.id) for voter in before.voters.voters),
            granting_voters=tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in sorted(part.granting)),
        )
    ]
    if before.kraft_version >= 1:
        voters = before.voters.voters
        current = VoterSet(
            tuple(_as_we_run(life, voter) if same_replica(voter.key, life.key) else voter for voter in voters)
        )
        if before.voters_at == -1 or current != before.voters:
            records += [KRaftVersionRecord(kraft_version=before.kraft_version), current.to_record()]
    kinds = (act.BeginEpoch, act.AppendToLog, act.FlushLog, act.AcceptAppends, act.AnnounceLeader)
    own_actions = [action for action in actions if isinstance(action, kinds)][-len(kinds) :]
    text = f"{state.id_text} begins with {own_actions} at {start}"
    if tuple(map(type, own_actions)) != kinds or state.high_watermark is not None:
        raise BrokenRuleError("RV13", f"{text}, high watermark {state.high_watermark}")
    begin, append, _, accept, announce = own_actions
    batches = append.batches  # type: ignore[union-attr]
    said = [decode_control(record) for batch in batches for record in batch.records()]
    if said != records or any(batch.epoch != life.epoch or not batch.is_control for batch in batches):
        raise BrokenRuleError("RV13", f"{text}: {said}, and must with {records}")
    end = start + len(records)
    if (batches[0].base_offset, begin, accept.base_offset, accept.epoch, announce.epoch_start_offset) != (  # type: ignore[union-attr]
        start, act.BeginEpoch(life.epoch, start), end, life.epoch, start,
    ):  # fmt: skip
        raise BrokenRuleError("RV13", text)


def _as_we_run(life: Life, voter: Voter) -> Voter:
    return attrs.evolve(voter, endpoints=dict(life.endpoints), min_kraft_version=0, max_kraft_version=KRAFT_VERSION_MAX)
