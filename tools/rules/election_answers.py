"""Answers, and their effect on elections (KIP-595): votes, the epoch and leader that an answer names, amnesia.

An answer counts once, in the role that asked, and for the question that was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.rules.election_life import Life
from tools.rules.election_parts import Asking, Following, Resigned, Sent, Span, Unattached
from tools.rules.election_requests import the_partition
from tools.rules.upstreams import is_upstream


@attrs.frozen(kw_only=True)
class Said:
    """The epoch and leader that an answer names."""

    partition: Any = None
    refusal: int = 0
    """The top-level error."""
    error: int = 0
    epoch: int = -1
    leader_id: int | None = None
    places: dict[str, Endpoint] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Before:
    """The log when the event came."""

    question: tuple[Any, ...]
    """The contents of a Fetch to the leader at that time."""
    fills: bool
    others: frozenset[int] = frozenset()
    """Ids of the other voters of each set that may be in force, if an election is forgotten."""
    probed: int | None = None
    """The voter that is to be added, while a leader waits for what it supports."""


def _places(life: Life, nodes: Sequence[Any], leader_id: int | None) -> dict[str, Endpoint]:
    for node in nodes:
        if node.node_id == leader_id and node.host and 0 < node.port < 65536:
            return {life.listener: Endpoint(node.host, node.port)}
    return {}


def _said(life: Life, partition: Any, leader_id: int, epoch: int, nodes: Sequence[Any]) -> Said:
    known = None if leader_id < 0 else leader_id
    places = _places(life, nodes, known)
    return Said(partition=partition, error=partition.error_code, epoch=epoch, leader_id=known, places=places)


def read(life: Life, request: Any, response: Any) -> Said:
    """Read an answer of any of these conversations; without a partition it is of no use."""
    if isinstance(request, UpdateRaftVoterRequest):
        leader = response.current_leader
        place = {life.listener: Endpoint(leader.host, leader.port)} if leader.host and 0 < leader.port < 65536 else {}
        leader_id = None if leader.leader_id < 0 else leader.leader_id
        return Said(
            partition=leader, error=response.error_code, epoch=leader.leader_epoch, leader_id=leader_id, places=place
        )
    if response.error_code != ErrorCode.NONE:
        return Said(refusal=response.error_code)
    if isinstance(request, FetchRequest):
        topics = response.responses
        rows: Any = topics[0].partitions if len(topics) == 1 and topics[0].topic_id == METADATA_TOPIC_ID else ()
        if len(rows) != 1 or rows[0].partition_index != 0:
            return Said()
        leader = rows[0].current_leader
        return _said(life, rows[0], leader.leader_id, leader.leader_epoch, response.node_endpoints)
    if isinstance(request, FetchSnapshotRequest):
        topics = response.topics
        rows = topics[0].partitions if len(topics) == 1 and topics[0].name == METADATA_TOPIC else ()
        if len(rows) != 1 or rows[0].index != 0:
            return Said()
        leader = rows[0].current_leader
        return _said(life, rows[0], leader.leader_id, leader.leader_epoch, response.node_endpoints)
    partition = the_partition(response.topics)
    if partition is None:
        return Said()
    return _said(life, partition, partition.leader_id, partition.leader_epoch, response.node_endpoints)


def heard(life: Life, event: ev.ResponseReceived[Any], actions: Sequence[act.Action], before: Before) -> None:
    """Take an answer as it must be taken."""
    sent = take(life, event.correlation_id)
    if sent is None:
        return
    hear = HEARD.get(type(sent.request))
    if hear is not None:
        hear(life, sent, event.response, actions, before)
    elif isinstance(sent.request, ApiVersionsRequest):
        if not event.response.error_code:
            life.failures.pop(sent.destination, None)
        elif sent.destination == before.probed:
            life.fail(sent.destination)  # as if there were no answer
    elif sent.destination in life.awaiting or sent.destination >= 0:
        # Another conversation on this connection: its outcome is not known here.
        life.pause(sent.destination, Span(0, life.now_ms + 2 * life.config.retry_backoff_ms + 500))


def take(life: Life, correlation_id: int) -> Sent | None:
    """Return what was asked, once; None if nothing waits for this answer."""
    sent = life.sent.pop(correlation_id, None)
    if sent is not None and life.awaiting.get(sent.destination) == correlation_id:
        del life.awaiting[sent.destination]
    return sent


def concerns(life: Life, sent: Sent, said: Said) -> bool:
    """Take over epoch and leader; whether the rest of the answer counts, too (KIP-595)."""
    if said.partition is None:
        life.fail(sent.destination)
        return False
    if said.epoch < life.epoch or said.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        life.fail(sent.destination)
        return False
    is_new = said.epoch > life.epoch
    seeks = isinstance(life.part, Unattached) and said.leader_id is not None
    if is_new or said.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        if not life.learn(said.epoch, said.leader_id, said.places):
            life.fail(sent.destination)
            part = life.part
            if not is_new and said.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and isinstance(part, Following):
                part.has_fetched = part.has_fetched and sent.destination != part.leader_id
        return False
    if said.leader_id is not None and (life.leader_id is None or (seeks and said.leader_id == life.leader_id)):
        if life.learn(said.epoch, said.leader_id, said.places) is None:
            life.fail(sent.destination)
            return False
    elif said.leader_id is not None and said.leader_id != life.leader_id:
        life.is_in_doubt = True
        life.fail(sent.destination)
        return False
    if said.error != ErrorCode.NONE:
        life.fail(sent.destination)
        return False
    life.failures.pop(sent.destination, None)
    return True


# --- votes -----------------------------------------------------------------------------------------------------------


def _vote(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        knows_no_pre_vote(life, sent)
        return
    said = read(life, sent.request, response)
    if not concerns(life, sent, said):
        return
    part = life.part
    if not isinstance(part, Asking):
        return
    granted = bool(said.partition.vote_granted)
    is_prospective = part.role is Role.PROSPECTIVE
    if is_prospective and part.left_ms is not None and not granted:
        backoff = life.config.retry_backoff_ms
        gone_ms = life.now_ms - part.left_ms
        low, high = (max(1, min(gone_ms, pause)) for pause in (backoff, max(2 * backoff - 1, 0)))
        life.pause(sent.destination, Span(life.now_ms + low, life.now_ms + high))
        return
    if any(voter.key.id == sent.destination for voter in part.electors.voters):
        (part.granted if granted else part.rejected).add(sent.destination)
        (part.rejected if granted else part.granted).discard(sent.destination)
    if is_prospective and granted:
        part.round_trip_ms = max(part.round_trip_ms, life.now_ms - sent.at_ms)
    if part.won and not is_prospective:
        life.leader()
    elif part.won:
        stand(life, part)
    elif part.lost and is_prospective:
        life.give_up()


def stand(life: Life, part: Asking) -> bool:
    """Stand, if the pre-vote is won and no other voter is to be the first (decision 0010)."""
    if part.role is not Role.PROSPECTIVE or not part.won or life.now_ms < stands_at_ms(life, part):
        return False
    life.candidate()
    return True


def stands_at_ms(life: Life, part: Asking) -> int:
    """When a won pre-vote lets it stand."""
    if part.gave_way_ms is None:
        return life.now_ms
    slots = 3 + sum(1 for voter in life.voters.voters if voter.key.id < life.key.id)
    return part.gave_way_ms + max(slots * life.config.leader_loss_stagger_ms, 2 * part.round_trip_ms)


def knows_no_pre_vote(life: Life, sent: Sent) -> None:
    """A voter from before KIP-996 has answered: a prospective replica stands at once."""
    if isinstance(life.part, Asking) and life.part.role is Role.PROSPECTIVE:
        life.candidate()
    else:
        life.fail(sent.destination)


# --- the others ------------------------------------------------------------------------------------------------------


def _begin(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    concerns(life, sent, read(life, sent.request, response))


def _end(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    if concerns(life, sent, read(life, sent.request, response)) and isinstance(life.part, Resigned):
        life.part.unacknowledged.discard(sent.destination)


def _fetch(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    said = read(life, sent.request, response)
    goes_on = concerns(life, sent, said)
    if life.forgotten is not None and 0 <= said.epoch <= life.epoch and sent.destination in before.others:
        life.forgotten.reported.add(sent.destination)
    if not goes_on:
        return
    if not isinstance(life.part, Following):
        life.fail(sent.destination)  # it knows of no leader either
        return
    if said.leader_id != life.part.leader_id or sent.question != before.question:
        is_of_leader = said.leader_id == life.part.leader_id and not is_upstream(sent.destination)
        if is_of_leader and sent.question is not None:
            sign_of_life(life, life.part, certain=True)  # nothing else in it counts
        if not life.entered:
            life.fail(sent.destination)
        return
    row = said.partition
    life.is_sent_to_snapshot = row.diverging_epoch.epoch < 0 <= max(row.snapshot_id.epoch, row.snapshot_id.end_offset)
    lives = _is_of_use(life, row, actions, before)
    life.pause(sent.destination, Span(0, life.now_ms + 2 * life.config.retry_backoff_ms + 500))
    if lives is not False and not is_upstream(sent.destination):
        sign_of_life(life, life.part, certain=lives is True)
    is_answered = row.diverging_epoch.epoch < 0 and not life.is_sent_to_snapshot
    if is_answered and not row.records and not life.holes and life.forgotten is not None and row.high_watermark >= 0:
        life.forgotten.reached_epoch = life.epoch


def _is_of_use(life: Life, row: Any, actions: Sequence[act.Action], before: Before) -> bool | None:
    """Whether a fitting answer of the leader is taken; None where other rules know."""
    kinds = {type(action) for action in actions}
    if row.diverging_epoch.epoch >= 0:
        return act.TruncateLog in kinds
    if row.snapshot_id.epoch >= 0 or row.snapshot_id.end_offset >= 0:
        return None
    if life.is_full and row.records:
        return True
    if life.holes:
        return act.WriteRepair in kinds or not before.fills
    return act.AppendToLog in kinds or not row.records or (None if life.config.upstreams else False)


def sign_of_life(life: Life, part: Following, *, certain: bool) -> None:
    """The leader has answered a Fetch: its time begins anew, and no other replica has our pre-vote."""
    restart(life, part, certain=certain)
    if certain:
        part.lost_connection = part.refused = False
        part.lost_before = Span(0, 0)
    else:
        part.lost_connection = None if part.lost_connection else part.lost_connection
        part.refused = None if part.refused else part.refused
        part.lost_before.low = 0
    if not part.said_good_bye:
        part.has_fetched = True if certain else (part.has_fetched or None)


def restart(life: Life, part: Following, *, certain: bool = True) -> None:
    """The leader has its whole time again, unless it has said good-bye."""
    if part.said_good_bye:
        return
    until_ms = life.now_ms + life.config.fetch_timeout_ms
    part.timer = Span(until_ms if certain else part.timer.low, until_ms)


def _fetch_snapshot(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(life.part, Following):
        life.fail(sent.destination)
        return
    said = read(life, sent.request, response)
    is_now = isinstance(life.part, Following) and said.partition is not None and said.epoch == life.epoch
    if is_now and said.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        life.fail(sent.destination)
        if said.error == ErrorCode.SNAPSHOT_NOT_FOUND and isinstance(life.part, Following):
            restart(life, life.part)
    elif concerns(life, sent, said) and isinstance(life.part, Following):
        if any(isinstance(action, act.WriteSnapshotChunk) for action in actions):
            part = life.part
            flags = part.lost_connection, part.refused, part.lost_before
            if not is_upstream(sent.destination):
                sign_of_life(life, part, certain=True)
            part.lost_connection, part.refused, part.lost_before = flags  # those are the log's
        else:
            life.pause(sent.destination, Span(0, life.now_ms + 2 * life.config.retry_backoff_ms + 500))


def _snapshot_hash(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    # Whether the bytes are the same, and it is a sign of life, is for the rules of downloads to say.
    if not response.error_code and isinstance(life.part, Following):
        restart(life, life.part, certain=False)


def _update(life: Life, sent: Sent, response: Any, actions: Sequence[act.Action], before: Before) -> None:
    is_old = response.error_code == ErrorCode.UNSUPPORTED_VERSION
    is_old = is_old and response.current_leader.leader_epoch <= life.epoch
    if (is_old or concerns(life, sent, read(life, sent.request, response))) and isinstance(life.part, Following):
        restart(life, life.part)


HEARD = {
    VoteRequest: _vote,
    BeginQuorumEpochRequest: _begin,
    EndQuorumEpochRequest: _end,
    FetchRequest: _fetch,
    FetchSnapshotRequest: _fetch_snapshot,
    SnapshotHashRequest: _snapshot_hash,
    UpdateRaftVoterRequest: _update,
}


# --- what is no answer -----------------------------------------------------------------------------------------------


def failed(life: Life, event: ev.RequestFailed) -> None:
    """A request has no answer."""
    sent = take(life, event.correlation_id)
    if sent is None:
        return
    is_old = event.failure is ev.Failure.UNSUPPORTED_VERSION
    if is_old and isinstance(sent.request, VoteRequest):
        knows_no_pre_vote(life, sent)
    elif is_old and isinstance(sent.request, UpdateRaftVoterRequest):
        if isinstance(life.part, Following):
            restart(life, life.part)
    else:
        life.fail(sent.destination)


def connection_lost(life: Life, event: ev.ConnectionLost) -> None:
    """A follower tries again at once; a second loss in a row is a dead leader (decision 0003)."""
    part = life.part
    if isinstance(part, Resigned):
        if any(voter.key.id == event.destination for voter in life.voters.voters):
            part.unacknowledged.add(event.destination)
            if not event.refused and event.destination not in part.told_again:
                part.told_again.add(event.destination)
                life.pauses.pop(event.destination, None)
        return
    if not isinstance(part, Following) or event.destination != part.leader_id:
        return
    if part.lost_connection is False:
        part.lost_connection = not event.refused
        if part.lost_connection:
            life.pauses.pop(part.leader_id, None)
    elif life.is_voter:
        pause = _dead_leader_pause(life, part)
        if part.lost_connection:
            part.refused, part.has_fetched = True, False
            part.timer = Span(min(part.timer.low, pause.low), min(part.timer.high, pause.high))
        else:  # it may have been the first loss
            part.lost_connection = None if event.refused else True
            part.refused = None
            part.has_fetched = None if part.has_fetched else part.has_fetched
            part.timer = Span(min(part.timer.low, pause.low), part.timer.high)


def _dead_leader_pause(life: Life, part: Following) -> Span:
    """A slot for each voter, so that no two stand at once; more of them, if the others have kept this leader."""
    slot = life.config.leader_loss_stagger_ms
    survivors = [voter.key.id for voter in life.voters.voters if voter.key.id != part.leader_id]
    rank = survivors.index(life.key.id) if life.key.id in survivors else len(survivors)
    eagerness = life.config.election_priority >> min(life.setbacks, 6)
    wait = life.now_ms + rank * slot * (100 - eagerness) // 100
    low, high = (
        min((2 ** max(min(lost, 16) - 1, 0) - 1) * max(slot, 1), life.config.fetch_timeout_ms)
        for lost in (part.lost_before.low, part.lost_before.high)
    )
    return Span(wait + low, wait + high + slot // 4)
