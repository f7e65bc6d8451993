"""The rules of the voters, of reads and of what tools ask: one scene, and a judge for each conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.testing.rules.changing import ChangeRules
from kraftlib.testing.rules.describing import DescribeRules
from kraftlib.testing.rules.foreign import ForeignRules
from kraftlib.testing.rules.in_force import InForceRules
from kraftlib.testing.rules.joining import JoinRules
from kraftlib.testing.rules.read_barriers import ReadRules
from kraftlib.testing.rules.rule_set import RuleSet
from kraftlib.testing.rules.scene import Scene


class Judge(Protocol):
    """Looks at one conversation. Raises: BrokenRuleError."""

    def __init__(self, scene: Scene) -> None: ...

    def began(self) -> None:
        """The life has begun."""

    def hearing(self, event: Any) -> None:
        """The core is about to handle an event."""

    def handled(self, event: Any) -> None:
        """It has handled it."""


JUDGES: Final[tuple[type[Judge], ...]] = (
    InForceRules, ChangeRules, ReadRules, JoinRules, DescribeRules, ForeignRules,
)  # fmt: skip


class MembershipRules(RuleSet):
    """Hands each event to the scene first, and then to every judge."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self.scene = Scene(core)
        self._judges = [judge(self.scene) for judge in JUDGES]

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """As `RuleSet.started`."""
        self.scene.began(actions, now_ms)
        for judge in self._judges:
            judge.began()

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """As `RuleSet.hearing`."""
        self.scene.hear(event, now_ms)
        for judge in self._judges:
            judge.hearing(event)

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """As `RuleSet.handled`."""
        self.scene.see(event, actions)
        for judge in self._judges:
            judge.handled(event)
        self.scene.over(event)
