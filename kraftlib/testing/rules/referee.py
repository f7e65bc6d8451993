"""Who looks on while a core handles its events: one referee for one life of a replica."""

from __future__ import annotations

from typing import Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.testing.rules.elections import ElectionRules
from kraftlib.testing.rules.fetch_follower import FetchFollowerRules
from kraftlib.testing.rules.fetch_leader import FetchLeaderRules
from kraftlib.testing.rules.log import LogRules
from kraftlib.testing.rules.membership import MembershipRules
from kraftlib.testing.rules.patience import PatienceRules
from kraftlib.testing.rules.rule_set import RuleSet
from kraftlib.testing.rules.snapshots import SnapshotRules

RULE_SETS: Final[tuple[type[RuleSet], ...]] = (
    LogRules, FetchLeaderRules, FetchFollowerRules, SnapshotRules, MembershipRules, PatienceRules, ElectionRules,
)  # fmt: skip


class Referee:
    """Hands events to a core, and lets every rule set look on; none, unless it `judges`. Raises: BrokenRuleError."""

    def __init__(self, core: Replica, *, judges: bool = True) -> None:
        self.core = core
        self._rule_sets = [rule_set(core) for rule_set in RULE_SETS] if judges else []

    def start(self, now_ms: int) -> list[act.Action]:
        """As `Replica.start`."""
        actions = self.core.start(now_ms)
        for rule_set in self._rule_sets:
            rule_set.started(actions, now_ms)
        return actions

    def handle(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        """As `Replica.handle`."""
        for rule_set in self._rule_sets:
            rule_set.hearing(event, now_ms)
        actions = self.core.handle(event, now_ms)
        for rule_set in self._rule_sets:
            rule_set.handled(event, actions, now_ms)
        return actions
