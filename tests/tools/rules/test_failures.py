"""The rule of failures in a row raises where a row is too long or short, or a pause is."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.events import Event, Failure, RequestFailed, ResponseReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import ElectionState
from tests.consensus.build import fetch_response, follower, outstanding_to, replica
from tests.simulation.mutation import Edit, Mutant, planted
from tools.rules import BrokenRuleError
from tools.rules.failures import FailureRules

BOOK = "consensus.outstanding.OutstandingRequests"


class Watched:
    """A core that follows replica 2, if it is no other, and the rule that looks on."""

    def __init__(self, core: Replica | None = None) -> None:
        self.core: Replica = core or follower(epoch=3, fetch_timeout_ms=60_000)
        self.rules = FailureRules(self.core)
        self.handle(TimeoutReached(), 1)

    def handle(self, event: Event, now_ms: int) -> list[Any]:
        self.rules.hearing(event, now_ms)
        actions = self.core.handle(event, now_ms)
        self.rules.handled(event, actions, now_ms)
        return actions

    def fetch_again(self) -> int:
        """Let time pass until it fetches again; return the number of its Fetch."""
        while not self.core.state.connections.requests:
            self.handle(TimeoutReached(), self.core.deadline_ms() or 0)
        return int(outstanding_to(self.core, 2).correlation_id)


def fail_and_answer(*, late: bool = False) -> None:
    """Let the leader fail, not be there in time, and answer, and fail once more."""
    watched = Watched()
    if late:
        now_ms = watched.core.state.now_ms + watched.core.state.config.request_timeout_ms
        watched.fetch_again()
        watched.handle(TimeoutReached(), now_ms)
    else:
        watched.handle(RequestFailed(watched.fetch_again(), Failure.DISCONNECTED), watched.core.state.now_ms)
    number = watched.fetch_again()
    watched.handle(ResponseReceived(number, fetch_response(epoch=3, leader_id=2)), watched.core.state.now_ms)
    for _ in range(2):
        watched.handle(RequestFailed(watched.fetch_again(), Failure.DISCONNECTED), watched.core.state.now_ms)


def learn_the_leader() -> Role:
    """Let a replica that knows no leader hear of one."""
    watched = Watched(replica(1, 1, election=ElectionState(epoch=3)))
    (asked,) = watched.core.state.connections.requests.values()
    watched.handle(ResponseReceived(asked.correlation_id, fetch_response(epoch=3, leader_id=2)), 5)
    return watched.core.role


def test_who_tells_the_leader_is_not_left_alone() -> None:
    assert learn_the_leader() is Role.FOLLOWER
    left_alone = Edit(
        "consensus.fetch_follower.handle_fetch_response",
        "if not actions:\n            back_off(state, outstanding)\n        return actions\n    outcome",
        "if True:\n            back_off(state, outstanding)\n        return actions\n    outcome",
    )
    with planted(Mutant("wrong", "it is", (left_alone,))), pytest.raises(BrokenRuleError, match="RP4"):
        learn_the_leader()


@pytest.mark.parametrize("late", [False, True])
def test_failures_and_answers_as_they_are_break_nothing(late: bool) -> None:
    fail_and_answer(late=late)


@pytest.mark.parametrize(
    ("where", "old", "new", "late"),
    [
        (f"{BOOK}.failed", "(failures - 1)", "failures", False),
        (f"{BOOK}.failed", "<< (failures - 1)", "", False),
        (f"{BOOK}.failed", "+ 1, 16)", "+ 2, 16)", False),
        (f"{BOOK}.failed", "now_ms + min(", "now_ms + 2 * min(", True),
        ("consensus.replica._give_up", "back_off(state, outstanding)", "pass", False),
        ("consensus.requests.back_off", "outstanding.destination, state.now_ms", "outstanding.destination, 0", True),
    ],
)
def test_a_wrong_row_or_pause_is_found(where: str, old: str, new: str, late: bool) -> None:
    mutant = Mutant("wrong", "a wrong row or pause", (Edit(where, old, new),))
    with planted(mutant), pytest.raises(BrokenRuleError, match="RP4"):
        fail_and_answer(late=late)
