"""What every conversation does alike: the checks of a receiver, sending, and the common part of every answer.

The checks are Kafka's, in Kafka's order (KIP-595, Vote; KIP-853, Vote). Where Kafka stops on a peer's answer we refuse
it, leave the peer alone for a while, count and log once: no peer's answer ever stops a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import answers
from kraftlib.consensus.actions import Action, SendRequest, SendResponse
from kraftlib.consensus.connections import FetchQuestion, Outstanding
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.roles import Endpoints, Follower, Leader, Unattached
from kraftlib.consensus.state import ReplicaState, log
from kraftlib.consensus.strangers import MISDIRECTED, detail_of, look_at_refusal, refuse_stranger
from kraftlib.consensus.transitions import maybe_follow
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, Epoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.vote import VoteRequest

STRICT_REQUESTS = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)
"""What replicas, and nobody else, ask one another."""

# --- receiving requests ----------------------------------------------------------------------------------------------


def cluster_error(state: ReplicaState, cluster_id: str | None) -> ErrorCode:
    """A request that names another cluster is refused; one that names none is served, as Kafka does."""
    if cluster_id in (None, state.cluster_id) or state.cluster_id is None:
        return ErrorCode.NONE
    return ErrorCode.INCONSISTENT_CLUSTER_ID


def only_partition(topics: Sequence[Any]) -> Any | None:
    """Return the one partition of a request by topic name; None unless it is exactly the metadata partition."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if partition.partition_index == 0 else None


def voter_only_error(state: ReplicaState, epoch: Epoch, replica_id: ReplicaId) -> ErrorCode:
    """What only voters ask must come from an epoch that is not over, and from somebody."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if replica_id < 0 else ErrorCode.NONE


def leader_only_error(state: ReplicaState, epoch: Epoch) -> ErrorCode:
    """What only a leader answers. A newer epoch is **not** adopted: the asker may be wrong about it."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role_state, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.BROKER_NOT_AVAILABLE if state.shutting_down else ErrorCode.NONE


def voter_key_error(state: ReplicaState, voter_id: ReplicaId, directory_id: Any) -> ErrorCode:
    """A request meant for one replica must have reached it: addresses are re-used, disks are replaced (KIP-853)."""
    if voter_id < 0:
        return ErrorCode.NONE
    meant = ReplicaKey(voter_id, None if directory_id == ZERO_UUID else directory_id)
    return ErrorCode.NONE if meant.matches(state.key) else ErrorCode.INVALID_VOTER_KEY


def refuse_request(state: ReplicaState, event: RequestReceived, error: ErrorCode) -> list[Action]:
    """Answer with a top-level error: no state was changed."""
    if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        return refuse_stranger(state, event, error)
    return [SendResponse(event.request_id, answers.top_level(event.request, error))]


def is_refused_strictly(state: ReplicaState, request: Any) -> bool:
    """Whether strict mode refuses a raft request before anything of it is believed (scenario M11, E16).

    By closing the connection: some error codes stop a Kafka peer.
    """
    if not isinstance(request, STRICT_REQUESTS):
        return False
    if request.cluster_id is None:
        state.refuse("no cluster id", type(request).__name__)
        return True
    if isinstance(request, VoteRequest | BeginQuorumEpochRequest):
        partition = only_partition(request.topics)
        meant = None if partition is None else partition.voter_directory_id
        if meant is not None and voter_key_error(state, request.voter_id, meant) is not ErrorCode.NONE:
            state.refuse(MISDIRECTED, f"{type(request).__name__} to {request.voter_id}")
            return True
    return False


def epoch_jumps(state: ReplicaState, epoch: Epoch, source: str) -> bool:
    """Whether `epoch` is so far ahead that taking it over would wear out the 32 bits of epochs."""
    if epoch - state.epoch <= state.config.epoch_jump_max:
        return False
    text = f"epoch {epoch} after {state.epoch} in {source}; epoch_jump_max is {state.config.epoch_jump_max}"
    state.refuse("epoch jump", text)
    return True


# --- sending requests ------------------------------------------------------------------------------------------------


def send(
    state: ReplicaState,
    destination: int,
    endpoint: Endpoint,
    request: Any,
    *,
    read_round: int = 0,
    question: FetchQuestion | None = None,
) -> Action:
    """Send a request; its answer is awaited from now on."""
    correlation_id = state.connections.open(
        destination, endpoint, request, state.now_ms, read_round=read_round, question=question
    )
    return SendRequest(correlation_id, destination, endpoint, request)


def endpoint_of(state: ReplicaState, endpoints: Endpoints) -> Endpoint | None:
    """Pick the endpoint that raft replicas use: that of our listener."""
    return endpoints.get(state.config.listener_name.upper())


def bootstrap_servers(state: ReplicaState) -> list[tuple[int, Endpoint]]:
    """Where to ask for the leader: the configured servers, else the voters; neither ourselves nor the leader we follow.

    A configured address at which a known replica is reached *is* that replica, by its id: it is asked one thing at a
    time, whichever way it was found. Kafka asks itself, too, when it stands in its own list, and learns nothing.
    """
    own = endpoint_of(state, state.endpoints)
    known = known_replicas(state)
    configured = state.config.bootstrap_servers
    servers = [(known.get(place, -2 - index), place) for index, place in enumerate(configured)]
    servers = servers or [(replica_id, place) for place, replica_id in known.items()]
    leader_id = state.leader_id if isinstance(state.role_state, Follower) else None
    return [(number, place) for number, place in servers if place != own and number != leader_id]


def known_replicas(state: ReplicaState) -> dict[Endpoint, ReplicaId]:
    """Return where the other voters and the leader are reached on our listener; what the leader says of itself wins."""
    places = {voter.key.id: endpoint_of(state, voter.endpoints) for voter in state.voters.others(state.key)}
    leader_id, leader_place = state.leader_id, endpoint_of(state, state.leader_endpoints)
    if leader_id is not None and leader_id != state.key.id and leader_place is not None:
        places[leader_id] = leader_place
    return {place: replica_id for replica_id, place in places.items() if place is not None}


# --- receiving answers -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Answer:
    """What every answer says, wherever its message puts it."""

    top_level_error: int
    error: int = 0
    epoch: Epoch = -1
    leader_id: ReplicaId | None = None
    endpoints: Endpoints = attrs.field(factory=dict)
    misplaced: bool = False
    """Not exactly the metadata partition."""
    detail: str = ""
    """What a replica of ours that refuses says of itself."""


def error_name(code: int) -> str:
    """Return how logs name an error code, known or not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def back_off(state: ReplicaState, outstanding: Outstanding) -> None:
    """Leave the peer alone for a while: it failed, or what it said was of no use."""
    state.connections.failed(outstanding.destination, state.now_ms, state.jittered_backoff_ms())


def common_part(state: ReplicaState, outstanding: Outstanding, answer: Answer) -> tuple[bool, list[Action]]:
    """Handle what all answers have in common (KIP-595, Vote); say whether the rest concerns the caller.

    Where Kafka asks again at once we pause for the retry backoff, with jitter: the answer was no failure, but as long
    as nobody knows a leader Kafka's peers ask each other thousands of times a second.
    """
    name = type(outstanding.request).__name__
    if answer.top_level_error != ErrorCode.NONE or answer.misplaced:
        what = "another partition" if answer.misplaced else error_name(answer.top_level_error)
        log.debug("%s: %s to %d: %s", state.id_text, name, outstanding.destination, what)
        look_at_refusal(state, outstanding, answer.top_level_error, answer.detail)
        back_off(state, outstanding)
        return False, []
    if answer.epoch < state.epoch or answer.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        back_off(state, outstanding)
        return False, []
    # One who knows his leader by id alone, as an observer does after a restart, has yet to learn where it is.
    seeks = isinstance(state.role_state, Unattached) and answer.leader_id is not None
    nothing_new = answer.epoch == state.epoch and answer.leader_id == state.leader_id and not seeks
    if answer.error == ErrorCode.NONE and nothing_new:
        state.connections.succeeded(outstanding.destination)
        return True, []
    source = f"the answer of {outstanding.destination} to {name}"
    if answer.epoch > state.epoch or answer.error in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ):
        actions = maybe_follow(state, answer.epoch, answer.leader_id, answer.endpoints, source)
        if not actions:
            back_off(state, outstanding)
            _note_resignation(state, outstanding, answer)
        return False, actions or []
    actions = []
    if answer.leader_id is not None and (state.leader_id is None or (seeks and answer.leader_id == state.leader_id)):
        learned = maybe_follow(state, answer.epoch, answer.leader_id, answer.endpoints, source)
        if learned is None:
            back_off(state, outstanding)
            return False, []
        actions = learned
    elif answer.leader_id is not None and answer.leader_id != state.leader_id:
        state.refuse("two leaders", f"{source} names {answer.leader_id}, known is {state.leader_id}")
        back_off(state, outstanding)
        return False, []
    if answer.error == ErrorCode.NONE:
        state.connections.succeeded(outstanding.destination)
        return True, actions
    log.debug("%s: %s to %d: %s", state.id_text, name, outstanding.destination, error_name(answer.error))
    look_at_refusal(state, outstanding, answer.error, answer.detail)
    # INVALID_VOTER_KEY among them, which Kafka takes for no failure: a voter whose disk was replaced has no vote to
    # give, and would be asked for it as fast as it answers.
    back_off(state, outstanding)
    return False, actions


def _note_resignation(state: ReplicaState, outstanding: Outstanding, answer: Answer) -> None:
    """Our leader says that it leads no more: no reason to refuse its successor's pre-vote (beyond Kafka, KAFKA-20895).

    Its EndQuorumEpoch says so, too, but may be lost where a Fetch that it held is answered.
    """
    role = state.role_state
    said_so = answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and answer.epoch == state.epoch
    if said_so and isinstance(role, Follower) and outstanding.destination == role.leader_id:
        role.has_fetched = False


def read_partition(state: ReplicaState, response: Any, *, endpoints: Sequence[Any]) -> tuple[Answer, Any]:
    """Read the one partition of a Vote, BeginQuorumEpoch or EndQuorumEpoch answer."""
    if response.error_code != ErrorCode.NONE:
        return Answer(top_level_error=response.error_code, detail=detail_of(response)), None
    partition = only_partition(response.topics)
    if partition is None:
        return Answer(top_level_error=ErrorCode.NONE, misplaced=True), None
    leader_id = None if partition.leader_id < 0 else partition.leader_id
    answer = Answer(
        top_level_error=ErrorCode.NONE,
        error=partition.error_code,
        epoch=partition.leader_epoch,
        leader_id=leader_id,
        endpoints=node_endpoints(state, endpoints, leader_id),
    )
    return answer, partition


def node_endpoints(state: ReplicaState, endpoints: Sequence[Any], leader_id: ReplicaId | None) -> Endpoints:
    """Read where an answer says that the leader is reached on our listener; empty if it does not say."""
    for place in endpoints:
        if place.node_id == leader_id and place.host and 0 < place.port < 65536:
            return {state.config.listener_name.upper(): Endpoint(place.host, place.port)}
    return {}
