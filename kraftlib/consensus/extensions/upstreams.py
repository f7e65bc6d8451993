"""Upstreams: an observer fetches from other replicas of ours, so that the fan-out is a tree. (Beyond Kafka.)

The observer marks its Fetches, and a replica that does not lead answers them with the records that it knows to be
committed (`downstream`). The observer drops every other record, also one of the leader. So its log holds committed
records alone, and never has to be truncated. A voter fetches from the leader, and so does a replica that has something
to repair, or to which the leader introduces itself as to a voter: the record that says so may need that very voter to
be committed.

Each answer tells the age of its news: the time since its sender had everything that was committed, as the leader said
then, be it directly or by way of other upstreams. An upstream that refuses, does not answer, or has no news of less
than a fetch timeout is left for a while. Then the next one in the list is asked, and after the last one the leader. In
a circle of upstreams the news only gets older, so a circle ends by itself. See docs/explanation/decisions/0021. The
marks are tagged fields, which a reader that does not know them skips (KIP-482):

    10002   Fetch, FetchSnapshot: committed records are wanted, and any replica may send them; empty
    10003   Fetch response: the age of the news, in ms, int32
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kraftlib.consensus.outstanding import FIRST_LANE, FIRST_UPSTREAM
from kraftlib.consensus.roles import Download, Follower
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.types import Endpoint, Offset
from kraftlib.wire.apis import ErrorCode

MARK: Final = ((10_002, b""),)
AGE_TAG: Final = 10_003

AGE_MAX_MS: Final = 2**31 - 1

DOUBLINGS_MAX: Final = 5
"""An upstream that is left again and again rests for up to 32 to 64 fetch timeouts."""

REFUSALS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)
"""Answers by which a replica says that it is no upstream, or none any more."""

# --- whom to ask ------------------------------------------------------------------------------------------------------


def is_upstream(destination: int) -> bool:
    """Whether a destination is an upstream."""
    return FIRST_LANE < destination <= FIRST_UPSTREAM


def takes_committed_only(state: ReplicaState) -> bool:
    """Whether this replica has upstreams, and nothing that only the leader may be asked for."""
    if not state.config.upstreams or state.is_voter or state.now_ms < state.upstreams.wanted_until_ms:
        return False
    return not state.log.holes and state.amnesia is None and state.digests.quarantine is None


def note_wanted(state: ReplicaState) -> None:
    """The leader takes us for a voter that does not fetch from it: it tells one so twice in a fetch timeout."""
    state.upstreams.wanted_until_ms = state.now_ms + 2 * state.config.fetch_timeout_ms


def ready_upstreams(state: ReplicaState) -> list[tuple[int, Endpoint]]:
    """Return the upstreams that have not been left lately, the preferred one first."""
    if not takes_committed_only(state):
        return []
    resting, now_ms = state.upstreams.resting_until_ms, state.now_ms
    numbered = [(FIRST_UPSTREAM - index, place) for index, place in enumerate(state.config.upstreams)]
    return [(number, place) for number, place in numbered if resting.get(number, 0) <= now_ms]


def source_of(state: ReplicaState, role: Follower) -> tuple[int, Endpoint | None]:
    """Return the destination to fetch from, and where it is reached: an upstream if one is ready, else the leader."""
    upstreams = state.upstreams
    if state.config.upstreams and (ready := ready_upstreams(state)):
        number, place = ready[0]
        if upstreams.chosen != number:
            upstreams.chosen, upstreams.chosen_ms = number, state.now_ms
            logger.info("%s: fetches from upstream %s", state.id_text, place)
        return number, place
    upstreams.chosen = None
    return role.leader_id, role.leader_endpoints.get(state.config.listener_name.upper())


def pause_foreign_download(state: ReplicaState, role: Follower) -> None:
    """A download of another source goes on once the new one has named the snapshot, and proved to have its bytes."""
    if role.download is not None and not role.writing_chunk:
        destination, _ = source_of(state, role)
        if not is_source(role.download, destination):
            role.download = None


def source_at(destination: int) -> int | None:
    """Return the source of a download that is fetched from there: an upstream, or None for the leader."""
    return destination if is_upstream(destination) else None


def is_source(download: Download | None, destination: int) -> bool:
    """Whether a download is fetched from there now. An answer of its last source says nothing about its bytes."""
    return download is not None and download.source == source_at(destination)


# --- what it answers --------------------------------------------------------------------------------------------------


def note_answer(state: ReplicaState, destination: int, response: Any, partition: Any | None) -> None:
    """Take note of how new an answer to a Fetch is; leave the upstream that has given it, if it is of no use."""
    upstreams, timeout_ms = state.upstreams, state.config.fetch_timeout_ms
    error, epoch = response.error_code, -1
    if partition is not None:
        error, epoch = error or partition.error_code, partition.current_leader.leader_epoch
    if epoch == state.epoch and not error:
        told_ms = state.now_ms - _age_of(response)
        upstreams.heard_ms = max(upstreams.heard_ms, told_ms)
        if state.now_ms - told_ms < timeout_ms:
            upstreams.failures.pop(destination, None)
    if destination != upstreams.chosen:
        return
    if response.error_code or partition is None or (epoch == state.epoch and error in REFUSALS):
        leave(state, destination, "it serves no observers")
    elif state.now_ms - max(upstreams.heard_ms, upstreams.chosen_ms) >= timeout_ms:
        leave(state, destination, "it has not heard of the leader, or has not caught up, for a fetch timeout")


def note_current(state: ReplicaState, response: Any, high_watermark: Offset) -> None:
    """An answer is taken over: perhaps everything is here that was committed at the time of its news."""
    if 0 <= high_watermark <= (state.high_watermark or 0):
        state.upstreams.current_ms = max(state.upstreams.current_ms or 0, state.now_ms - _age_of(response))


def leave(state: ReplicaState, destination: int, reason: str) -> None:
    """Fetch from another replica for a while, if this upstream is the one that is fetched from."""
    upstreams = state.upstreams
    if destination != upstreams.chosen:
        return
    failures = upstreams.failures[destination] = upstreams.failures.get(destination, 0) + 1
    rest_ms = state.config.fetch_timeout_ms << min(failures - 1, DOUBLINGS_MAX)
    rest_ms += state.random.randrange(rest_ms)
    upstreams.chosen = None
    upstreams.resting_until_ms[destination] = state.now_ms + rest_ms
    doubt_bytes(state, destination)
    place = state.config.upstreams[FIRST_UPSTREAM - destination]
    state.refuse("upstream left", f"{place}, for {rest_ms} ms: {reason}", peer=destination)


def doubt_bytes(state: ReplicaState, destination: int) -> None:
    """Another process may answer at an upstream from now on, with other bytes of the same snapshot."""
    if state.kept is not None and state.kept.source == destination:
        state.kept.source_epoch = None


# --- what is marked ---------------------------------------------------------------------------------------------------


def is_marked(request: Any) -> bool:
    """Whether a request wants committed records, which any replica may send."""
    return any(tag == MARK[0][0] for tag, _ in request.unknown_tagged_fields)


def age_field(state: ReplicaState) -> tuple[tuple[int, bytes], ...]:
    """Return the tagged field of an answer that says how old our news is."""
    current_ms = state.upstreams.current_ms
    age_ms = AGE_MAX_MS if current_ms is None else min(max(state.now_ms - current_ms, 0), AGE_MAX_MS)
    return ((AGE_TAG, struct.pack(">i", age_ms)),)


def _age_of(response: Any) -> int:
    """Return how old the news of an answer is; that of the leader is of now."""
    if not response.unknown_tagged_fields:
        return 0
    said = next((data for tag, data in response.unknown_tagged_fields if tag == AGE_TAG), None)
    if said is None:
        return 0
    return max(struct.unpack(">i", said)[0], 0) if len(said) == 4 else AGE_MAX_MS
