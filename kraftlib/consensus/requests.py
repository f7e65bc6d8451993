"""The requests that this replica sends, and the common part of every response to them.

Where Kafka stops on a peer's response we refuse it, leave the peer alone for a while, count and log once: no peer's
response ever stops a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import Action, SendRequest
from kraftlib.consensus.extensions.misconfiguration import detail_of, look_at_refusal
from kraftlib.consensus.outstanding import FetchQuestion, Outstanding
from kraftlib.consensus.roles import Endpoints, Follower, Unattached
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.consensus.transitions import maybe_follow
from kraftlib.frozen import frozen
from kraftlib.types import Endpoint, Epoch, ReplicaId
from kraftlib.wire.apis import ErrorCode

# --- sending ----------------------------------------------------------------------------------------------------------


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


def place_to_ask(state: ReplicaState, destination: int, endpoints: Endpoints) -> Endpoint | None:
    """Return where a destination is asked on our listener; None if that is not known, or not to be asked now."""
    place = endpoint_of(state, endpoints)
    return place if place is not None and state.connections.is_ready(destination, state.now_ms) else None


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
    """Return where the other voters and the leader are reached on our listener; the leader's own word about itself
    wins."""
    places = {voter.key.id: endpoint_of(state, voter.endpoints) for voter in state.voters.others(state.key)}
    leader_id, leader_place = state.leader_id, endpoint_of(state, state.leader_endpoints)
    if leader_id is not None and leader_id != state.key.id and leader_place is not None:
        places[leader_id] = leader_place
    return {place: replica_id for replica_id, place in places.items() if place is not None}


# --- reading a response -----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Answer:
    """The part that all responses share, wherever the message puts it."""

    top_level_error: int
    error: int = 0
    epoch: Epoch = -1
    leader_id: ReplicaId | None = None
    endpoints: Endpoints = attrs.field(factory=dict)
    misplaced: bool = False
    """Not exactly the metadata partition."""
    detail: str = ""
    """The text by which a replica of ours that refuses describes itself."""


LEADER_IS_ANOTHER = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Errors after which the leader is the one that the response names."""


def error_name(code: int) -> str:
    """Return how logs name an error code, known or not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def back_off(state: ReplicaState, outstanding: Outstanding[Message]) -> None:
    """Leave the peer alone for a while: it failed, or its answer was of no use."""
    state.connections.failed(outstanding.destination, state.now_ms, state.jittered_backoff_ms())


def common_part(state: ReplicaState, outstanding: Outstanding[Message], answer: Answer) -> tuple[bool, list[Action]]:
    """Handle what all responses have in common (KIP-595, Vote); say whether the rest concerns the caller.

    Where Kafka asks again at once we pause for the retry backoff, with jitter: the answer was no failure, but as long
    as no leader is known Kafka's peers ask each other thousands of times a second.
    """
    if answer.top_level_error != ErrorCode.NONE or answer.misplaced:
        what = "another partition" if answer.misplaced else error_name(answer.top_level_error)
        _note_refusal(state, outstanding, answer.top_level_error, what, answer.detail)
        return False, []
    if answer.epoch < state.epoch or answer.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        back_off(state, outstanding)
        return False, []
    # An observer that has restarted knows its leader by id alone, and has yet to learn where it is reached.
    seeks = isinstance(state.role_state, Unattached) and answer.leader_id is not None
    nothing_new = answer.epoch == state.epoch and answer.leader_id == state.leader_id and not seeks
    if answer.error == ErrorCode.NONE and nothing_new:
        state.connections.succeeded(outstanding.destination)
        return True, []
    source = f"the answer of {outstanding.destination} to {type(outstanding.request).__name__}"
    if answer.epoch > state.epoch or answer.error in LEADER_IS_ANOTHER:
        actions = maybe_follow(state, answer.epoch, answer.leader_id, answer.endpoints, source)
        if not actions:
            back_off(state, outstanding)
            _note_resignation(state, outstanding, answer)
        return False, actions or []
    learned = _learn_leader(state, answer, source, seeks=seeks)
    if learned is None:
        back_off(state, outstanding)
        return False, []
    if answer.error == ErrorCode.NONE:
        state.connections.succeeded(outstanding.destination)
        return True, learned
    # INVALID_VOTER_KEY among them, which Kafka takes for no failure: a voter whose disk was replaced has no vote to
    # give, and would be asked for it as fast as it answers.
    _note_refusal(state, outstanding, answer.error, error_name(answer.error), answer.detail)
    return False, learned


def _note_refusal(state: ReplicaState, outstanding: Outstanding[Message], error: int, what: str, detail: str) -> None:
    name = type(outstanding.request).__name__
    logger.debug("%s: %s to %d: %s", state.id_text, name, outstanding.destination, what)
    look_at_refusal(state, outstanding, error, detail)
    back_off(state, outstanding)


def _learn_leader(state: ReplicaState, answer: Answer, source: str, *, seeks: bool) -> list[Action] | None:
    """Take over the leader that a response of our epoch names; None if we know another one."""
    if answer.leader_id is not None and (state.leader_id is None or (seeks and answer.leader_id == state.leader_id)):
        return maybe_follow(state, answer.epoch, answer.leader_id, answer.endpoints, source)
    if answer.leader_id is not None and answer.leader_id != state.leader_id:
        state.refuse("two leaders", f"{source} names {answer.leader_id}, known is {state.leader_id}")
        return None
    return []


def _note_resignation(state: ReplicaState, outstanding: Outstanding[Message], answer: Answer) -> None:
    """Our leader says that it leads no more: no reason to refuse its successor's pre-vote (beyond Kafka, KAFKA-20895).

    Its EndQuorumEpoch says so, too, but may be lost where a Fetch that it held is answered.
    """
    role = state.role_state
    said_so = answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and answer.epoch == state.epoch
    if said_so and isinstance(role, Follower) and outstanding.destination == role.leader_id:
        role.doubt_leader()


def read_answer(state: ReplicaState, response: Any, partition: Any | None) -> tuple[Answer, Any]:
    """Read the common part of a response about the one partition, which is None if it is about anything else.

    The partition comes back beside it, unless the response as a whole is an error.
    """
    if response.error_code != ErrorCode.NONE:
        return Answer(top_level_error=response.error_code, detail=detail_of(response)), None
    if partition is None:
        return Answer(top_level_error=ErrorCode.NONE, misplaced=True), None
    leader = getattr(partition, "current_leader", partition)  # elections name it beside the error
    leader_id = None if leader.leader_id < 0 else leader.leader_id
    answer = Answer(
        top_level_error=ErrorCode.NONE,
        error=partition.error_code,
        epoch=leader.leader_epoch,
        leader_id=leader_id,
        endpoints=_node_endpoints(state, response.node_endpoints, leader_id),
    )
    return answer, partition


def _node_endpoints(state: ReplicaState, endpoints: Sequence[Any], leader_id: ReplicaId | None) -> Endpoints:
    """Read where an answer says that the leader is reached on our listener; empty if it does not say."""
    for place in endpoints:
        if place.node_id == leader_id and place.host and 0 < place.port < 65536:
            return {state.config.listener_name.upper(): Endpoint(place.host, place.port)}
    return {}
