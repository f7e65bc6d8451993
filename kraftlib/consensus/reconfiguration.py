"""The conversation of membership: Add, Remove and UpdateRaftVoter, both sides of each (KIP-853).

One voter at a time, and never before this leader has committed a record of its own epoch: then any two majorities of
neighbouring voter sets share a voter. A new set counts from the moment it is appended (KIP-853, Reference explanation).
"""

from __future__ import annotations

from typing import Any

from kraftlib.consensus import answers
from kraftlib.consensus.actions import Action, SendResponse, SubmitControl
from kraftlib.consensus.checks import (
    back_off,
    cluster_error,
    endpoint_of,
    leader_only_error,
    send,
)
from kraftlib.consensus.connections import Outstanding
from kraftlib.consensus.contact import note_contact
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.roles import Endpoints, Leader, Progress, Transfer, VoterChange
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ensure
from kraftlib.records.control import ControlRecord
from kraftlib.types import ZERO_UUID, Endpoint, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)

KRAFT_VERSION_FEATURE = "kraft.version"
LISTENERS_MAX = 16
HOST_MAX = 255

# --- the leader's side: Add and Remove -------------------------------------------------------------------------------


def _reply(event: RequestReceived, error: ErrorCode, message: str | None = None) -> list[Action]:
    return [SendResponse(event.request_id, answers.voter_change(event.request, error, message))]


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
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support {verb} voter because the {KRAFT_VERSION_FEATURE} feature is 0",
        )
    offset = state.log.voters.latest_offset
    if offset is None or offset >= state.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, f"the voter set at offset {offset} is not committed yet; try again"
    return ErrorCode.NONE, None


def handle_add_voter(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Begin to add a voter: ask it first which kraft.versions it supports."""
    request: AddRaftVoterRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE:
        error = leader_only_error(state, state.epoch)
    if error is not ErrorCode.NONE:
        return _reply(event, error)
    endpoints = read_listeners(request.listeners)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return _reply(event, ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
    place = endpoint_of(state, endpoints or {})
    if endpoints is None or place is None:
        name = state.config.listener_name
        return _reply(event, ErrorCode.INVALID_REQUEST, f"the new voter needs an endpoint for the listener {name}")
    error, message = _change_error(state, "adding")
    if error is not ErrorCode.NONE:
        return _reply(event, error, message)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if state.voters.get(key.id) is not None:
        return _reply(event, ErrorCode.DUPLICATE_VOTER, f"id {key.id} is a voter of {state.voters} already")
    if not state.connections.is_ready(key.id, state.now_ms):
        return _reply(event, ErrorCode.REQUEST_TIMED_OUT, f"new voter {key} is not ready to receive requests")
    role = state.role_state
    if isinstance(role, Leader):
        deadline_ms = state.now_ms + state.config.request_timeout_ms
        role.change = VoterChange(
            request_id=event.request_id, request=request, voter_id=key.id, deadline_ms=deadline_ms
        )
    probe = ApiVersionsRequest(client_software_name="kraftlib", client_software_version="1")
    return [send(state, key.id, place, probe)]


def read_listeners(listeners: tuple[Any, ...]) -> Endpoints | None:
    """Read the endpoints of a voter; None if there are too many or one is impossible (security list, row 20)."""
    places = {place.name.upper(): Endpoint(place.host, place.port) for place in listeners}
    plausible = all(0 < len(place.host) <= HOST_MAX and 0 < place.port < 65536 for place in places.values())
    return places if plausible and len(listeners) <= LISTENERS_MAX else None


def handle_probe_response(state: ReplicaState, outstanding: Outstanding, response: ApiVersionsResponse) -> list[Action]:
    """The new voter has said what it supports: submit the voter set with it, if it is caught up."""
    role = state.role_state
    if not isinstance(role, Leader) or role.change is None or role.change.wanted is not None:
        return []
    change = role.change
    request: AddRaftVoterRequest = change.request
    if outstanding.destination != change.voter_id:
        return []
    if response.error_code != ErrorCode.NONE:
        return handle_probe_failed(state, outstanding)
    feature = next((row for row in response.supported_features if row.name == KRAFT_VERSION_FEATURE), None)
    kraft_version = state.log.kraft_version.latest
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if feature is None or not feature.min_version <= kraft_version <= feature.max_version:
        text = f"voter {key} does not support {KRAFT_VERSION_FEATURE} {kraft_version}"
        return _finish(role, ErrorCode.INVALID_REQUEST, text)
    if not _is_caught_up(state, role.observers.get(key)):
        return _finish(role, ErrorCode.REQUEST_TIMED_OUT, f"voter {key} is not caught up yet; try again")
    voter = Voter(
        key=key,
        endpoints=read_listeners(request.listeners) or {},
        min_kraft_version=feature.min_version,
        max_kraft_version=feature.max_version,
    )
    change.wanted = state.voters.with_voter(voter)
    return [submit_control(role, change.wanted.to_record())]


def _is_caught_up(state: ReplicaState, progress: Progress | None) -> bool:
    """Whether a replica had everything within the last fetch timeout (KIP-853: the leader waits until it has).

    Kafka takes whoever was caught up once and has fetched within an hour. The new voter counts for majorities from the
    append on: one that died since, or is far behind, would hold up every commit, and from one voter to two for good.
    """
    caught_up_ms = None if progress is None else progress.last_caught_up_ms
    return caught_up_ms is not None and state.now_ms - caught_up_ms <= state.config.fetch_timeout_ms


def handle_probe_failed(state: ReplicaState, outstanding: Outstanding) -> list[Action]:
    """The new voter does not answer."""
    back_off(state, outstanding)
    role = state.role_state
    if not isinstance(role, Leader) or role.change is None or role.change.voter_id != outstanding.destination:
        return []
    return _finish(role, ErrorCode.REQUEST_TIMED_OUT, f"voter {outstanding.destination} does not answer; try again")


def handle_remove_voter(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Remove a voter, ourselves included: it does not count from the append on."""
    request: RemoveRaftVoterRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE:
        error = leader_only_error(state, state.epoch)
    if error is not ErrorCode.NONE:
        return _reply(event, error)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return _reply(event, ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
    error, message = _change_error(state, "removing")
    if error is not ErrorCode.NONE:
        return _reply(event, error, message)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if key not in state.voters or len(state.voters) == 1:
        return _reply(
            event, ErrorCode.VOTER_NOT_FOUND, f"{key} is not one of the voters {state.voters}, or the only one"
        )
    role = state.role_state
    wanted = state.voters.without(key)
    if not isinstance(role, Leader):
        return []
    live = _live(state, role, wanted)
    if len(live) < wanted.majority:
        text = (
            f"removing {key} would leave the voters {wanted}, of whom only {live} have fetched within the last"
            f" {_life_ms(state)} ms: they could commit nothing. Bring one of the others back, or remove it first"
        )
        return _reply(event, ErrorCode.BROKER_NOT_AVAILABLE, text)  # and not one that may follow a write
    deadline_ms = state.now_ms + state.config.request_timeout_ms
    change = VoterChange(request_id=event.request_id, request=request, voter_id=key.id, deadline_ms=deadline_ms)
    role.change = change
    if key == state.key and len(live) < state.voters.majority:
        # Beyond Kafka: if we wrote the record and died before the others have it, they would need our vote. It would be
        # refused to their shorter logs, and we would not stand, being no voter. So another voter leads first, and
        # removes us by itself.
        target_id = max(live, key=lambda voter_id: role.progress[voter_id].end_offset)
        role.transfer = Transfer(target_id=target_id, deadline_ms=deadline_ms)
        return []
    change.wanted = wanted
    return [submit_control(role, wanted.to_record())]


def _live(state: ReplicaState, role: Leader, voters: VoterSet) -> list[ReplicaId]:
    """Return those of these voters that live: we ourselves, and whoever has fetched within the time of check quorum.

    A removal counts from its append on. If the live voters are no majority of those that stay, nothing is committed any
    more, the removal included, nobody is elected, and nobody can take it back: so it is refused, beyond Kafka, as etcd
    does. There is no way around it, since none is needed: a voter that is silent may always be removed while the others
    are a majority, and where they are none there is no leader that could remove anybody (`kraftlib recover`).
    """
    earliest_ms = state.now_ms - _life_ms(state)
    fetched = {replica_id: progress.heard_ms for replica_id, progress in role.progress.items()}
    return [
        voter_id
        for voter_id in voters.ids
        if voter_id == state.key.id or ((at_ms := fetched.get(voter_id)) is not None and at_ms >= earliest_ms)
    ]


def _life_ms(state: ReplicaState) -> int:
    return state.config.fetch_timeout_ms * 3 // 2


def submit_control(role: Leader, *records: ControlRecord) -> Action:
    """Have control records appended, the only ones that wait to be.

    Kafka appends them before it looks at anything else; here the accumulator has them until the core can make use of
    what it drains.
    """
    ensure(not role.control_waits, "control records wait already")
    role.control_waits = True
    return SubmitControl(records)


def _finish(role: Leader, error: ErrorCode, message: str | None = None) -> list[Action]:
    change, role.change = role.change, None
    if change is None or change.request_id is None:
        return []
    return [SendResponse(change.request_id, answers.voter_change(change.request, error, message))]


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
        if change.voter_id == state.key.id and change.wanted is None:
            text = "no other voter has caught up to lead instead; nothing was changed, try again"
        return _finish(role, ErrorCode.REQUEST_TIMED_OUT, text)
    acknowledges_append = isinstance(change.request, AddRaftVoterRequest) and not change.request.ack_when_committed
    if change.offset is not None and acknowledges_append and change.request_id is not None:
        request_id, change.request_id = change.request_id, None
        return [SendResponse(request_id, AddRaftVoterResponse(error_code=ErrorCode.NONE, error_message=None))]
    return []


# --- the leader's side: Update ---------------------------------------------------------------------------------------


def handle_update_voter(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """A voter says where it is reached now and what it supports."""
    error, actions = _update(state, event.request)
    return [*actions, SendResponse(event.request_id, answers.update_voter(state, error=error))]


def _update(state: ReplicaState, request: UpdateRaftVoterRequest) -> tuple[ErrorCode, list[Action]]:
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE:
        error = leader_only_error(state, request.current_leader_epoch)
    role = state.role_state
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        return error, []
    versions = request.kraft_version_feature
    low, high = versions.min_supported_version, versions.max_supported_version
    endpoints = read_listeners(request.listeners)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID or not 0 <= low <= high:
        return ErrorCode.INVALID_REQUEST, []
    if endpoints is None or endpoint_of(state, endpoints) is None:
        return ErrorCode.INVALID_REQUEST, []
    if role.change is not None or role.control_waits or state.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, []
    kraft_version = state.log.kraft_version.latest
    offset = state.log.voters.latest_offset
    if kraft_version >= 1 and (offset is None or offset >= state.high_watermark):
        return ErrorCode.REQUEST_TIMED_OUT, []
    if not low <= kraft_version <= high:
        return ErrorCode.INVALID_REQUEST, []
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    if key not in state.voters:
        return ErrorCode.VOTER_NOT_FOUND, []
    note_contact(state, role, key)
    voter = Voter(key=key, endpoints=endpoints, min_kraft_version=low, max_kraft_version=high)
    if kraft_version == 0:
        role.reported[key.id] = voter
        return ErrorCode.NONE, []
    wanted: VoterSet = state.voters.with_voter(voter)
    return ErrorCode.NONE, [] if wanted == state.voters else [submit_control(role, wanted.to_record())]
