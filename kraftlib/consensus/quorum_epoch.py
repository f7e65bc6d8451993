"""BeginQuorumEpoch and EndQuorumEpoch, both sides: an epoch begins, and a leader leaves.

The new leader sends BeginQuorumEpoch to every voter that does not fetch from it (KIP-595, KAFKA-16926). A leader that
leaves sends EndQuorumEpoch, which names its successors in order.
"""

from __future__ import annotations

from kraftlib.codec.declared import Message
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.deadlines import stand_after
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.extensions.misconfiguration import introduction
from kraftlib.consensus.extensions.upstreams import note_wanted
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.requests import common_part, place_to_ask, read_answer, send
from kraftlib.consensus.roles import Endpoints, Follower, Heard, Leader, Resigned
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.transitions import maybe_follow
from kraftlib.consensus.voters import Voter, listeners_of
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

LeaderEndpoint = BeginQuorumEpochRequest.LeaderEndpoint | EndQuorumEpochRequest.LeaderEndpoint

# --- BeginQuorumEpoch -------------------------------------------------------------------------------------------------


def begin_quorum_epoch(state: ReplicaState, role: Leader) -> list[Action]:
    """Tell the voters that do not fetch who leads: at once when elected, then every half fetch timeout."""
    half_timeout_ms = state.config.fetch_timeout_ms // 2
    role.begin_epoch_due_ms = state.now_ms + half_timeout_ms
    actions: list[Action] = []
    for voter in state.voters.others(state.key):
        progress = role.progress.get(voter.key.id)
        fetched_ms = progress.last_fetch_ms if progress is not None else None
        if fetched_ms is None or state.now_ms - fetched_ms >= half_timeout_ms:
            actions += send_begin(state, role, voter)
    return actions


def send_begin(state: ReplicaState, role: Leader, voter: Voter) -> list[Action]:
    """Tell one voter who leads, if it can be told now. Its answer confirms it for every round of reads begun so far."""
    place = place_to_ask(state, voter.key.id, voter.endpoints)
    if place is None:
        return []
    partition = BeginQuorumEpochRequest.PartitionData(
        voter_directory_id=voter.key.directory_id or ZERO_UUID, leader_id=state.key.id, leader_epoch=state.epoch
    )
    request = BeginQuorumEpochRequest(
        cluster_id=state.cluster_id,
        voter_id=voter.key.id,
        topics=(BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=listeners_of(state.endpoints, BeginQuorumEpochRequest.LeaderEndpoint),
        unknown_tagged_fields=introduction(state),
    )
    return [send(state, voter.key.id, place, request, read_round=role.read_rounds)]


def handle_begin_quorum_epoch(state: ReplicaState, event: RequestReceived[BeginQuorumEpochRequest]) -> list[Action]:
    """Follow the leader that introduces itself, also if the message was meant for another replica."""
    request = event.request
    refused, actions = _learn_of_leader(state, event)
    if refused is not None:
        return refused
    partition = request.topics[0].partitions[0]
    error = responses.voter_key_error(state, request.voter_id, partition.voter_directory_id)
    if state.amnesia is not None:
        # It may have voted for a newer leader: its word that there is none must not confirm a leader (see
        # `extensions.read_index`).
        error = ErrorCode.INVALID_VOTER_KEY
    if error is ErrorCode.NONE and request.voter_id == state.key.id:
        note_wanted(state)
    return [*actions, responses.election(state, event, error)]


def handle_begin_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: BeginQuorumEpochResponse
) -> list[Action]:
    """The voter knows of us."""
    answer, _ = read_answer(state, response, responses.only_partition(response.topics))
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if concerns_us and isinstance(role, Leader) and outstanding.destination in role.progress:
        progress = role.progress[outstanding.destination]
        progress.confirmed_round = max(progress.confirmed_round, outstanding.read_round)
    return actions


def _learn_of_leader(
    state: ReplicaState, event: RequestReceived[BeginQuorumEpochRequest] | RequestReceived[EndQuorumEpochRequest]
) -> tuple[list[Action] | None, list[Action]]:
    """The part that BeginQuorumEpoch and EndQuorumEpoch share: the actions of a refusal, or those of the transition."""
    request = event.request
    partition = responses.only_partition(request.topics)
    error = responses.partition_error(state, request.cluster_id, partition)
    if error is not ErrorCode.NONE:
        return responses.refuse_request(state, event, error), []
    error = responses.voter_only_error(state, partition.leader_epoch, partition.leader_id)
    if error is not ErrorCode.NONE:
        return [responses.election(state, event, error)], []
    source = f"{type(request).__name__} of replica {partition.leader_id}"
    endpoints = _named_endpoints(request.leader_endpoints)
    actions = maybe_follow(state, partition.leader_epoch, partition.leader_id, endpoints, source)
    if actions is None:
        # An error code here may stop a Kafka peer, which is not at fault for the word of another replica.
        return [SendResponse(event.request_id, None)], []
    return None, actions


def _named_endpoints(endpoints: tuple[LeaderEndpoint, ...]) -> Endpoints:
    return {place.name.upper(): Endpoint(place.host, place.port) for place in endpoints if place.host and place.port}


# --- EndQuorumEpoch ---------------------------------------------------------------------------------------------------


def end_quorum_epoch(state: ReplicaState, role: Resigned) -> list[Action]:
    """Tell each voter that has not acknowledged it that the epoch is over, and who should stand first."""
    actions: list[Action] = []
    for voter in state.voters.others(state.key):
        place = place_to_ask(state, voter.key.id, voter.endpoints)
        if voter.key.id not in role.unacknowledged or place is None:
            continue
        partition = EndQuorumEpochRequest.PartitionData(
            leader_id=state.key.id,
            leader_epoch=state.epoch,
            preferred_successors=tuple(key.id for key in role.preferred),
            preferred_candidates=tuple(
                EndQuorumEpochRequest.ReplicaInfo(
                    candidate_id=key.id, candidate_directory_id=key.directory_id or ZERO_UUID
                )
                for key in role.preferred
            ),
        )
        topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = EndQuorumEpochRequest(
            cluster_id=state.cluster_id, topics=(topic,), unknown_tagged_fields=introduction(state)
        )
        actions.append(send(state, voter.key.id, place, request))
    return actions


def handle_end_quorum_epoch(state: ReplicaState, event: RequestReceived[EndQuorumEpochRequest]) -> list[Action]:
    """The leader leaves: stand after the pause that our place in its list of successors gives."""
    request = event.request
    refused, actions = _learn_of_leader(state, event)
    if refused is not None:
        return refused
    partition = request.topics[0].partitions[0]
    role = state.role_state
    if isinstance(role, Follower) and role.leader_id == partition.leader_id:
        backoff_ms = successor_backoff_ms(state, partition)
        stand_after(state, role, backoff_ms)
        if backoff_ms == 0:
            state.setbacks += 1  # forgotten as soon as we have led and committed something
            role.heard = Heard.GOOD_BYE_TO_US
        elif role.heard is not Heard.GOOD_BYE_TO_US:
            # Beyond Kafka: a leader that says good-bye is no reason to refuse its successor's pre-vote (KAFKA-20895).
            role.heard = Heard.GOOD_BYE
    return [*actions, responses.election(state, event, ErrorCode.NONE)]


def successor_backoff_ms(state: ReplicaState, partition: EndQuorumEpochRequest.PartitionData) -> int:
    """Return the pause before a follower stands: the first successor not at all, the others ever longer.

    Each computes it from its own place, so that no two stand at once (EndQuorumEpoch). Among many successors Kafka's
    shortest backoff comes to nothing: ours is at least the slot that a lost connection leaves to each.
    """
    longest = state.config.election_backoff_max_ms
    keys = [ReplicaKey.of(info.candidate_id, info.candidate_directory_id) for info in partition.preferred_candidates]
    keys = keys or [ReplicaKey(voter_id) for voter_id in partition.preferred_successors]
    count = len(keys)
    position = next((index for index, key in enumerate(keys) if key.matches(state.key)), -1)
    if count == 0 or position == 0:
        return 0
    if position < 0:
        return longest
    shortest = max(longest >> (count - 1), state.config.leader_loss_stagger_ms)
    return min(longest, shortest << (position - 1))


def handle_end_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: EndQuorumEpochResponse
) -> list[Action]:
    """The voter knows that we leave."""
    answer, _ = read_answer(state, response, responses.only_partition(response.topics))
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if concerns_us and isinstance(role, Resigned):
        role.unacknowledged.discard(outstanding.destination)
    return actions
