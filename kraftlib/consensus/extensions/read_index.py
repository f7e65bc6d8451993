"""The conversation of reads: an offset from which on a read misses nothing that was committed before it.

A leader may have been deposed without knowing it, so it first asks a majority whether it still leads, and only then
says what is committed (the read index of the Raft thesis, 6.4). It asks by sending BeginQuorumEpoch again, which any
Kafka voter answers: a voter that does so without error stands in the leader's epoch *after* the question left, so no
newer leader was elected before. Fetches would not do: one may have been sent long before, and its sender have voted
since.

    caller -> leader     reads gather -> round: BeginQuorumEpoch to all -> majority answered -> offset
    caller -> another    reads gather -> ReadBarrier to the leader (private) -> offset; then it waits until it has that

One round, or one question, is under way at a time; requests that arrive meanwhile wait for the next and share it, so
the cost follows the round trips and not the readers. A read outlives changes of role: it asks the leader of the moment,
until its time is up. See docs/explanation/decisions/0008.
"""

from __future__ import annotations

from typing import Final

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import Action, PassReadBarrier, RefuseReadBarrier, SendResponse
from kraftlib.consensus.events import Failure, ReadBarrierRequested, RequestReceived
from kraftlib.consensus.extensions.commit_news import learn_commit
from kraftlib.consensus.outstanding import Outstanding, in_lane
from kraftlib.consensus.quorum_epoch import send_begin
from kraftlib.consensus.requests import back_off, place_to_ask, send
from kraftlib.consensus.responses import leader_error
from kraftlib.consensus.roles import Follower, Leader, ReadRound
from kraftlib.consensus.state import Read, ReplicaState
from kraftlib.types import Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest, ReadBarrierResponse

TIMEOUT_MAX_MS: Final = 600_000
"""No peer may have its question remembered for longer."""


def lane_to(replica_id: ReplicaId) -> int:
    """Return the destination by which reads ask a leader: on the usual connection the answer would wait behind a Fetch
    that the leader has parked."""
    return in_lane(0, replica_id)


def handle_read_requested(state: ReplicaState, event: ReadBarrierRequested) -> list[Action]:
    """The application of this replica wants to read."""
    state.reads.append(Read(request_id=event.request, deadline_ms=state.now_ms + event.timeout_ms))
    return []


def handle_read_barrier(state: ReplicaState, event: RequestReceived[ReadBarrierRequest]) -> list[Action]:
    """Another replica wants to read; only a leader knows the read index."""
    request = event.request
    error = leader_error(state, request.cluster_id, state.epoch)
    if error is not ErrorCode.NONE:
        return [SendResponse(event.request_id, ReadBarrierResponse(error_code=error, leader_epoch=state.epoch))]
    timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MAX_MS)
    state.reads.append(Read(request_id=event.request_id, deadline_ms=state.now_ms + timeout_ms, remote=True))
    return []


def _pass(state: ReplicaState, reads: list[Read], offset: Offset) -> list[Action]:
    return [
        SendResponse(read.request_id, ReadBarrierResponse(error_code=0, leader_epoch=state.epoch, offset=offset))
        if read.remote
        else PassReadBarrier(read.request_id, offset)
        for read in reads
    ]


def _refuse(state: ReplicaState, reads: list[Read], error: ErrorCode) -> list[Action]:
    return [
        SendResponse(read.request_id, ReadBarrierResponse(error_code=error, leader_epoch=state.epoch))
        if read.remote
        else RefuseReadBarrier(read.request_id, error)
        for read in reads
    ]


def advance_reads(state: ReplicaState) -> list[Action]:
    """Give up the reads whose time is up; bring the others as far as this role can."""
    if not state.reads:
        return []
    actions = _expire(state)
    role = state.role_state
    if isinstance(role, Leader):
        return actions + _advance_round(state, role)
    # A replica that asked us as its leader must ask another replica; our own callers are patient.
    strangers = [read for read in state.reads if read.remote]
    if strangers:
        state.reads = [read for read in state.reads if not read.remote]
        actions += _refuse(state, strangers, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return actions + _ask_leader(state, role) if isinstance(role, Follower) else actions


def read_deadline_ms(state: ReplicaState) -> int | None:
    """When the next read is given up."""
    return min((read.deadline_ms for read in state.reads), default=None)


def _expire(state: ReplicaState) -> list[Action]:
    late = [read for read in state.reads if read.deadline_ms <= state.now_ms]
    if not late:
        return []
    state.reads = [read for read in state.reads if read.deadline_ms > state.now_ms]
    return _refuse(state, late, ErrorCode.REQUEST_TIMED_OUT)


def _advance_round(state: ReplicaState, role: Leader) -> list[Action]:
    """Finish the round that a majority has confirmed, begin the next one, ask who has not answered it."""
    actions: list[Action] = []
    while state.reads:
        if role.read_round is None:
            # A leader knows that records of earlier epochs are committed only once a record of its own is.
            if state.high_watermark is None:
                return actions
            role.read_rounds += 1
            role.read_round = ReadRound(number=role.read_rounds, offset=state.high_watermark)
            for read in state.reads:
                read.asked = role.read_rounds
        current = role.read_round
        confirmed = sum(progress.confirmed_round >= current.number for progress in role.progress.values())
        if confirmed + state.is_voter < state.voters.majority:
            return actions + _ask_voters(state, role, current)
        role.read_round = None
        done = [read for read in state.reads if 0 < read.asked <= current.number]
        state.reads = [read for read in state.reads if not 0 < read.asked <= current.number]
        actions += _pass(state, done, current.offset)
    return actions


def _ask_voters(state: ReplicaState, role: Leader, current: ReadRound) -> list[Action]:
    actions: list[Action] = []
    for voter in state.voters.others(state.key):
        progress = role.progress.get(voter.key.id)
        if progress is not None and progress.confirmed_round < current.number:
            actions += send_begin(state, role, voter)
    return actions


def _ask_leader(state: ReplicaState, role: Follower) -> list[Action]:
    """Ask the leader on behalf of everybody who waits; requests that arrive meanwhile wait for the next question."""
    lane = lane_to(role.leader_id)
    place = place_to_ask(state, lane, role.leader_endpoints)
    if not state.reads or place is None:
        return []
    for read in state.reads:
        read.asked = 1
    timeout_ms = min(state.config.request_timeout_ms, max(read.deadline_ms for read in state.reads) - state.now_ms)
    request = ReadBarrierRequest(cluster_id=state.cluster_id, replica_id=state.key.id, timeout_ms=timeout_ms)
    return [send(state, lane, place, request)]


def handle_read_barrier_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: ReadBarrierResponse
) -> list[Action]:
    """The leader has answered with a read index or an error."""
    if response.error_code != ErrorCode.NONE or response.offset < 0:
        back_off(state, outstanding)
        return []
    state.connections.succeeded(outstanding.destination)
    done = [read for read in state.reads if read.asked]
    state.reads = [read for read in state.reads if not read.asked]
    # Below it, the last record is of the leader's epoch: until one is committed there, a leader lets no read pass.
    learned = learn_commit(state, OffsetAndEpoch(offset=response.offset, epoch=response.leader_epoch))
    return [*learned, *_pass(state, done, response.offset)]


def handle_read_barrier_failed(
    state: ReplicaState, outstanding: Outstanding[Message], failure: Failure
) -> list[Action]:
    """The leader was not reached, or knows no such question: then it is no replica of ours, and never will be."""
    if failure is not Failure.UNSUPPORTED_VERSION:
        back_off(state, outstanding)  # everybody who waits then is asked for again
        return []
    done = [read for read in state.reads if read.asked]
    state.reads = [read for read in state.reads if not read.asked]
    return _refuse(state, done, ErrorCode.UNSUPPORTED_VERSION)
