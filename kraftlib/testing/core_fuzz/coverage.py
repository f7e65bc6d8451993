"""What a run of the core has been through: pairs of a situation and of what came of an event in it.

    situation    the role, and whether the election is lost (`?`) or records are missing (`!`)
    event        its kind, or that of the message
    answer       what an answer said, or what a request was answered with

Many runs reach the common pairs; which seeds and profiles reach the rare ones says where to look (`rarity`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.wire.apis import ErrorCode

Situation = tuple[Role, bool, bool]
Pair = str
"""`follower! FetchResponse diverging`."""

ERRORS: Final = {int(code): code.name for code in ErrorCode}


@attrs.define
class Coverage:
    """How often each pair came about."""

    pairs: Counter[tuple[Situation, str, str]] = attrs.field(factory=Counter)

    def count(self, situation: Situation, kind: str, answer: str) -> None:
        """Count one event."""
        self.pairs[situation, kind, answer] += 1

    def named(self) -> dict[Pair, int]:
        """Return the pairs by their names."""
        return {pair_name(*pair): count for pair, count in self.pairs.items()}


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


def rarity(reached: Iterable[Pair], totals: Mapping[Pair, int]) -> float:
    """Return what a run's pairs are worth: a pair that no other run has reached counts one, a common one nothing."""
    return sum(1.0 / max(1, totals.get(pair, 0)) for pair in reached)
