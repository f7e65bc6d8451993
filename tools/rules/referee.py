"""The referee looks on while a core handles its events: one referee for one life of a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from tools.rules.downstream import DownstreamRules
from tools.rules.elections import ElectionRules
from tools.rules.failures import FailureRules
from tools.rules.fetch_follower import FetchFollowerRules
from tools.rules.fetch_leader import FetchLeaderRules
from tools.rules.log import LogRules
from tools.rules.membership import MembershipRules
from tools.rules.patience import PatienceRules
from tools.rules.rule_set import RuleSet, kind_of
from tools.rules.snapshots import SnapshotRules
from tools.rules.upstreams import UpstreamRules

RULE_SETS: Final[tuple[type[RuleSet], ...]] = (
    LogRules, FetchLeaderRules, FetchFollowerRules, SnapshotRules, MembershipRules, PatienceRules, FailureRules,
    ElectionRules, UpstreamRules, DownstreamRules,
)  # fmt: skip

Listeners = tuple[
    Sequence[Callable[[ev.Event, int], None]], Sequence[Callable[[ev.Event, Sequence[act.Action], int], None]]
]
"""A function that is called before and after a step."""


class Referee:
    """Hands events to a core, and lets every rule set look on. Raises: BrokenRuleError."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self._rule_sets = [rule_set(core) for rule_set in RULE_SETS]
        self._listeners: dict[type, Listeners] = {}

    def start(self, now_ms: int) -> list[act.Action]:
        """As `Replica.start`."""
        actions = self.core.start(now_ms)
        for rule_set in self._rule_sets:
            rule_set.started(actions, now_ms)
        return actions

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        """As `Replica.handle`."""
        kind = kind_of(event)
        hears, sees = self._listeners.get(kind) or self._listeners_of(kind)
        for hearing in hears:
            hearing(event, now_ms)
        actions = self.core.handle(event, now_ms)
        for handled in sees:
            handled(event, actions, now_ms)
        return actions

    def _listeners_of(self, kind: type) -> Listeners:
        hears = [one.hearing for one in self._rule_sets if one.HEARS is None or kind in one.HEARS]
        sees = [one.handled for one in self._rule_sets if one.SEES is None or kind in one.SEES]
        listeners = self._listeners[kind] = hears, sees
        return listeners
