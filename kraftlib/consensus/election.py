"""The conversation of elections: Vote, BeginQuorumEpoch and EndQuorumEpoch, both sides of each.

A voter gives one vote in an epoch, and only to a log that is as long as its own (KIP-595). A voter that may stand asks
first whether it would win at all (KIP-996). The new leader sends BeginQuorumEpoch to every voter that does not fetch
from it (KIP-595, KAFKA-16926). A leader that leaves sends EndQuorumEpoch, which names its successors in order.
"""

from __future__ import annotations

from kraftlib.consensus import answers
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.checks import (
    back_off,
    cluster_error,
    common_part,
    endpoint_of,
    epoch_jumps,
    only_partition,
    read_partition,
    refuse_request,
    send,
    voter_key_error,
    voter_only_error,
)
from kraftlib.consensus.connections import Outstanding
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.roles import Candidate, Endpoints, Follower, Leader, Prospective, Resigned, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.strangers import introduction
from kraftlib.consensus.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_unattached,
    maybe_follow,
    persist,
)
from kraftlib.consensus.voters import Voter
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

SLOTS_TO_GO_FIRST = 3
"""So many slots of `leader_loss_stagger_ms`, and one for each voter of a lower id, another one may go first. A Vote
takes a fraction of a slot where links are fast."""

ROUND_TRIPS_TO_GO_FIRST = 2
"""So many round trips of our own pre-vote another one may go first at least: its answer from us, and its Vote to us."""

# --- Vote: the voter's side ------------------------------------------------------------------------------------------


def handle_vote(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Answer a Vote. Observers answer, too: a replica may not know yet that it is a voter (scenario M9)."""
    request: VoteRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error)
    partition = only_partition(request.topics)
    if partition is None:
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST)
    error = _vote_error(state, partition)
    if error is not ErrorCode.NONE:
        return [SendResponse(event.request_id, answers.vote(state, error=error, version=event.version))]
    if epoch_jumps(state, partition.replica_epoch, f"a Vote of replica {partition.replica_id}"):
        return [SendResponse(event.request_id, None)]

    actions: list[Action] = []
    if partition.replica_epoch > state.epoch:
        # A pre-vote carries the asker's real epoch: whoever is asked from a higher one is behind.
        actions += become_unattached(state, partition.replica_epoch, f"a Vote of replica {partition.replica_id}")
    error = voter_key_error(state, request.voter_id, partition.voter_directory_id)
    if error is not ErrorCode.NONE:
        return [*actions, SendResponse(event.request_id, answers.vote(state, error=error, version=event.version))]

    directory_id = partition.replica_directory_id
    asker = ReplicaKey(partition.replica_id, None if directory_id == ZERO_UUID else directory_id)
    asker_end = OffsetAndEpoch(epoch=partition.last_offset_epoch, offset=partition.last_offset)
    if asker.id == state.key.id:
        # Somebody runs with our id. A vote for ourselves is cast by standing, never by being asked.
        state.refuse("our own id", f"a Vote of replica {asker}")
        granted = False
    elif partition.pre_vote:
        granted = grants_pre_vote(state, asker_end)
        _ask_again(state, asker)
        if granted:
            _let_go_first(state, asker, asker_end)
    else:
        granted = grants_vote(state, asker, asker_end)
        if granted:
            actions += _cast_vote(state, asker)
    response = answers.vote(state, error=ErrorCode.NONE, granted=granted, version=event.version)
    return [*actions, SendResponse(event.request_id, response)]


def _vote_error(state: ReplicaState, partition: VoteRequest.PartitionData) -> ErrorCode:
    """What is impossible is refused before anything is believed, the epoch included."""
    newest = partition.replica_epoch if partition.pre_vote else partition.replica_epoch - 1
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or partition.last_offset_epoch > newest:
        return ErrorCode.INVALID_REQUEST
    return voter_only_error(state, partition.replica_epoch, partition.replica_id)


def grants_pre_vote(state: ReplicaState, asker_end: OffsetAndEpoch) -> bool:
    """Whether we would elect that log, as far as our own leader leaves a choice. It binds nothing.

    Beyond KIP-996, a follower that may not stand gives no leader preference that has been silent for the fetch timeout.
    Others stand then; this one follows on, and its vote may be needed. So may that of an observer, which may be a voter
    that does not know it yet (scenario M9).
    """
    role = state.role_state
    if state.amnesia is not None or isinstance(role, Leader):
        return False
    if isinstance(role, Follower) and role.has_fetched:
        return not state.may_stand and state.now_ms >= role.fetch_deadline_ms and asker_end >= state.log.end
    return asker_end >= state.log.end


def _ask_again(state: ReplicaState, asker: ReplicaKey) -> None:
    """Who asks us for a pre-vote has lost the leader, too: that it refused us before, as its follower, counts no more.

    Otherwise the one with the longer log, which noticed first and asked too early, would wait for its timer.
    """
    role = state.role_state
    if isinstance(role, Prospective):
        role.tally.rejected.discard(asker.id)


def _let_go_first(state: ReplicaState, asker: ReplicaKey, asker_end: OffsetAndEpoch) -> None:
    """Of two that ask each other, and would both be granted, one stands first: that with the longer log or lower id.

    Otherwise they stand in the same millisecond, each with its own vote, and wait for their timers: followers of one
    leader lose it in one moment, be it killed or hung. One pre-vote of ours gives way once, so that nobody who asks
    again and again puts us off for ever. Votes are given as before, so a voter of Kafka's, which lets nobody go first,
    is elected by us as ever; against one with a higher id the vote may still be split.
    """
    role = state.role_state
    if not isinstance(role, Prospective) or role.gave_way_ms is not None:
        return
    if asker_end > state.log.end or asker.id < state.key.id:
        role.gave_way_ms = state.now_ms


def grants_vote(state: ReplicaState, asker: ReplicaKey, asker_end: OffsetAndEpoch) -> bool:
    """Whether `asker` gets our vote in this epoch (KIP-595, Vote; KIP-996)."""
    role = state.role_state
    if state.amnesia is not None or not isinstance(role, Unattached | Prospective):
        return False
    if role.voted_key is not None:
        # Asked again by the same replica: the log was looked at when the vote was cast.
        return role.voted_key.matches(asker)
    return role.leader_id is None and asker_end >= state.log.end


def _cast_vote(state: ReplicaState, asker: ReplicaKey) -> list[Action]:
    """Bind our vote of this epoch, durably before the answer leaves."""
    role = state.role_state
    if not isinstance(role, Unattached | Prospective) or role.voted_key is not None:
        return []
    role.voted_key = asker
    if role.election_deadline_ms is not None:
        # The other has as good a chance as we would have: give it the time.
        role.election_deadline_ms = state.random_election_deadline_ms()
    return persist(state)


# --- Vote: the asker's side ------------------------------------------------------------------------------------------


def ask_for_votes(state: ReplicaState, role: Prospective | Candidate) -> list[Action]:
    """Ask each voter that has not answered this election; for a vote that binds, once our log is flushed.

    A voter that is asked again gives the same vote again, and looks at no log. So a candidate that is asked for after a
    crash must have all that it named before it: a leader of before may have committed records that only its own disk
    did not have yet.
    """
    is_durable = state.log.flushed_offset == state.log.end_offset
    if role.tally.lost or (isinstance(role, Candidate) and not is_durable):
        return []
    actions: list[Action] = []
    said = introduction(state)
    for voter_id in role.tally.unanswered():
        voter = role.tally.voters.get(voter_id)
        place = None if voter is None else endpoint_of(state, voter.endpoints)
        if voter is None or place is None or not state.connections.is_ready(voter_id, state.now_ms):
            continue
        partition = VoteRequest.PartitionData(
            replica_epoch=state.epoch,
            replica_id=state.key.id,
            replica_directory_id=state.key.directory_id or ZERO_UUID,
            voter_directory_id=voter.key.directory_id or ZERO_UUID,
            last_offset_epoch=state.log.last_epoch,
            last_offset=state.log.end_offset,
            pre_vote=isinstance(role, Prospective),
        )
        topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = VoteRequest(
            cluster_id=state.cluster_id, voter_id=voter_id, topics=(topic,), unknown_tagged_fields=said
        )
        actions.append(send(state, voter_id, place, request))
    return actions


def handle_vote_response(state: ReplicaState, outstanding: Outstanding, response: VoteResponse) -> list[Action]:
    """Count an answer to the election that is running."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return handle_vote_unsupported(state, outstanding)
    answer, partition = read_partition(state, response, endpoints=response.node_endpoints)
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if not concerns_us or not isinstance(role, Prospective | Candidate):
        return actions
    if isinstance(role, Prospective) and role.left_ms is not None and not partition.vote_granted:
        # It hears the good-bye any moment, as long as others take: ask ever less often, and not only when all refuse.
        pause_ms = max(1, min(state.now_ms - role.left_ms, state.jittered_backoff_ms()))
        state.connections.back_off(outstanding.destination, state.now_ms + pause_ms)
        return actions
    role.tally.record(outstanding.destination, partition.vote_granted)
    if isinstance(role, Prospective) and partition.vote_granted:
        role.round_trip_ms = max(role.round_trip_ms, state.now_ms - outstanding.sent_ms)
    if role.tally.won:
        actions += stand(state, role) if isinstance(role, Prospective) else become_leader(state)
    elif role.tally.lost and isinstance(role, Prospective):
        actions += give_up_pre_vote(state, role, f"pre-vote refused by {sorted(role.tally.rejected)}")
    # A candidate that has lost asks no more and waits for its timer: leaving early would only bring the next split.
    return actions


def stand(state: ReplicaState, role: Prospective) -> list[Action]:
    """Begin an epoch, if a majority would follow; a little later, if somebody else is to be the first to try."""
    if not role.tally.won or state.now_ms < stand_not_before_ms(state, role):
        return []
    return become_candidate(state, f"pre-vote of {sorted(role.tally.granted)}")


def stand_not_before_ms(state: ReplicaState, role: Prospective) -> int:
    """Return until when somebody else, who would win as well, may stand first."""
    if role.gave_way_ms is None:
        return state.now_ms
    slots = SLOTS_TO_GO_FIRST + sum(voter_id < state.key.id for voter_id in state.voters.ids)
    slots_ms = slots * state.config.leader_loss_stagger_ms
    return role.gave_way_ms + max(slots_ms, ROUND_TRIPS_TO_GO_FIRST * role.round_trip_ms)


def handle_vote_unsupported(state: ReplicaState, outstanding: Outstanding) -> list[Action]:
    """A peer from before KIP-996 cannot be asked in advance, so nobody is: stand at once."""
    if isinstance(state.role_state, Prospective):
        return become_candidate(state, f"replica {outstanding.destination} knows no pre-vote")
    back_off(state, outstanding)
    return []


def give_up_pre_vote(state: ReplicaState, role: Prospective, reason: str) -> list[Action]:
    """Go back to the leader that we thought lost, if it can be reached; else wait."""
    if role.leader_id is not None and role.leader_endpoints:
        return become_follower(state, state.epoch, role.leader_id, role.leader_endpoints, reason)
    return become_unattached(state, state.epoch, reason, leader_id=role.leader_id)


# --- BeginQuorumEpoch ------------------------------------------------------------------------------------------------


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
    place = endpoint_of(state, voter.endpoints)
    if place is None or not state.connections.is_ready(voter.key.id, state.now_ms):
        return []
    partition = BeginQuorumEpochRequest.PartitionData(
        voter_directory_id=voter.key.directory_id or ZERO_UUID, leader_id=state.key.id, leader_epoch=state.epoch
    )
    request = BeginQuorumEpochRequest(
        cluster_id=state.cluster_id,
        voter_id=voter.key.id,
        topics=(BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=tuple(
            BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=own.host, port=own.port)
            for name, own in state.endpoints.items()
        ),
        unknown_tagged_fields=introduction(state),
    )
    return [send(state, voter.key.id, place, request, read_round=role.read_rounds)]


def handle_begin_quorum_epoch(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Follow the leader that introduces itself, whoever the message was meant for."""
    request: BeginQuorumEpochRequest = event.request
    refused, actions = _learn_of_leader(state, event, request.leader_endpoints)
    if refused is not None:
        return refused
    partition = request.topics[0].partitions[0]
    error = voter_key_error(state, request.voter_id, partition.voter_directory_id)
    if state.amnesia is not None:
        # It may have voted for somebody newer: its word that nobody is must not confirm a leader (see `reading`).
        error = ErrorCode.INVALID_VOTER_KEY
    response = answers.quorum_epoch(state, BeginQuorumEpochResponse, error=error, version=event.version)
    return [*actions, SendResponse(event.request_id, response)]


def handle_begin_response(
    state: ReplicaState, outstanding: Outstanding, response: BeginQuorumEpochResponse
) -> list[Action]:
    """The voter knows of us."""
    answer, _ = read_partition(state, response, endpoints=response.node_endpoints)
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if concerns_us and isinstance(role, Leader) and outstanding.destination in role.progress:
        progress = role.progress[outstanding.destination]
        progress.confirmed_round = max(progress.confirmed_round, outstanding.read_round)
    return actions


def _learn_of_leader(
    state: ReplicaState, event: RequestReceived, leader_endpoints: tuple[object, ...]
) -> tuple[list[Action] | None, list[Action]]:
    """The part that BeginQuorumEpoch and EndQuorumEpoch share: the actions of a refusal, or those of the transition."""
    request = event.request
    kind = BeginQuorumEpochResponse if isinstance(request, BeginQuorumEpochRequest) else EndQuorumEpochResponse
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error), []
    partition = only_partition(request.topics)
    if partition is None:
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST), []
    error = voter_only_error(state, partition.leader_epoch, partition.leader_id)
    if error is not ErrorCode.NONE:
        response = answers.quorum_epoch(state, kind, error=error, version=event.version)
        return [SendResponse(event.request_id, response)], []
    source = f"{type(request).__name__} of replica {partition.leader_id}"
    endpoints = _named_endpoints(leader_endpoints)
    actions = maybe_follow(state, partition.leader_epoch, partition.leader_id, endpoints, source)
    if actions is None:
        # An error code here may stop a Kafka peer, which is not at fault for what somebody else told us.
        return [SendResponse(event.request_id, None)], []
    return None, actions


def _named_endpoints(endpoints: tuple[object, ...]) -> Endpoints:
    places = ((str(getattr(place, "name", "")), place) for place in endpoints)
    return {
        name.upper(): Endpoint(getattr(place, "host"), getattr(place, "port"))  # noqa: B009 - two message classes of one shape
        for name, place in places
        if getattr(place, "host") and getattr(place, "port")  # noqa: B009
    }


# --- EndQuorumEpoch --------------------------------------------------------------------------------------------------


def end_quorum_epoch(state: ReplicaState, role: Resigned) -> list[Action]:
    """Tell each voter that has not acknowledged it that the epoch is over, and who should stand first."""
    actions: list[Action] = []
    for voter in state.voters.others(state.key):
        place = endpoint_of(state, voter.endpoints)
        if voter.key.id not in role.unacknowledged or place is None:
            continue
        if not state.connections.is_ready(voter.key.id, state.now_ms):
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
        request = EndQuorumEpochRequest(cluster_id=state.cluster_id, topics=(topic,))
        actions.append(send(state, voter.key.id, place, request))
    return actions


def handle_end_quorum_epoch(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """The leader leaves: stand after the pause that our place in its list of successors gives."""
    request: EndQuorumEpochRequest = event.request
    refused, actions = _learn_of_leader(state, event, request.leader_endpoints)
    if refused is not None:
        return refused
    partition = request.topics[0].partitions[0]
    role = state.role_state
    if isinstance(role, Follower) and role.leader_id == partition.leader_id:
        backoff_ms = successor_backoff_ms(state, partition)
        role.fetch_deadline_ms = state.now_ms + backoff_ms
        if backoff_ms == 0:
            state.setbacks += 1  # forgotten as soon as we have led and committed something
            role.is_successor = True
        # Beyond Kafka: a leader that says good-bye is no reason to refuse its successor's pre-vote (KAFKA-20895).
        role.said_good_bye, role.has_fetched = True, False
    response = answers.quorum_epoch(state, EndQuorumEpochResponse, error=ErrorCode.NONE, version=event.version)
    return [*actions, SendResponse(event.request_id, response)]


def successor_backoff_ms(state: ReplicaState, partition: EndQuorumEpochRequest.PartitionData) -> int:
    """How long a follower waits before it stands: the first successor not at all, the others ever longer.

    Each computes it from its own place, so that no two stand at once (EndQuorumEpoch). Among many successors, or
    with a short longest backoff, Kafka's shortest one comes to nothing, and all would stand together: it is at least
    the slot that a lost connection leaves to each.
    """
    longest = state.config.election_backoff_max_ms
    if partition.preferred_candidates:
        keys = [
            ReplicaKey(
                info.candidate_id, None if info.candidate_directory_id == ZERO_UUID else info.candidate_directory_id
            )
            for info in partition.preferred_candidates
        ]
        position = next((index for index, key in enumerate(keys) if key.matches(state.key)), -1)
        count = len(keys)
    else:
        successors: tuple[ReplicaId, ...] = partition.preferred_successors
        position = successors.index(state.key.id) if state.key.id in successors else -1
        count = len(successors)
    if count == 0 or position == 0:
        return 0
    if position < 0:
        return longest
    shortest = max(longest >> (count - 1), state.config.leader_loss_stagger_ms)
    return min(longest, shortest << (position - 1))


def handle_end_response(
    state: ReplicaState, outstanding: Outstanding, response: EndQuorumEpochResponse
) -> list[Action]:
    """The voter knows that we leave."""
    answer, _ = read_partition(state, response, endpoints=response.node_endpoints)
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if concerns_us and isinstance(role, Resigned):
        role.unacknowledged.discard(outstanding.destination)
    return actions
