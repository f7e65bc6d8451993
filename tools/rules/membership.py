"""The rules of the voters, of reads, of what tools ask, and of compared states: one scene, a judge for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from tools.rules.changing import ChangeRules
from tools.rules.describing import DescribeRules
from tools.rules.foreign import ForeignRules
from tools.rules.in_force import InForceRules
from tools.rules.joining import JoinRules
from tools.rules.read_barriers import ReadRules
from tools.rules.refusals import ListenerRules, RefusalRules
from tools.rules.rule_set import RuleSet, kind_of
from tools.rules.scene import Scene
from tools.rules.state_digests import StateDigestRules
from tools.rules.verdict import SceneRules

JUDGES: Final[tuple[type[SceneRules], ...]] = (
    InForceRules, ChangeRules, ReadRules, JoinRules, DescribeRules, ForeignRules, StateDigestRules,
    RefusalRules, ListenerRules,
)  # fmt: skip

Listeners = tuple[Sequence[Callable[[Any], None]], Sequence[Callable[[Any], None]]]
"""A function that is called before and after a step."""


class MembershipRules(RuleSet):
    """Hands each event to the scene first, and then to every judge that it concerns."""

    def __init__(self, core: Replica) -> None:
        super().__init__(core)
        self.scene = Scene(core)
        self._judges = [judge(self.scene) for judge in JUDGES]
        self._listeners: dict[type, Listeners] = {}

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """As `RuleSet.started`."""
        self.scene.began(actions, now_ms)
        for judge in self._judges:
            judge.began()

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """As `RuleSet.hearing`."""
        self.scene.hear(event, now_ms)
        kind = kind_of(event)
        hears, _ = self._listeners.get(kind) or self._listeners_of(kind)
        for hearing in hears:
            hearing(event)

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """As `RuleSet.handled`."""
        self.scene.see(event, actions)
        kind = kind_of(event)
        _, sees = self._listeners.get(kind) or self._listeners_of(kind)
        for handled in sees:
            handled(event)
        self.scene.over(event)

    def _listeners_of(self, kind: type) -> Listeners:
        hears = [judge.hearing for judge in self._judges if kind in judge.HEARS]
        sees = [judge.handled for judge in self._judges if judge.SEES is None or kind in judge.SEES]
        listeners = self._listeners[kind] = hears, sees
        return listeners
