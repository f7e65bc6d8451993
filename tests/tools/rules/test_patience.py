"""The rules of patience raise for a step that comes too early, and only for that."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.events import ConnectionLost, Event, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role, Transfer
from tests.consensus.build import answer_vote, as_leader, flush, follower, leader, log_view, voter_set
from tools.rules import BrokenRuleError
from tools.rules.patience import PatienceRules


class Watched:
    """A core, and the rules that look on."""

    def __init__(self, core: Replica) -> None:
        self.core, self.rules = core, PatienceRules(core)

    def handle(self, event: Event, now_ms: int) -> list[Any]:
        self.rules.hearing(event, now_ms)
        actions = self.core.handle(event, now_ms)
        self.rules.handled(event, actions, now_ms)
        return actions


def refused_again_and_again(*, impatient: bool) -> list[int]:
    """A follower among five whose link to the leader is refused; return when it stands. All others keep the leader."""
    core = follower(log=log_view(1, voters=voter_set(1, 2, 3, 4, 5)), epoch=3)
    watched, times = Watched(core), []
    watched.handle(ConnectionLost(2, refused=False), 0)
    for _ in range(6):
        watched.handle(ConnectionLost(2, refused=True), core.state.now_ms + 1)
        if impatient:
            core.state.role_state.fetch_deadline_ms = core.state.now_ms  # type: ignore[union-attr]
        while core.role is not Role.PROSPECTIVE:
            watched.handle(TimeoutReached(), core.deadline_ms() or 0)
        times.append(core.state.now_ms)
        before = core.state.role_state
        for voter_id in (3, 4, 5):
            answer_vote(core, voter_id, granted=False, pre_vote=True)
        watched.rules.handled(TimeoutReached(), [], core.state.now_ms)
        assert core.state.role_state is not before
    return times


def test_pauses_between_pre_votes_that_grow_are_right() -> None:
    times = refused_again_and_again(impatient=False)

    assert times[-1] - times[-2] > 10 * (times[2] - times[1])


def test_a_voter_that_stands_again_and_again_is_too_early() -> None:
    with pytest.raises(BrokenRuleError, match="RP1"):
        refused_again_and_again(impatient=True)


@pytest.mark.parametrize(("pauses", "is_broken"), [((400, 800), False), ((400, 799), True), ((399,), True)])
def test_a_hand_over_to_the_same_voter_waits_longer_each_time(pauses: tuple[int, ...], is_broken: bool) -> None:
    core = leader(priority_takeover_ms=200)
    flush(core)
    rules, now_ms = PatienceRules(core), core.state.now_ms
    broken = None
    for pause_ms in (0, *pauses):
        now_ms += pause_ms
        as_leader(core).transfer = Transfer(target_id=3, deadline_ms=now_ms + 1)
        try:
            rules.handled(TimeoutReached(), [], now_ms)
        except BrokenRuleError as error:
            broken = error.rule

    assert broken == ("RP2" if is_broken else None)
