"""When a replica must wake for what it owes (KIP-595), what chance decides, and when a graceful end is complete."""

from __future__ import annotations

import copy
import random as chance
from collections.abc import Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus.roles import Role
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import ReplicaId
from tools.rules.election_answers import stands_at_ms
from tools.rules.election_life import Life
from tools.rules.election_parts import HALVINGS_MAX, Asking, Following, Leading, Resigned, Unattached
from tools.rules.hand_over import next_due_ms
from tools.rules.leading import stalled_until_ms

UNREACHED_TIMES = 3
"""A voter that could not be reached so often in a row will not lead in place of one that leaves."""


def judge_wake(life: Life) -> None:
    """RV14: a replica wakes in time for all that it owes."""
    part = life.part
    due = _due_of_leader(life, part) if isinstance(part, Leading) else _due_of_others(life)
    due += [sent.at_ms + life.config.request_timeout_ms for sent in life.sent.values()]
    pauses = (life.pauses.get(destination) for destination in _to_ask(life))
    due += [pause.high for pause in pauses if pause is not None and pause.low > life.now_ms]
    if not due:
        return
    wakes_ms = life.core.deadline_ms()
    if wakes_ms is None or wakes_ms > max(min(due), life.now_ms):
        text = f"{life.state.id_text} wakes at {wakes_ms}, and must at {min(due)}; it is {life.now_ms}"
        raise BrokenRuleError("RV14", f"{text}, and it is {part}")


def _due_of_leader(life: Life, part: Leading) -> list[int]:
    due = [part.begin_due_ms]
    is_needed = len(life.voters.voters) > 1
    if is_needed or not life.is_voter:
        due.append(part.quorum_until_ms)
    if part.transfer is not None:
        due.append(part.transfer[1])
    else:
        due += next_due_ms(life, part)
    if is_needed and life.flush_waits_since_ms is not None:
        due.append(life.flush_waits_since_ms + life.config.fetch_timeout_ms)
    stalled_ms = stalled_until_ms(life, part)
    return due if stalled_ms is None else [*due, stalled_ms]


def _due_of_others(life: Life) -> list[int]:
    part = life.part
    if life.shutdown_ms is not None or isinstance(part, Leading):
        return []
    if isinstance(part, Asking) and part.role is Role.PROSPECTIVE and part.won:
        return [stands_at_ms(life, part)]
    if isinstance(part, Following):
        is_writing = getattr(life.state.role_state, "writing_chunk", False)
        return [part.timer.high + life.waits_longer_ms] if life.may_stand and not is_writing else []
    if part.timer is None:
        return []
    return [part.timer.high + (life.waits_longer_ms if isinstance(part, Unattached) else 0)]


def _to_ask(life: Life) -> set[ReplicaId]:
    """Return whom it is to ask for votes, or to tell that it leaves, when their pause is over."""
    part = life.part
    if isinstance(part, Asking):
        return set() if part.lost else set(part.electors.ids) - part.granted - part.rejected
    return set(part.unacknowledged) if isinstance(part, Resigned) else set()


class Draws(chance.Random):
    """The chance of a replica, which remembers among how many possibilities it has chosen."""

    def __init__(self, source: chance.Random) -> None:
        super().__init__(0)
        self.source = source
        self.widths: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Draws:
        """Return one that goes on as this one would."""
        memo[id(self)] = twin = Draws(copy.deepcopy(self.source, memo))
        twin.widths = list(self.widths)
        return twin

    def random(self) -> float:
        """As of the source."""
        return self.source.random()

    def getrandbits(self, k: int, /) -> int:
        """As of the source."""
        return self.source.getrandbits(k)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """As of the source."""
        self.widths.append(start)
        return super().randrange(start)


REST_DOUBLINGS: Final = 5
"""The most times that the rest of an upstream is doubled."""


def judge_draws(life: Life, widths: list[int], setbacks: int) -> None:
    """RV17: chance decides only what it must, among as many possibilities as it must.

    The length of a timer says little of that: one of a shorter range is within the longer one. `setbacks` are those of
    before the step.
    """
    config = life.config
    # The leader may be none of the voters.
    servers = max(len(config.bootstrap_servers), len(life.voters.voters) + 1, len(config.upstreams))
    allowed = {config.retry_backoff_ms, config.leader_loss_stagger_ms // 4 + 1, *range(1, servers + 1)}
    for count in range(min(setbacks, life.setbacks), max(setbacks, life.setbacks) + 1):
        eagerness = config.election_priority >> min(count, HALVINGS_MAX)
        allowed.add(config.election_timeout_ms * (200 - eagerness) // 200)
    if config.upstreams:
        allowed |= {config.fetch_timeout_ms << doublings for doublings in range(REST_DOUBLINGS + 1)}
    if not allowed.issuperset(widths):
        text = f"{life.state.id_text} lets chance decide among {widths} possibilities, and may among {sorted(allowed)}"
        raise BrokenRuleError("RV17", text)


def judge_end(life: Life, actions: Sequence[act.Action]) -> None:
    """RV16: a graceful end is complete as soon as another replica leads, no other could, or its time is up."""
    part = life.part
    is_due = (
        life.shutdown_ms is not None
        and not life.is_over
        and (
            not life.is_voter
            or all(life.failures.get(voter.key.id, 0) >= UNREACHED_TIMES for voter in life.remote_voters)
            or isinstance(part, Following)
            or life.now_ms >= life.shutdown_ms
        )
    )
    said = sum(1 for action in actions if type(action) is act.ShutdownComplete)
    if said != is_due:
        text = (
            f"{life.state.id_text} says {said} times at {life.now_ms} that it has ended, and must {int(is_due)} times"
        )
        raise BrokenRuleError(
            "RV16", f"{text}; its time is up at {life.shutdown_ms}, in vain asked {life.failures}; {part}"
        )
    life.is_over = life.is_over or is_due
