"""StateDigest, both sides: has every replica made the same state of the same records? (Beyond Kafka.)

The runtime hashes the state of the state machine at some offsets, by a rule that is the same on every replica
(`kraftlib.runtime.digests`). A replica with a new digest asks each voter for its digests, and tells its own, until each
has told that offset or there is a newer one. Then it judges, by itself, from the digests that the voters have told:

    a majority of voters has another digest at an offset    its own state is wrong: it is quarantined
    a majority has its digest                               the state is right; replicas with another one are named
    every voter has told, and there is no majority          no replica is quarantined, and the log tells the operator

`quarantine` says what follows. No record of the log is needed for any of this, so a log is as good for Kafka's tools
and replicas as without it. See docs/explanation/decisions/0016.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import Action, SendResponse
from kraftlib.consensus.events import Failure, RequestReceived, StateHashed
from kraftlib.consensus.extensions.quarantine import begin_healing, begin_quarantine, offer
from kraftlib.consensus.outstanding import Outstanding, in_lane
from kraftlib.consensus.requests import back_off, place_to_ask, send
from kraftlib.consensus.responses import cluster_error
from kraftlib.consensus.roles import Follower
from kraftlib.consensus.state import Quarantine, ReplicaState, StateDigest, logger
from kraftlib.types import Endpoint, Offset, OffsetAndEpoch, ReplicaId
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import DIFFERING, DIGEST_BYTES, DIGESTS
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse

OBSERVERS_MAX: Final = 64
"""The number of replicas beside the voters whose digests are kept. It is bounded, since a client may send any id."""

NAMED_MAX: Final = 8
"""The number of replicas beside the voters that have a log line for one digest of ours."""

_LANE: Final = in_lane(2, 0)


def lane_to(replica_id: ReplicaId) -> int:
    """Return the destination by which a replica asks for digests, beside Fetches, reads and priorities."""
    return _LANE - replica_id


def pause_ms(state: ReplicaState) -> int:
    """Return the time between two questions to a voter that has not told an offset yet."""
    return min(max((state.config.digest_interval_ms or 0) // 8, 50), 2_000)


# --- our own state ----------------------------------------------------------------------------------------------------


def handle_state_hashed(state: ReplicaState, event: StateHashed) -> list[Action]:
    """The state of this replica is hashed: compare it with that of the voters."""
    digests = state.digests
    if digests.quarantine is not None or event.offset < digests.replaced_at:
        return []
    digests.own[event.offset] = StateDigest(event.snapshot_version, event.sha256)
    _keep_newest(digests.own)
    digests.without_answer.clear()
    digests.informed.clear()
    digests.named.clear()
    digests.ask_due_ms = state.now_ms
    return judge(state)


def _keep_newest(told: dict[Offset, StateDigest]) -> None:
    while len(told) > DIGESTS:
        del told[min(told)]


# --- questions --------------------------------------------------------------------------------------------------------


def compare_states(state: ReplicaState) -> list[Action]:
    """Ask the voters that have not told the newest offset; in quarantine ask the leader for a snapshot."""
    digests = state.digests
    due_ms = digests.ask_due_ms
    if due_ms is None or due_ms > state.now_ms or not state.config.private_apis or state.shutting_down:
        return []
    digests.ask_due_ms = state.now_ms + pause_ms(state)
    if digests.quarantine is not None:
        return _ask_for_snapshot(state, digests.quarantine)
    missing = _missing(state)
    if not missing:
        digests.ask_due_ms = None
    return [_question(state, replica_id, place) for replica_id, place in missing.items() if place is not None]


def compare_deadline_ms(state: ReplicaState) -> int | None:
    """Return when the voters are asked next."""
    return None if state.shutting_down or not state.config.private_apis else state.digests.ask_due_ms


def _missing(state: ReplicaState) -> dict[ReplicaId, Endpoint | None]:
    """Return the voters that have not told the newest offset, or not heard of it, and where they may be asked now."""
    digests = state.digests
    newest = max(digests.own, default=None)
    if newest is None:
        return {}

    def is_missing(voter_id: ReplicaId) -> bool:
        lacks = _told(state, voter_id, newest) is None or voter_id not in digests.informed
        return lacks and voter_id not in digests.without_answer

    return {
        voter.key.id: place_to_ask(state, lane_to(voter.key.id), voter.endpoints)
        for voter in state.voters.others(state.key)
        if is_missing(voter.key.id)
    }


def _ask_for_snapshot(state: ReplicaState, quarantine: Quarantine) -> list[Action]:
    role = state.role_state
    if not isinstance(role, Follower) or role.download is not None or quarantine.is_loading or state.log.holes:
        return []
    place = place_to_ask(state, lane_to(role.leader_id), role.leader_endpoints)
    # A snapshot at the beginning of our log, or before it, could not take the place of anything.
    snapshot_from = max(quarantine.offset, state.log.start_offset + 1)
    return [] if place is None else [_question(state, role.leader_id, place, snapshot_from=snapshot_from)]


def _question(state: ReplicaState, replica_id: ReplicaId, place: Endpoint, *, snapshot_from: Offset = -1) -> Action:
    request = StateDigestRequest(
        cluster_id=state.cluster_id,
        replica_id=state.key.id,
        snapshot_from=snapshot_from,
        digests=tuple(_rows(StateDigestRequest.Digest, state.digests.own)),
    )
    return send(state, lane_to(replica_id), place, request)


def _rows(kind: Any, told: Mapping[Offset, StateDigest]) -> Iterable[Any]:
    return (
        kind(offset=offset, snapshot_version=digest.snapshot_version, sha256=digest.sha256)
        for offset, digest in sorted(told.items())
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def handle_state_digest(state: ReplicaState, event: RequestReceived[StateDigestRequest]) -> list[Action]:
    """Note the digests of another replica and tell ours; a leader offers a quarantined replica its snapshot."""
    request, digests = event.request, state.digests
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return [SendResponse(event.request_id, StateDigestResponse(error_code=error))]
    is_voter = state.voters.get(request.replica_id) is not None
    if request.replica_id != state.key.id and not (is_voter and event.of_observer):
        _note(state, request.replica_id, request.digests)
    # An observer waits for longer, since any may ask, and a snapshot of the whole state is much work.
    rest_ms = pause_ms(state) if is_voter else max(pause_ms(state), state.config.digest_interval_ms or 0)
    offered, actions = offer(state, request.snapshot_from, pause_ms=rest_ms)
    response = StateDigestResponse(
        error_code=ErrorCode.NONE,
        is_quarantined=digests.quarantine is not None,
        differing=tuple(sorted(digests.differing))[:DIFFERING],
        agreed_offset=digests.agreed_offset,
        undecided_offset=digests.undecided_offset,
        digests=tuple(_rows(StateDigestResponse.Digest, digests.own)),
        snapshot_id=StateDigestResponse.SnapshotId(
            end_offset=-1 if offered is None else offered.offset, epoch=-1 if offered is None else offered.epoch
        ),
    )
    return [SendResponse(event.request_id, response), *actions, *judge(state)]


def handle_state_digest_response(
    state: ReplicaState, outstanding: Outstanding[StateDigestRequest], response: StateDigestResponse
) -> list[Action]:
    """Judge by the digests of a voter, or load the snapshot that the leader offers."""
    if response.error_code != ErrorCode.NONE:
        back_off(state, outstanding)
        return []
    state.connections.succeeded(outstanding.destination)
    asked_id = _LANE - outstanding.destination
    _note(state, asked_id, response.digests)
    if max((row.offset for row in outstanding.request.digests), default=-1) == max(state.digests.own, default=-1):
        state.digests.informed.add(asked_id)
    role, quarantine = state.role_state, state.digests.quarantine
    if quarantine is None:
        return judge(state)
    offered = OffsetAndEpoch(offset=response.snapshot_id.end_offset, epoch=response.snapshot_id.epoch)
    if isinstance(role, Follower) and asked_id == role.leader_id and offered.offset >= quarantine.offset:
        return begin_healing(state, role, offered)
    return []


def handle_state_digest_failed(
    state: ReplicaState, outstanding: Outstanding[Message], failure: Failure
) -> list[Action]:
    """A voter was not reached; or it knows no such question, and is left alone until the next digest."""
    back_off(state, outstanding)
    if failure is Failure.UNSUPPORTED_VERSION:
        state.digests.without_answer.add(_LANE - outstanding.destination)
    return []


def _note(state: ReplicaState, replica_id: ReplicaId, rows: Iterable[Any]) -> None:
    """Remember what a replica has told of its state."""
    if replica_id < 0:
        return
    digests = state.digests
    known = digests.told.pop(replica_id, {})
    known.update({row.offset: StateDigest(row.snapshot_version, row.sha256) for row in rows if _is_digest(row)})
    _keep_newest(known)
    digests.told[replica_id] = known  # the one that has told last is the last to be forgotten
    observers = [other for other in digests.told if state.voters.get(other) is None]
    for other in observers[: max(0, len(observers) - OBSERVERS_MAX)]:
        del digests.told[other]
        digests.differing.discard(other)


def _is_digest(row: Any) -> bool:
    return row.offset >= 0 and len(row.sha256) == DIGEST_BYTES


# --- the judgement ----------------------------------------------------------------------------------------------------


def judge(state: ReplicaState) -> list[Action]:
    """Compare the states at each offset that is known here, the newest first.

    A state that agrees is right, however it differed before: of an older offset a voter may have told later.
    """
    digests, wrong_at = state.digests, None
    if state.machine_failed_ms is not None:  # in quarantine already, or stopped for good
        return []
    for offset in sorted(digests.own, reverse=True):
        mine = digests.own[offset]
        told = {voter: mine if voter == state.key.id else _told(state, voter, offset) for voter in state.voters.ids}
        if not state.is_voter:
            told.pop(state.key.id, None)
        votes = Counter(digest for digest in told.values() if digest and digest.is_comparable(mine))
        best, count = max(votes.items(), key=lambda item: item[1], default=(mine, 0))
        if count < state.voters.majority:
            _note_undecided(state, offset, {**told, state.key.id: mine})
        elif best == mine:
            _note_agreement(state, offset, mine)
        elif offset > digests.agreed_offset:
            wrong_at = offset
    return [] if wrong_at is None else begin_quarantine(state, wrong_at)


def _told(state: ReplicaState, replica_id: ReplicaId, offset: Offset) -> StateDigest | None:
    return state.digests.told.get(replica_id, {}).get(offset)


def _note_agreement(state: ReplicaState, offset: Offset, right: StateDigest) -> None:
    """Our state is that of a majority; name the replicas whose state is another one, once."""
    digests = state.digests
    if offset > digests.agreed_offset:
        digests.agreed_offset = offset
    if digests.undecided_offset <= offset:
        digests.undecided_offset = -1
    for replica_id, told in digests.told.items():
        other = told.get(offset)
        if other is None or not other.is_comparable(right) or max(told) > offset:
            continue  # the last digest that it has told decides
        if other != right and replica_id not in digests.differing:
            digests.differing.add(replica_id)
            logger.log(
                logging.ERROR if _has_line(state, replica_id) else logging.DEBUG,
                "%s: the state of replica %d differs from that of the majority at offset %d: it should quarantine and "
                "heal itself", state.id_text, replica_id, offset,
            )  # fmt: skip
        elif other == right and replica_id in digests.differing:
            digests.differing.discard(replica_id)
            logger.log(
                logging.WARNING if _has_line(state, replica_id) else logging.DEBUG,
                "%s: the state of replica %d is that of the majority again, at offset %d", state.id_text, replica_id,
                offset,
            )  # fmt: skip


def _has_line(state: ReplicaState, replica_id: ReplicaId) -> bool:
    """Whether the log tells of a replica: an observer may send any id, and another digest with each request."""
    named = state.digests.named
    if state.voters.get(replica_id) is not None:
        return True
    if replica_id in named or len(named) >= NAMED_MAX:
        return False
    named.add(replica_id)
    return True


def _note_undecided(state: ReplicaState, offset: Offset, told: Mapping[ReplicaId, StateDigest | None]) -> None:
    """States may differ without a majority: tell the operator, once nothing more can be told of this offset."""
    digests, mine = state.digests, state.digests.own[offset]
    others = [digest for digest in told.values() if digest is not None and digest.is_comparable(mine)]
    is_final = None not in told.values() or offset < max(digests.own)
    if len(set(others)) < 2 or not is_final or offset <= max(digests.undecided_offset, digests.agreed_offset):
        return
    digests.undecided_offset = offset
    text = ", ".join(
        f"{id_}: {'unknown' if digest is None else digest.sha256.hex()[:16]}" for id_, digest in told.items()
    )
    logger.error(
        "%s: the states of the replicas differ at offset %d, and none is that of a majority (%s): no "
        "replica is quarantined; find the wrong ones, stop them, and start them again with empty directories",
        *(state.id_text, offset, text),
    )
