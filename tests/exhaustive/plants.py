"""Bugs that are put into the core, to see that the search finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import attrs

from kraftlib.consensus import fetch_follower, fetch_leader, poll, repair, requests, transitions, vote
from kraftlib.consensus import replica as replicas
from kraftlib.consensus.roles import Follower, Leader, Prospective, Unattached
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voters import majority_offset
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey


@attrs.frozen
class Plant:
    """What is put in the place of which functions, and the scene in which it shows."""

    scene: str
    instead: Mapping[tuple[Any, str], Callable[..., Any]]


def _grants_any_pre_vote(state: ReplicaState, asker_end: OffsetAndEpoch) -> bool:
    return not isinstance(state.role_state, Leader)


def _votes_for_a_shorter_log(state: ReplicaState, asker: ReplicaKey, asker_end: OffsetAndEpoch) -> bool:
    role = state.role_state
    if state.amnesia is not None or not isinstance(role, Unattached | Prospective):
        return False
    return role.voted_key.matches(asker) if role.voted_key is not None else role.leader_id is None


def _votes_twice(state: ReplicaState, asker: ReplicaKey, asker_end: OffsetAndEpoch) -> bool:
    role = state.role_state
    return isinstance(role, Unattached | Prospective) and role.leader_id is None and asker_end >= state.log.end


def _update(state: ReplicaState, role: Leader, own_end: int, first: int) -> list[Any]:
    offset = majority_offset([*(other.end_offset for other in role.progress.values()), own_end])
    known = state.high_watermark
    return (
        []
        if offset <= first or (known is not None and offset <= known)
        else fetch_leader.advance_high_watermark(state, offset)
    )


def _counts_older_epochs(state: ReplicaState, role: Leader) -> list[Any]:
    return _update(state, role, state.log.flushed_offset, 0)


def _counts_before_the_flush(state: ReplicaState, role: Leader) -> list[Any]:
    return _update(state, role, state.log.end_offset, role.epoch_start_offset)


def _fetches_before_the_flush(state: ReplicaState) -> bool:
    return True


@attrs.frozen
class _Offset:
    """The question of a Fetch, of which only the offset is looked at."""

    position: OffsetAndEpoch = attrs.field(eq=lambda position: position.offset)
    is_anonymous: bool


def _asks_for_an_offset(state: ReplicaState, role: Follower) -> Any:
    return _Offset(repair.fetch_position(state), repair.is_anonymous(state))


def _still_asks_for_the_offset(state: ReplicaState, role: Follower, question: Any) -> bool:
    return bool(question == _asks_for_an_offset(state, role))


def _fetches_from_anybody(state: ReplicaState, destination: int, place: Endpoint) -> Any:
    request = fetch_follower._fetch_request(state, state.log.end, anonymous=False, max_wait_ms=0)
    return requests.send(state, destination, place, request, question=_Offset(state.log.end, is_anonymous=False))  # type: ignore[arg-type]


def _leader_is_a_server(state: ReplicaState) -> list[tuple[int, Endpoint]]:
    place = requests.endpoint_of(state, state.leader_endpoints)
    return [(-2, place)] if isinstance(state.role_state, Follower) and place is not None else []


def _doubts_at_once(state: ReplicaState, role: Follower) -> list[Any]:
    return fetch_follower.find_leader(state)


def _sends_to_everybody(state: ReplicaState, fetcher: ReplicaKey | None) -> bool:
    return True


def _remembers_at_once(state: ReplicaState) -> list[Any]:
    if state.amnesia is None:
        return []
    state.amnesia = None
    return transitions.persist(state)


PLANTS: Final = {
    "shorter-log": Plant(
        "behind",
        {(vote, "grants_vote"): _votes_for_a_shorter_log, (vote, "grants_pre_vote"): _grants_any_pre_vote},
    ),
    "two-votes": Plant("rivals", {(vote, "grants_vote"): _votes_twice}),
    "short-amnesia": Plant("forgetful", {(repair, "maybe_recall"): _remembers_at_once}),
    "older-epochs": Plant("figure-8", {(fetch_leader, "update_high_watermark"): _counts_older_epochs}),
    "unflushed-leader": Plant("two", {(fetch_leader, "update_high_watermark"): _counts_before_the_flush}),
    "unflushed-follower": Plant("two", {(fetch_follower, "may_fetch"): _fetches_before_the_flush}),
    "uncommitted-removal": Plant("removal", {(fetch_leader, "may_send"): _sends_to_everybody}),
    "late-diverging": Plant(
        "late-answer",
        {
            (fetch_follower, "_question"): _asks_for_an_offset,
            (fetch_follower, "_is_still_asked"): _still_asks_for_the_offset,
            (fetch_follower, "ask_who_leads"): _fetches_from_anybody,
            (requests, "bootstrap_servers"): _leader_is_a_server,
            (fetch_follower, "doubt_leader"): _doubts_at_once,
        },
    ),
}

MODULES: Final = (fetch_follower, fetch_leader, poll, repair, replicas, requests, transitions, vote)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Put a bug into the core, wherever its functions are called from."""
    with ExitStack() as stack:
        for (home, function), instead in PLANTS[name].instead.items():
            right = getattr(home, function)
            for module in MODULES:
                if getattr(module, function, None) is right:
                    stack.enter_context(mock.patch.object(module, function, instead))
        yield
