"""Vote, both sides: one vote in an epoch, only for a log that is as long as one's own (KIP-595).

A voter that may stand asks first whether it would win at all: the pre-vote (KIP-996).
"""

from __future__ import annotations

from kraftlib.codec.declared import Message
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.consensus.extensions.epoch_budget import raises_too_far
from kraftlib.consensus.extensions.misconfiguration import introduction
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.requests import back_off, common_part, place_to_ask, read_answer, send
from kraftlib.consensus.roles import Candidate, Follower, Leader, Prospective, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.transitions import become_candidate, become_follower, become_leader, become_unattached, persist
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

SLOTS_TO_GO_FIRST = 3
"""The number of slots of `leader_loss_stagger_ms`, beside one for each voter of a lower id, for which another voter may
go first."""

ROUND_TRIPS_TO_GO_FIRST = 2
"""At least so many round trips of our own pre-vote, for our answer to it and its Vote to us."""


# --- the voter's side -------------------------------------------------------------------------------------------------


def handle_vote(state: ReplicaState, event: RequestReceived[VoteRequest]) -> list[Action]:
    """Answer a Vote. Observers answer, too: a replica may not know yet that it is a voter (scenario M9)."""
    request = event.request
    partition = responses.only_partition(request.topics)
    error = responses.partition_error(state, request.cluster_id, partition)
    if error is not ErrorCode.NONE:
        return responses.refuse_request(state, event, error)
    error = _vote_error(state, partition)
    if error is not ErrorCode.NONE:
        return [responses.election(state, event, error)]
    if raises_too_far(state, partition.replica_epoch, f"a Vote of replica {partition.replica_id}"):
        return [SendResponse(event.request_id, None)]

    actions: list[Action] = []
    if partition.replica_epoch > state.epoch:
        # A pre-vote carries the real epoch of its sender: a replica in a lower one is behind.
        actions += become_unattached(state, partition.replica_epoch, f"a Vote of replica {partition.replica_id}")
    error = responses.voter_key_error(state, request.voter_id, partition.voter_directory_id)
    if error is not ErrorCode.NONE:
        return [*actions, responses.election(state, event, error)]

    asker = ReplicaKey.of(partition.replica_id, partition.replica_directory_id)
    asker_end = OffsetAndEpoch(epoch=partition.last_offset_epoch, offset=partition.last_offset)
    if asker.id == state.key.id:
        # Another replica runs with our id. A vote for ourselves is cast by standing, never by being asked.
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
    return [*actions, responses.election(state, event, ErrorCode.NONE, vote_granted=granted)]


def _vote_error(state: ReplicaState, partition: VoteRequest.PartitionData) -> ErrorCode:
    """Refuse an impossible request before anything in it is believed, the epoch included."""
    newest = partition.replica_epoch if partition.pre_vote else partition.replica_epoch - 1
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or partition.last_offset_epoch > newest:
        return ErrorCode.INVALID_REQUEST
    return responses.voter_only_error(state, partition.replica_epoch, partition.replica_id)


def grants_pre_vote(state: ReplicaState, asker_end: OffsetAndEpoch) -> bool:
    """Whether we would elect that log, as far as our own leader leaves a choice. It binds nothing.

    Beyond KIP-996, a follower that may not stand, or not yet, an observer among them (scenario M9), gives no preference
    to a leader that has been silent for the fetch timeout: it follows on, and others may need its vote.
    """
    role = state.role_state
    if state.amnesia is not None or isinstance(role, Leader):
        return False
    if isinstance(role, Follower) and role.has_fetched:
        follows_on = not state.may_stand or state.reluctance_ms > 0
        return follows_on and state.now_ms >= role.fetch_deadline_ms and asker_end >= state.log.end
    return asker_end >= state.log.end


def _ask_again(state: ReplicaState, asker: ReplicaKey) -> None:
    """A replica that asks for our pre-vote has lost the leader, too: its earlier refusal counts no more.

    Otherwise the one with the longer log, which noticed first and asked too early, would wait for its timer.
    """
    role = state.role_state
    if isinstance(role, Prospective):
        role.tally.rejected.discard(asker.id)


def _let_go_first(state: ReplicaState, asker: ReplicaKey, asker_end: OffsetAndEpoch) -> None:
    """Of two that ask each other, and would both be granted, one stands first: that with the longer log or lower id.

    Followers of one leader lose it in one moment: otherwise they stand in the same millisecond, each with its own vote,
    and wait for their timers. One pre-vote of ours gives way once, so that it is not put off for ever. Votes are given
    as before, so a voter of Kafka's, which never gives way, is elected by us as ever.
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


# --- the candidate's side ---------------------------------------------------------------------------------------------


def ask_for_votes(state: ReplicaState, role: Prospective | Candidate) -> list[Action]:
    """Ask each voter that has not answered this election; for a vote that binds, once our log is flushed.

    A voter that is asked again, perhaps after a crash of ours, gives the same vote again, and looks at no log.
    """
    is_durable = state.log.flushed_offset == state.log.end_offset
    if role.tally.lost or (isinstance(role, Candidate) and not is_durable):
        return []
    actions: list[Action] = []
    said = introduction(state)
    for voter_id in role.tally.unanswered():
        voter = role.tally.voters.get(voter_id)
        place = None if voter is None else place_to_ask(state, voter_id, voter.endpoints)
        if voter is None or place is None:
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
        topics = (VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
        request = VoteRequest(cluster_id=state.cluster_id, voter_id=voter_id, topics=topics, unknown_tagged_fields=said)
        actions.append(send(state, voter_id, place, request))
    return actions


def handle_vote_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: VoteResponse
) -> list[Action]:
    """Count an answer to the election that is running."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return handle_vote_failed(state, outstanding, Failure.UNSUPPORTED_VERSION)
    answer, partition = read_answer(state, response, responses.only_partition(response.topics))
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if not concerns_us or not isinstance(role, Prospective | Candidate):
        return actions
    if isinstance(role, Prospective) and role.left_ms is not None and not partition.vote_granted:
        # It has not heard the good-bye yet: ask it ever less often, and not only when all refuse.
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
    """Begin an epoch, if a majority would follow; a little later, if another voter is to try first."""
    if not role.tally.won or state.now_ms < stand_not_before_ms(state, role):
        return []
    return become_candidate(state, f"pre-vote of {sorted(role.tally.granted)}")


def stand_not_before_ms(state: ReplicaState, role: Prospective) -> int:
    """Return the time until which another voter, which would win as well, may stand first."""
    if role.gave_way_ms is None:
        return state.now_ms
    slots = SLOTS_TO_GO_FIRST + sum(voter_id < state.key.id for voter_id in state.voters.ids)
    slots_ms = slots * state.config.leader_loss_stagger_ms
    return role.gave_way_ms + max(slots_ms, ROUND_TRIPS_TO_GO_FIRST * role.round_trip_ms)


def handle_vote_failed(state: ReplicaState, outstanding: Outstanding[Message], failure: Failure) -> list[Action]:
    """A peer from before KIP-996 does not know pre-votes, so none is asked for: stand at once."""
    if failure is Failure.UNSUPPORTED_VERSION and isinstance(state.role_state, Prospective):
        return become_candidate(state, f"replica {outstanding.destination} knows no pre-vote")
    back_off(state, outstanding)
    return []


def give_up_pre_vote(state: ReplicaState, role: Prospective, reason: str) -> list[Action]:
    """Go back to the leader that we thought lost, if it can be reached; else wait."""
    if role.leader_id is not None and role.leader_endpoints:
        return become_follower(state, state.epoch, role.leader_id, role.leader_endpoints, reason)
    return become_unattached(state, state.epoch, reason, leader_id=role.leader_id)
