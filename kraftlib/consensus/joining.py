"""UpdateRaftVoter, both sides, and how a replica joins the voters by itself (KIP-853, KIP-1186).

A replica that lost its disk comes back with another one, as an observer, and the voter of its id is dead for good. With
auto-join it removes that voter and adds itself. But a new replica that was given a wrong id finds a voter of its id as
well, and that one lives. So the leader is asked first, once a period, when that voter fetched last (DescribeQuorum,
which Kafka's leaders answer, too): a follower fetches several times in a period. Only after `SILENT_PERIODS` responses
in a row without a new Fetch is the voter taken for dead and removed. Kafka removes it without a look.
"""

from __future__ import annotations

from kraftlib.codec.declared import Message
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.deadlines import ask_again_later, note_contact, restart_fetch_timer
from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.requests import Answer, back_off, common_part, endpoint_of, error_name, place_to_ask, send
from kraftlib.consensus.responses import leader_error, only_partition
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.consensus.state import ReplicaState, listener_endpoints
from kraftlib.consensus.transitions import updated_voters
from kraftlib.consensus.voter_changes import read_listeners, submit_control
from kraftlib.consensus.voters import Voter, listeners_of
from kraftlib.records.control import KRAFT_VERSION_MAX
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

SILENT_PERIODS = 3
"""The number of times in a row that the leader must say that the voter of our id has not fetched again."""

METADATA_PARTITION = DescribeQuorumRequest.PartitionData(partition_index=0)
DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=(DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(METADATA_PARTITION,)),)
)

JOIN_GOES_ON = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
"""Answers to an Add or Remove of ourselves after which the next period decides."""


def _place_to_ask(state: ReplicaState, role: Follower) -> Endpoint | None:
    """The endpoint for a request to the leader other than a Fetch of the next records; None while it may not.

    After a failure a Fetch goes first: a question that is never answered in time would leave no room for any.
    """
    has_failed = state.connections.failures(role.leader_id) > 0
    return None if has_failed else place_to_ask(state, role.leader_id, role.leader_endpoints)


# --- UpdateRaftVoter: the voter's side --------------------------------------------------------------------------------


def _place_to_update(state: ReplicaState, role: Follower) -> Endpoint | None:
    if role.updated_voter or state.key.directory_id is None or not state.may_stand:
        return None
    return _place_to_ask(state, role)


def maybe_update_voter(state: ReplicaState, role: Follower) -> list[Action]:
    """Tell the leader our endpoints and supported versions, if the voter set does not have them."""
    if role.updated_voter or state.now_ms < role.update_due_ms:
        return []
    place = _place_to_update(state, role)
    if place is None:
        return []
    ask_again_later(state, role)
    if state.log.kraft_version.latest >= 1 and updated_voters(state) == state.voters:
        return []
    request = UpdateRaftVoterRequest(
        cluster_id=state.cluster_id,
        current_leader_epoch=state.epoch,
        voter_id=state.key.id,
        voter_directory_id=state.key.directory_id or ZERO_UUID,
        listeners=listeners_of(state.endpoints, UpdateRaftVoterRequest.Listener),
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=KRAFT_VERSION_MAX
        ),
    )
    return [send(state, role.leader_id, place, request)]


def update_deadline_ms(state: ReplicaState, role: Follower) -> int | None:
    """When `maybe_update_voter` may have something to send; None while something must happen first."""
    return None if _place_to_update(state, role) is None else role.update_due_ms


def handle_update_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: UpdateRaftVoterResponse
) -> list[Action]:
    """The leader knows of us now, or cannot; either way we have heard from it."""
    leader = response.current_leader
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and leader.leader_epoch <= state.epoch:
        return _updated(state)  # a leader from before 4.1 keeps no such table, and needs none
    place = Endpoint(leader.host, leader.port) if leader.host and 0 < leader.port < 65536 else None
    answer = Answer(
        top_level_error=ErrorCode.NONE,
        error=response.error_code,
        epoch=leader.leader_epoch,
        leader_id=None if leader.leader_id < 0 else leader.leader_id,
        endpoints=listener_endpoints(place, state.config.listener_name),
    )
    concerns_us, actions = common_part(state, outstanding, answer)
    return [*actions, *(_updated(state) if concerns_us else [])]


def handle_update_failed(state: ReplicaState, outstanding: Outstanding[Message], failure: Failure) -> list[Action]:
    """The leader was not reached, or is from before 4.1."""
    if failure is Failure.UNSUPPORTED_VERSION:
        return _updated(state)
    back_off(state, outstanding)
    return []


def _updated(state: ReplicaState) -> list[Action]:
    role = state.role_state
    if isinstance(role, Follower):
        role.updated_voter = state.log.kraft_version.latest == 0
        restart_fetch_timer(state, role)
    return []


# --- joining ----------------------------------------------------------------------------------------------------------


def maybe_join(state: ReplicaState, role: Follower) -> list[Action]:
    """Add ourselves to the voters, if we may and do not vote; our own lost disk goes first (KIP-1186)."""
    place = _place_to_join(state, role)
    if place is None or state.now_ms < role.update_due_ms:
        return []
    ask_again_later(state, role)
    known = state.voters.get(state.key.id)
    request: AddRaftVoterRequest | RemoveRaftVoterRequest | DescribeQuorumRequest
    if known is not None and role.predecessor_silence < SILENT_PERIODS:
        request = DESCRIBE_QUORUM
    elif known is not None:
        role.predecessor_silence = 0  # the next request is decided anew, however this one ends
        disk = known.key.directory_id or ZERO_UUID
        request = RemoveRaftVoterRequest(cluster_id=state.cluster_id, voter_id=known.key.id, voter_directory_id=disk)
    else:
        request = AddRaftVoterRequest(
            cluster_id=state.cluster_id,
            timeout_ms=state.config.request_timeout_ms,
            voter_id=state.key.id,
            voter_directory_id=state.key.directory_id or ZERO_UUID,
            listeners=listeners_of(state.endpoints, AddRaftVoterRequest.Listener),
            # Waiting for the commit would take the one request that its own Fetch needs (scenario M6).
            ack_when_committed=False,
        )
    return [send(state, role.leader_id, place, request)]


def _place_to_join(state: ReplicaState, role: Follower) -> Endpoint | None:
    joins = state.config.auto_join and state.key.directory_id is not None
    if not joins or state.log.kraft_version.latest < 1 or state.is_voter or state.shutting_down:
        return None
    return _place_to_ask(state, role)


def join_deadline_ms(state: ReplicaState, role: Follower) -> int | None:
    """When `maybe_join` may have something to send; None while something must happen first."""
    return None if _place_to_join(state, role) is None else role.update_due_ms


def handle_join_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: AddRaftVoterResponse | RemoveRaftVoterResponse
) -> list[Action]:
    """Done, or to be tried again after a period; an error that stays is logged once and left alone for longer."""
    if response.error_code in JOIN_GOES_ON:
        state.connections.succeeded(outstanding.destination)
        if isinstance(state.role_state, Follower):
            # However long the answer took, the log comes before the next question.
            ask_again_later(state, state.role_state)
    else:
        state.refuse("not allowed to join", f"{error_name(response.error_code)}: {response.error_message}")
        back_off(state, outstanding)
    return []


def handle_describe_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: DescribeQuorumResponse
) -> list[Action]:
    """Take note of whether the voter of our id has fetched since the leader was asked last."""
    role, known = state.role_state, state.voters.get(state.key.id)
    partition = only_partition(response.topics) if response.error_code == ErrorCode.NONE else None
    said_by_leader = partition is not None and (partition.error_code, partition.leader_epoch) == (0, state.epoch)
    if not isinstance(role, Follower) or known is None or partition is None or not said_by_leader:
        back_off(state, outstanding)
        return []
    state.connections.succeeded(outstanding.destination)
    ask_again_later(state, role)
    disks = (known.key.directory_id or ZERO_UUID, ZERO_UUID)
    rows = [row for row in partition.current_voters if row.replica_id == known.key.id]
    fetched_ms = next((row.last_fetch_timestamp for row in rows if row.replica_directory_id in disks), None)
    is_silent = fetched_ms is not None and fetched_ms == role.predecessor_fetched_ms
    if not is_silent and None not in (fetched_ms, role.predecessor_fetched_ms):
        text = f"voter {known.key} fetches, so its disk is not the one that we replace: give this replica another id"
        state.refuse("our id is in use", text)
    role.predecessor_silence = role.predecessor_silence + 1 if is_silent else 0
    role.predecessor_fetched_ms = fetched_ms
    return []


# --- UpdateRaftVoter: the leader's side -------------------------------------------------------------------------------


def handle_update_voter(state: ReplicaState, event: RequestReceived[UpdateRaftVoterRequest]) -> list[Action]:
    """A voter tells its present endpoints and supported versions."""
    error, actions = _accept_update(state, event.request)
    return [*actions, SendResponse(event.request_id, responses.update_voter(state, error=error))]


def _accept_update(state: ReplicaState, request: UpdateRaftVoterRequest) -> tuple[ErrorCode, list[Action]]:
    error = leader_error(state, request.cluster_id, request.current_leader_epoch)
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
    wanted = state.voters.with_voter(voter)
    return ErrorCode.NONE, [] if wanted == state.voters else [submit_control(role, wanted.to_record())]
