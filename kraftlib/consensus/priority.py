"""Election priority: the voter that is wanted as leader becomes it, as soon as it has everything (beyond Kafka).

Nobody is ever refused a vote for its priority, so it cannot block an election. It works in two ways:

* a voter with a priority tells each leader (a private request, once an epoch); a leader of lower priority hands over to
  it when it has had everything for `priority_takeover_ms`, ever more rarely where that fails, and names it first among
  its successors when it leaves;
* it stands a little earlier than others.

Both fade: each time it stood, or was handed the leadership, in vain, it is wanted half as much in the next election,
and waits twice as long before it tells the next leader. So it can cost a healthy quorum ever less.
"""

from __future__ import annotations

from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.checks import back_off, cluster_error, endpoint_of, leader_only_error, send
from kraftlib.consensus.connections import FIRST_LANE, Outstanding
from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.consensus.roles import Follower, Leader, Progress, Rival, Transfer
from kraftlib.consensus.state import FADING_MAX, ReplicaState
from kraftlib.types import ZERO_UUID, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest, ElectionPriorityResponse


def lane_to(replica_id: ReplicaId) -> int:
    """Return the destination by which a voter tells its leader, beside its Fetches and reads."""
    return FIRST_LANE - 2**31 - replica_id


# --- the voter's side ------------------------------------------------------------------------------------------------


def tell_deadline_ms(state: ReplicaState, role: Follower) -> int | None:
    """When the leader is to be told."""
    wanted = state.config.election_priority and not role.told_priority and role.has_fetched
    return role.tell_due_ms if wanted and role.tell_due_ms > state.now_ms else None


def tell_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """Tell a leader that we fetch from what we are wanted for, until it has taken note."""
    config = state.config
    if role.told_priority or not (config.election_priority and config.private_apis and role.has_fetched):
        return []
    if state.now_ms < role.tell_due_ms:
        return []
    lane = lane_to(role.leader_id)
    place = endpoint_of(state, role.leader_endpoints)
    if not state.may_stand or place is None or not state.connections.is_ready(lane, state.now_ms):
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
    state: ReplicaState, outstanding: Outstanding, response: ElectionPriorityResponse
) -> list[Action]:
    """The leader has taken note, or could not yet."""
    role = state.role_state
    if response.error_code != ErrorCode.NONE:
        back_off(state, outstanding)
    elif isinstance(role, Follower):
        state.connections.succeeded(outstanding.destination)
        role.told_priority = True
    return []


def handle_priority_failed(state: ReplicaState, outstanding: Outstanding, failure: Failure) -> list[Action]:
    """The leader was not reached, or is none of ours, and then there is no use in telling it."""
    role = state.role_state
    if failure is Failure.UNSUPPORTED_VERSION and isinstance(role, Follower):
        role.told_priority = True
    else:
        back_off(state, outstanding)
    return []


# --- the leader's side -----------------------------------------------------------------------------------------------


def handle_priority(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Take note of a voter that is wanted as leader."""
    request: ElectionPriorityRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE:
        error = leader_only_error(state, request.leader_epoch)
    role = state.role_state
    directory_id = None if request.voter_directory_id == ZERO_UUID else request.voter_directory_id
    if error is ErrorCode.NONE and not 0 < request.priority <= PRIORITY_MAX:
        error = ErrorCode.INVALID_REQUEST
    elif error is ErrorCode.NONE and ReplicaKey(request.voter_id, directory_id) not in state.voters:
        error = ErrorCode.VOTER_NOT_FOUND
    if error is ErrorCode.NONE and isinstance(role, Leader):
        due_ms = state.now_ms + state.config.priority_takeover_ms
        role.rivals[request.voter_id] = Rival(priority=request.priority, due_ms=due_ms)
    return [SendResponse(event.request_id, ElectionPriorityResponse(error_code=error))]


def priority_of(role: Leader, replica_id: ReplicaId) -> int:
    """Return how much a voter is wanted as leader; 0, as long as it has not said so."""
    rival = role.rivals.get(replica_id)
    return 0 if rival is None else rival.priority


def takeover(state: ReplicaState, role: Leader) -> Transfer | None:
    """Return the transfer to the voter that is wanted most, if it is wanted more than us and has everything.

    Not before our epoch is proved, nor in the midst of a voter change: whoever asked for it waits for our answer.
    """
    if not role.rivals or state.high_watermark is None or role.change is not None:
        return None
    for replica_id in sorted(role.rivals, key=lambda rival_id: (-role.rivals[rival_id].priority, rival_id)):
        rival, progress = role.rivals[replica_id], role.progress.get(replica_id)
        if rival.priority <= state.config.election_priority:
            return None
        if progress is None or state.now_ms < rival.due_ms or not _is_ready(state, progress):
            continue
        rival.attempts += 1
        rival.due_ms = state.now_ms + (state.config.priority_takeover_ms << min(rival.attempts, FADING_MAX))
        return Transfer(target_id=replica_id, deadline_ms=state.now_ms + state.config.request_timeout_ms)
    return None


def _is_ready(state: ReplicaState, progress: Progress) -> bool:
    """Whether a voter has everything, and lives: one that died in a quiet hour has everything, too."""
    lives = progress.last_fetch_ms is not None and state.now_ms - progress.last_fetch_ms < state.config.fetch_timeout_ms
    return lives and progress.end_offset == state.log.end_offset


def takeover_deadline_ms(state: ReplicaState, role: Leader) -> int | None:
    """When a voter that is wanted more than us is next due."""
    own = state.config.election_priority
    times = [rival.due_ms for rival in role.rivals.values() if rival.priority > own and rival.due_ms > state.now_ms]
    return min(times, default=None)
