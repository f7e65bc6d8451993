"""A replica that does not lead answers observers of ours that fetch from it (`upstreams`). (Beyond Kafka.)

A marked Fetch of its own epoch gets the records below the high watermark of this replica, and that high watermark. Such
records are committed for good, so it does not matter that this replica does not lead and may not know the newest ones.
Observers that have kept up are told in rounds, as those of a leader are (`observer_rounds`). One that is ahead of us,
since another upstream has served it, waits until there is news, and gets no records before it has asked again. A log
that is no prefix of ours is for the leader to judge. That, every Fetch without the mark and every one that cannot be
served is answered as ever: with an error that names the leader.
"""

from __future__ import annotations

from typing import Final

from kraftlib.consensus import fetch_leader, responses
from kraftlib.consensus.actions import Action, AnswerObservers, SendResponse
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.extensions.upstreams import is_marked
from kraftlib.consensus.fetch_leader import FETCH_SERVED_FROM, OBSERVERS_MAX, PARKED_MAX_MS, answer_max_bytes
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot
from kraftlib.consensus.observer_rounds import answer_observers
from kraftlib.consensus.responses import leader_only_error, only_partition
from kraftlib.consensus.roles import Follower, ParkedFetch, Prospective
from kraftlib.consensus.state import ReplicaState
from kraftlib.types import METADATA_TOPIC_ID, Epoch, Offset, ReplicaId
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest

NOT_JUDGED: Final = 2**63 - 1
"""The offset of a parked Fetch from beyond our high watermark: there never are records for it."""


def may_serve(state: ReplicaState, request: FetchRequest | FetchSnapshotRequest, epoch: Epoch) -> bool:
    """Whether this replica answers a request of an observer though it does not lead."""
    is_asked = is_marked(request) and request.cluster_id == state.cluster_id and epoch == state.epoch
    return is_asked and state.config.private_apis and _can_serve(state)


def _can_serve(state: ReplicaState) -> bool:
    """Whether we follow the leader of our epoch, or did a moment ago, and have everything up to our high watermark."""
    if not isinstance(state.role_state, Follower | Prospective) or state.leader_id is None or state.shutting_down:
        return False
    high_watermark = state.high_watermark
    is_whole = high_watermark is not None and high_watermark <= state.log.end_offset and not state.log.holes
    return is_whole and state.upstreams.current_ms is not None


def handle_fetch(state: ReplicaState, event: RequestReceived[FetchRequest]) -> list[Action]:
    """Answer a Fetch: a marked one with committed records, if we can; every other one as the protocol wants it."""
    request = event.request
    if request.unknown_tagged_fields:
        partition = only_partition(request.topics, "topic_id", "partition", wanted=METADATA_TOPIC_ID)
        fetcher_id = max(request.replica_id, request.replica_state.replica_id)
        if partition is not None and may_serve(state, request, partition.current_leader_epoch):
            is_sane = min(request.max_wait_ms, partition.fetch_offset, partition.last_fetched_epoch, fetcher_id) >= 0
            if is_sane and event.version >= FETCH_SERVED_FROM and fetcher_id != state.key.id:
                return _serve(state, event, partition, fetcher_id)
    return fetch_leader.handle_fetch(state, event)


def _serve(
    state: ReplicaState,
    event: RequestReceived[FetchRequest],
    partition: FetchRequest.FetchPartition,
    fetcher_id: ReplicaId,
) -> list[Action]:
    request, offset, high_watermark = event.request, partition.fetch_offset, state.high_watermark or 0
    is_ahead = offset > high_watermark
    if not is_ahead:
        judgement = fetch_leader.judge_fetch(state, offset, partition.last_fetched_epoch)
        if isinstance(judgement, Diverging):
            return fetch_leader.handle_fetch(state, event)
        if isinstance(judgement, NeedsSnapshot):
            return [SendResponse(event.request_id, responses.fetch(state, judgement=judgement, version=event.version))]
    waits = _has_kept_up(state, fetcher_id, offset) and request.max_wait_ms > 0
    if offset < high_watermark and not waits:
        response = responses.fetch(state, version=event.version)
        max_bytes = answer_max_bytes(request)
        return [AnswerObservers((event.request_id,), response, offset, max_bytes, high_watermark)]
    state.downstream.epoch = state.epoch
    state.downstream.add(
        ParkedFetch(
            request_id=event.request_id,
            request=request,
            version=event.version,
            fetch_offset=NOT_JUDGED if is_ahead else offset,
            high_watermark=min(partition.high_watermark, high_watermark),
            deadline_ms=state.now_ms + min(request.max_wait_ms, PARKED_MAX_MS),
            fetcher=None,
        )
    )
    if offset < high_watermark or partition.high_watermark < high_watermark:
        state.downstream.ask_for_round(state.now_ms)
    return []


def _has_kept_up(state: ReplicaState, fetcher_id: ReplicaId, offset: Offset) -> bool:
    """Whether an observer has all that was committed here at its Fetch before this one, of which we take note."""
    known = state.downstream.known
    before = known.pop(fetcher_id, None)
    if len(known) >= OBSERVERS_MAX:
        del known[next(iter(known))]
    known[fetcher_id] = state.high_watermark or 0
    return before is not None and offset >= before


def answer_downstream(state: ReplicaState) -> list[Action]:
    """Tell the observers that wait what is committed, in rounds; or that we serve them no more."""
    downstream, high_watermark = state.downstream, state.high_watermark or 0
    if downstream.epoch != state.epoch or not _can_serve(state):
        parked, downstream.fetches, downstream.round_due_ms = downstream.fetches.values(), {}, None
        error = leader_only_error(state, downstream.epoch)
        return [
            SendResponse(one.request_id, responses.fetch(state, error=error, version=one.version)) for one in parked
        ]
    if downstream.round_due_ms is None and downstream.told < high_watermark:
        downstream.ask_for_round(state.now_ms)
        downstream.told = high_watermark
    return answer_observers(state, downstream, len(downstream.known))
