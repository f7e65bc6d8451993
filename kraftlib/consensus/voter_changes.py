"""AddRaftVoter and RemoveRaftVoter: the leader changes the voter set (KIP-853).

One voter at a time, and never before this leader has committed a record of its own epoch: then any two majorities of
neighbouring voter sets share a voter. A new set counts from the moment it is appended (KIP-853, Reference explanation).
"""

from __future__ import annotations

from typing import Any

from kraftlib.codec.declared import Message
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, SendResponse, SubmitControl
from kraftlib.consensus.deadlines import check_quorum_timeout_ms
from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.requests import back_off, endpoint_of, send
from kraftlib.consensus.responses import leader_error
from kraftlib.consensus.roles import ChangeRequest, Endpoints, Leader, Progress, Transfer, VoterChange
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ensure
from kraftlib.records.control import ControlRecord
from kraftlib.types import ZERO_UUID, Endpoint, ReplicaId, ReplicaKey, is_reachable
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest

KRAFT_VERSION_FEATURE = "kraft.version"

LISTENERS_MAX, LISTENER_NAME_MAX = 16, 255


def reply(event: RequestReceived[ChangeRequest], error: ErrorCode, message: str | None = None) -> list[Action]:
    """Answer a request that would change the voters."""
    return [SendResponse(event.request_id, responses.voter_change(event.request, error, message))]


def _change_error(state: ReplicaState, verb: str) -> tuple[ErrorCode, str | None]:
    """The preconditions that all voter changes share, in Kafka's order (KIP-853, AddRaftVoter)."""
    role = state.role_state
    if not isinstance(role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    if role.change is not None or role.control_waits:
        return ErrorCode.REQUEST_TIMED_OUT, "another voter change is under way; try again"
    if state.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, "this leader has committed nothing in its epoch yet; try again"
    if state.log.kraft_version.latest < 1:
        text = f"Cluster doesn't support {verb} voter because the {KRAFT_VERSION_FEATURE} feature is 0"
        return ErrorCode.UNSUPPORTED_VERSION, text
    offset = state.log.voters.latest_offset
    if offset is None or offset >= state.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, f"the voter set at offset {offset} is not committed yet; try again"
    return ErrorCode.NONE, None


def begin_change(state: ReplicaState, event: RequestReceived[ChangeRequest], voter_id: ReplicaId) -> VoterChange:
    """Return the change that this request asks for, as long as nothing of it is submitted."""
    deadline_ms = state.now_ms + state.config.request_timeout_ms
    return VoterChange(request_id=event.request_id, request=event.request, voter_id=voter_id, deadline_ms=deadline_ms)


def handle_add_voter(state: ReplicaState, event: RequestReceived[AddRaftVoterRequest]) -> list[Action]:
    """Begin to add a voter: ask it first which kraft.versions it supports."""
    request = event.request
    error = leader_error(state, request.cluster_id, state.epoch)
    if error is not ErrorCode.NONE:
        return reply(event, error)
    endpoints = read_listeners(request.listeners)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return reply(event, ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
    place = endpoint_of(state, endpoints or {})
    if endpoints is None or place is None:
        name = state.config.listener_name
        return reply(event, ErrorCode.INVALID_REQUEST, f"the new voter needs a valid endpoint for the listener {name}")
    error, message = _change_error(state, "adding")
    if error is not ErrorCode.NONE:
        return reply(event, error, message)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if state.voters.get(key.id) is not None:
        return reply(event, ErrorCode.DUPLICATE_VOTER, f"id {key.id} is a voter of {state.voters} already")
    if not state.connections.is_ready(key.id, state.now_ms):
        return reply(event, ErrorCode.REQUEST_TIMED_OUT, f"new voter {key} is not ready to receive requests")
    role = state.role_state
    if isinstance(role, Leader):
        role.change = begin_change(state, event, key.id)
    probe = ApiVersionsRequest(client_software_name="kraftlib", client_software_version="1")
    return [send(state, key.id, place, probe)]


def read_listeners(listeners: tuple[Any, ...]) -> Endpoints | None:
    """Read the endpoints of a voter; None if there are too many or one is impossible (security list, row 20).

    An appended listener stands in the log for ever, is dialled by every replica, and is shown to people.
    """
    if len(listeners) > LISTENERS_MAX:
        return None
    places = {place.name.upper(): Endpoint(place.host, place.port) for place in listeners}
    named = all(0 < len(name) <= LISTENER_NAME_MAX and name.isprintable() for name in places)
    reachable = all(is_reachable(place.host) and 0 < place.port < 65536 for place in places.values())
    return places if named and reachable else None


def handle_probe_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: ApiVersionsResponse
) -> list[Action]:
    """The new voter has said what it supports: submit the voter set with it, if it is caught up."""
    if response.error_code == ErrorCode.NONE:
        state.connections.succeeded(outstanding.destination)
    role = state.role_state
    if not isinstance(role, Leader) or role.change is None or role.change.wanted is not None:
        return []
    change = role.change
    request = change.request
    if not isinstance(request, AddRaftVoterRequest) or outstanding.destination != change.voter_id:
        return []
    if response.error_code != ErrorCode.NONE:
        return handle_probe_failed(state, outstanding, Failure.UNSUPPORTED_VERSION)
    feature = next((row for row in response.supported_features if row.name == KRAFT_VERSION_FEATURE), None)
    kraft_version = state.log.kraft_version.latest
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if feature is None or not feature.min_version <= kraft_version <= feature.max_version:
        text = f"voter {key} does not support {KRAFT_VERSION_FEATURE} {kraft_version}"
        return _finish(role, ErrorCode.INVALID_REQUEST, text)
    if not is_caught_up(state, role.observers.get(key)):
        return _finish(role, ErrorCode.REQUEST_TIMED_OUT, f"voter {key} is not caught up yet; try again")
    endpoints, low, high = read_listeners(request.listeners) or {}, feature.min_version, feature.max_version
    voter = Voter(key=key, endpoints=endpoints, min_kraft_version=low, max_kraft_version=high)
    change.wanted = state.voters.with_voter(voter)
    return [submit_control(role, change.wanted.to_record())]


def is_caught_up(state: ReplicaState, progress: Progress | None) -> bool:
    """Whether a replica had everything within the last fetch timeout (KIP-853: the leader waits until it has).

    Kafka takes a replica that was caught up once and has fetched within an hour: one that died since would hold up
    commits.
    """
    caught_up_ms = None if progress is None or not progress.is_proven else progress.last_caught_up_ms
    return caught_up_ms is not None and state.now_ms - caught_up_ms <= state.config.fetch_timeout_ms


def handle_probe_failed(state: ReplicaState, outstanding: Outstanding[Message], failure: Failure) -> list[Action]:
    """The new voter does not answer. Where its time is up, so is that of the change, which answers then."""
    back_off(state, outstanding)
    role = state.role_state
    if failure is Failure.TIMED_OUT or not isinstance(role, Leader):
        return []
    if role.change is None or role.change.voter_id != outstanding.destination:
        return []
    return _finish(role, ErrorCode.REQUEST_TIMED_OUT, f"voter {outstanding.destination} does not answer; try again")


def handle_remove_voter(state: ReplicaState, event: RequestReceived[RemoveRaftVoterRequest]) -> list[Action]:
    """Remove a voter, ourselves included: it does not count from the append on."""
    request = event.request
    error = leader_error(state, request.cluster_id, state.epoch)
    if error is not ErrorCode.NONE:
        return reply(event, error)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return reply(event, ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
    error, message = _change_error(state, "removing")
    if error is not ErrorCode.NONE:
        return reply(event, error, message)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if key not in state.voters or len(state.voters) == 1:
        text = f"{key} is not one of the voters {state.voters}, or the only one"
        return reply(event, ErrorCode.VOTER_NOT_FOUND, text)
    role = state.role_state
    wanted = state.voters.without(key)
    if not isinstance(role, Leader):
        return []
    live = _live(state, role, wanted)
    if len(live) < wanted.majority:
        life_ms = check_quorum_timeout_ms(state)
        text = (
            f"removing {key} would leave the voters {wanted}, of which only {live} have fetched within the last"
            f" {life_ms} ms: they could commit nothing. Bring one of the others back, or remove it first"
        )
        return reply(event, ErrorCode.BROKER_NOT_AVAILABLE, text)  # and not one that may follow a write
    role.change = change = begin_change(state, event, key.id)
    if key == state.key and len(live) < state.voters.majority:
        # Beyond Kafka: if we wrote the record and died before the others have it, they would need our vote, which their
        # shorter logs do not get, and we would not stand. So another voter leads first, and removes us by itself.
        target_id = max(live, key=lambda voter_id: role.progress[voter_id].end_offset)
        role.transfer = Transfer(target_id=target_id, deadline_ms=change.deadline_ms)
        return []
    change.wanted = wanted
    return [submit_control(role, wanted.to_record())]


def _live(state: ReplicaState, role: Leader, voters: VoterSet) -> list[ReplicaId]:
    """Return those of these voters that are alive: this one, and those that fetched within the check-quorum time.

    A removal counts from its append on. If the live voters are no majority of those that stay, nothing is committed any
    more, the removal included, and it cannot be taken back: so it is refused, beyond Kafka, as etcd does. A voter that
    is silent may always be removed while the others are a majority.
    """
    earliest_ms = state.now_ms - check_quorum_timeout_ms(state)
    heard = {replica_id: progress.heard_ms for replica_id, progress in role.progress.items()}
    live = {replica_id for replica_id, at_ms in heard.items() if at_ms is not None and at_ms >= earliest_ms}
    return [voter_id for voter_id in voters.ids if voter_id == state.key.id or voter_id in live]


def submit_control(role: Leader, *records: ControlRecord) -> Action:
    """Have control records appended, the only ones that wait to be: the accumulator has them until it is drained."""
    ensure(not role.control_waits, "control records wait already")
    role.control_waits = True
    return SubmitControl(records)


def _finish(role: Leader, error: ErrorCode, message: str | None = None) -> list[Action]:
    change, role.change = role.change, None
    if change is None or change.request_id is None:
        return []
    return [SendResponse(change.request_id, responses.voter_change(change.request, error, message))]


def advance_change(state: ReplicaState, role: Leader) -> list[Action]:
    """Follow the change through append and commit; a timeout answers the asker, and the record may still commit.

    A leader that has committed its own removal resigns.
    """
    committed = state.high_watermark is not None and (state.log.voters.latest_offset or 0) < state.high_watermark
    if committed and not state.is_voter:
        role.resign_requested = True
    change = role.change
    if change is None:
        return []
    if change.offset is None and change.wanted is not None and state.voters == change.wanted:
        change.offset = state.log.voters.latest_offset
    if change.offset is not None and state.high_watermark is not None and state.high_watermark > change.offset:
        return _finish(role, ErrorCode.NONE)
    if state.now_ms >= change.deadline_ms:
        text = "the change is not committed yet; it may still be"
        if change.wanted is None and change.voter_id == state.key.id:
            text = "no other voter has caught up to lead instead; nothing was changed, try again"
        elif change.wanted is None:
            text = f"voter {change.voter_id} does not answer; nothing was changed, try again"
        return _finish(role, ErrorCode.REQUEST_TIMED_OUT, text)
    acknowledges_append = isinstance(change.request, AddRaftVoterRequest) and not change.request.ack_when_committed
    if change.offset is not None and acknowledges_append and change.request_id is not None:
        request_id, change.request_id = change.request_id, None
        return [SendResponse(request_id, AddRaftVoterResponse(error_code=ErrorCode.NONE, error_message=None))]
    return []
