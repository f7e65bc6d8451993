"""The pairs that a run of the core has reached: each consists of a situation and of what came of an event in it.

    situation    the role, and whether the election is lost (`?`) or records are missing (`!`)
    event        its kind, or that of the message
    answer       what an answer said, or what a request was answered with

Many runs reach the common pairs; which themes reach the rare ones says where to look next (`shares`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.consensus.state import ReplicaState
from kraftlib.wire.apis import ErrorCode

Situation = tuple[Role, bool, bool]
Pair = str
"""`follower! FetchResponse diverging`."""

ERRORS: Final = {int(code): code.name for code in ErrorCode}


@attrs.define
class Coverage:
    """The count of each pair."""

    pairs: Counter[tuple[Situation, str, str]] = attrs.field(factory=Counter)

    def count(self, situation: Situation, kind: str, answer: str) -> None:
        """Count one event."""
        self.pairs[situation, kind, answer] += 1

    def named(self) -> dict[Pair, int]:
        """Return the pairs by their names."""
        return {pair_name(*pair): count for pair, count in self.pairs.items()}


def situation_of(state: ReplicaState) -> Situation:
    """Return the situation that a replica is in."""
    return state.role_state.role, state.amnesia is not None, bool(state.log.holes)


def pair_name(situation: Situation, kind: str, answer: str) -> Pair:
    """Return how reports name a pair."""
    role, is_amnesiac, is_damaged = situation
    return f"{role.value}{'?' * is_amnesiac}{'!' * is_damaged} {kind} {answer}".rstrip()


def kind_of(event: ev.Event) -> str:
    """Name an event: by its message, if it brings one."""
    if isinstance(event, ev.RequestReceived):
        return type(event.request).__name__
    if isinstance(event, ev.ResponseReceived):
        return type(event.response).__name__
    return type(event).__name__


def answer_of(event: ev.Event, actions: Iterable[act.Action]) -> str:
    """Say what an answer says, or with what a request was answered."""
    if isinstance(event, ev.ResponseReceived):
        return outcome(event.response)
    if isinstance(event, ev.RequestReceived):
        for action in actions:
            if isinstance(action, act.SendResponse) and action.request_id == event.request_id:
                return "closed" if action.response is None else outcome(action.response)
            if isinstance(action, act.SendRecords) and action.request_id == event.request_id:
                return "records"
            if isinstance(action, act.SendSnapshotChunk):
                return "chunk"
        return "later"
    if isinstance(event, ev.ConnectionLost):
        return "refused" if event.refused else "lost"
    return ""


def outcome(response: Any) -> str:
    """Say in a word what an answer says."""
    error = response.error_code if hasattr(response, "error_code") else 0
    if error:
        return ERRORS.get(error, str(error))
    topics = getattr(response, "topics", None) or getattr(response, "responses", None)
    if not topics or not topics[0].partitions:
        return ""
    partition = topics[0].partitions[0]
    if partition.error_code:
        return ERRORS.get(partition.error_code, str(partition.error_code))
    if hasattr(partition, "vote_granted"):
        return "granted" if partition.vote_granted else "refused"
    if hasattr(partition, "diverging_epoch"):
        if partition.diverging_epoch.epoch >= 0:
            return "diverging"
        if partition.snapshot_id.epoch >= 0:
            return "snapshot"
        return "records" if partition.records else "empty"
    return ""


def shares(reached: Mapping[str, Mapping[Pair, int]], seeds: Mapping[str, int]) -> dict[str, float]:
    """Return how much of what is run next each theme should get: more, where a seed of it reaches what is rare.

    `reached` has what the `seeds` of each theme have reached so far. A pair is worth the less the more often it came
    about in all; a theme is worth what one seed of it reaches. Each gets a tenth of an equal share at least.
    """
    totals: Counter[Pair] = Counter()
    for pairs in reached.values():
        totals.update(pairs)
    worth = {
        theme: sum(count / totals[pair] for pair, count in pairs.items()) / max(1, seeds[theme])
        for theme, pairs in reached.items()
    }
    whole, least = sum(worth.values()) or 1.0, 0.1 / len(worth)
    return {theme: least + (1.0 - 0.1) * value / whole for theme, value in worth.items()}
