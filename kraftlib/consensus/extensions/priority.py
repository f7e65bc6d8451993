"""The voter that is to lead becomes the leader: the one with the greatest election priority, or one to which a voter
among Kafka's controllers yields, or one with space where the leader's disk is full (beyond Kafka).

No voter is ever refused a vote for it, so it cannot block an election. It works in three ways:

* a voter with a priority tells each leader (a private request, once an epoch); a leader of lower priority hands over to
  it when it has had everything for `priority_takeover_ms`, and names it first among its successors when it leaves. A
  leader with `yield_to` hands over to the first of these voters that has everything, at once;
* a leader whose disk has been full for the fetch timeout, so that each voter has told of its own, hands over to a voter
  that has everything and asks for more than one byte: its disk has space. Where no majority has space, no other leader
  could commit anything either, and the leader waits for space;
* a voter with a priority stands a little earlier than others.

All of it fades, so that a voter which cannot lead costs a healthy quorum ever less. A leader remembers its last
hand-over to each voter, also when it follows others meanwhile. The next one waits for `priority_takeover_ms`, doubled
for each hand-over in a row, without an end. A row ends when none was needed for twice that pause and the time of an
election: the target led for that time. And each time that a voter stood, or was handed the leadership, without
committing anything as leader, it is wanted half as much in the next election.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.codec.declared import Message
from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.consensus.outstanding import Outstanding, in_lane
from kraftlib.consensus.requests import back_off, place_to_ask, send
from kraftlib.consensus.responses import leader_error
from kraftlib.consensus.roles import Follower, Leader, PreferredVoter, Progress, Transfer
from kraftlib.consensus.state import HandOver, ReplicaState
from kraftlib.types import ZERO_UUID, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest, ElectionPriorityResponse


def lane_to(replica_id: ReplicaId) -> int:
    """Return the destination by which a voter tells its leader, beside its Fetches and reads."""
    return in_lane(1, replica_id)


def tell_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """Tell a leader that we fetch from our election priority, until it has taken note."""
    config = state.config
    if role.told_priority or not (config.election_priority and config.private_apis and role.has_fetched):
        return []
    lane = lane_to(role.leader_id)
    place = place_to_ask(state, lane, role.leader_endpoints)
    # With a full disk, or without a state machine, it could not take a record; it tells once it can.
    if state.disk_full or state.machine_failed_ms is not None or not state.may_stand or place is None:
        return []
    request = ElectionPriorityRequest(
        cluster_id=state.cluster_id,
        leader_epoch=state.epoch,
        voter_id=state.key.id,
        voter_directory_id=state.key.directory_id or ZERO_UUID,
        priority=config.election_priority,
    )
    return [send(state, lane, place, request)]


def handle_priority_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: ElectionPriorityResponse
) -> list[Action]:
    """The leader has taken note, or could not yet."""
    role = state.role_state
    if response.error_code != ErrorCode.NONE:
        back_off(state, outstanding)
    elif isinstance(role, Follower):
        state.connections.succeeded(outstanding.destination)
        role.told_priority = True
    return []


def handle_priority_failed(state: ReplicaState, outstanding: Outstanding[Message], failure: Failure) -> list[Action]:
    """The leader was not reached, or is none of ours, and then there is no use in telling it."""
    role = state.role_state
    if failure is Failure.UNSUPPORTED_VERSION and isinstance(role, Follower):
        role.told_priority = True
    else:
        back_off(state, outstanding)
    return []


def handle_priority(state: ReplicaState, event: RequestReceived[ElectionPriorityRequest]) -> list[Action]:
    """Take note of a voter that is wanted as leader."""
    request = event.request
    error = leader_error(state, request.cluster_id, request.leader_epoch)
    role = state.role_state
    if error is ErrorCode.NONE and not 0 < request.priority <= PRIORITY_MAX:
        error = ErrorCode.INVALID_REQUEST
    elif error is ErrorCode.NONE and ReplicaKey.of(request.voter_id, request.voter_directory_id) not in state.voters:
        error = ErrorCode.VOTER_NOT_FOUND
    elif error is ErrorCode.NONE and isinstance(role, Leader):
        due_ms = state.now_ms + state.config.priority_takeover_ms
        role.preferred_voters[request.voter_id] = PreferredVoter(priority=request.priority, due_ms=due_ms)
    return [SendResponse(event.request_id, ElectionPriorityResponse(error_code=error))]


def priority_of(role: Leader, replica_id: ReplicaId) -> int:
    """Return how much a voter is wanted as leader; 0, as long as it has not said so."""
    wanted = role.preferred_voters.get(replica_id)
    return 0 if wanted is None else wanted.priority


def next_leader(state: ReplicaState, role: Leader) -> Transfer | None:
    """Return the transfer to the voter that is to lead in our place; None while there is none that could.

    Not before our epoch is proved: its LeaderChange commits what earlier epochs have left open, and a successor with
    everything wins its election. Nor in the midst of a voter change: its caller waits for our answer.
    """
    if state.high_watermark is None or role.change is not None:
        return None
    for replica_id, due_ms in _wanted(state, role):
        progress = role.progress.get(replica_id)
        if progress is not None and progress.has_space and state.now_ms >= due_ms and is_ready(state, progress):
            _note_hand_over(state, replica_id)
            return Transfer(target_id=replica_id, deadline_ms=state.now_ms + state.config.request_timeout_ms)
    return None


def next_leader_deadline_ms(state: ReplicaState, role: Leader) -> int | None:
    """When a voter that is to lead in our place is next due."""
    return min((due_ms for _, due_ms in _wanted(state, role) if due_ms > state.now_ms), default=None)


def _wanted(state: ReplicaState, role: Leader) -> list[tuple[ReplicaId, int]]:
    """Return the voters that are to lead in our place, the most wanted first, and when each is due."""
    if state.disk_full:
        if not _majority_has_space(state, role):
            return []
        others = _most_wanted_first(role, role.progress)
        due_ms = state.disk_full_since_ms + state.config.fetch_timeout_ms
        # A hand-over to any of them that was in vain delays the next one to any: else they would take turns at it.
        due_ms = max([due_ms, *(_next_hand_over_ms(state, replica_id) for replica_id in others)])
        return [(replica_id, due_ms) for replica_id in others]
    if state.yield_to:
        return [(replica_id, _next_hand_over_ms(state, replica_id)) for replica_id in state.yield_to]
    if not role.preferred_voters:
        return []
    own_priority = state.config.election_priority
    stronger = [replica_id for replica_id in role.preferred_voters if priority_of(role, replica_id) > own_priority]
    return [
        (replica_id, max(role.preferred_voters[replica_id].due_ms, _next_hand_over_ms(state, replica_id)))
        for replica_id in _most_wanted_first(role, stronger)
    ]


def _most_wanted_first(role: Leader, replica_ids: Iterable[ReplicaId]) -> list[ReplicaId]:
    return sorted(replica_ids, key=lambda replica_id: (-priority_of(role, replica_id), replica_id))


def _majority_has_space(state: ReplicaState, role: Leader) -> bool:
    """Whether the voters that live and have space could commit something without us, whose disk is full."""
    spacious = sum(1 for progress in role.progress.values() if progress.has_space and _lives(state, progress))
    return spacious >= state.voters.majority


def _lives(state: ReplicaState, progress: Progress) -> bool:
    last_ms = progress.last_fetch_ms
    return last_ms is not None and state.now_ms - last_ms < state.config.fetch_timeout_ms


def is_ready(state: ReplicaState, progress: Progress) -> bool:
    """Whether a voter has everything, and lives: one that died in a quiet hour has everything, too."""
    return _lives(state, progress) and progress.end_offset == state.log.end_offset


def _next_hand_over_ms(state: ReplicaState, replica_id: ReplicaId) -> int:
    """When leadership may be handed to a voter again; long ago, if it never was."""
    last = state.hand_overs.get(replica_id)
    return 0 if last is None else last.at_ms + _pause_ms(state, last)


def _note_hand_over(state: ReplicaState, replica_id: ReplicaId) -> None:
    last, count = state.hand_overs.get(replica_id), 1
    if last is not None:
        # An election takes its time, too, and is no sign that its winner has led.
        pause_ms = _pause_ms(state, last) + state.config.fetch_timeout_ms + state.config.election_timeout_ms
        count += last.count if state.now_ms < last.at_ms + 2 * pause_ms else 0
    state.hand_overs[replica_id] = HandOver(state.now_ms, count)


def _pause_ms(state: ReplicaState, last: HandOver) -> int:
    """Return the pause after a hand-over before the next one to the same voter."""
    return state.config.priority_takeover_ms << last.count
