"""Rules on the network for particular messages: drops, delays, repeats or rewrites them.

rule = meddling.repeat(FetchResponse, after_ms=300, where=diverges)
...
rule.count        how many he had a hand in
rule.stop()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.network import SimulatedNetwork
from kraftlib.types import ReplicaId

Message = Any
Arrivals = Sequence[tuple[int, Message]]
Kind = type | tuple[type, ...]


def anything(message: Message) -> bool:
    """Every message."""
    return True


@attrs.define(kw_only=True)
class Rule:
    """A rule for messages of one kind: it says what happens to them, between which replicas, and how often."""

    kind: Kind
    do: Callable[[Message], Arrivals]
    where: Callable[[Message], bool] = anything
    source: ReplicaId | None = None
    target: ReplicaId | None = None
    times: int | None = None
    """The largest number of times; None: always."""
    count: int = 0
    """The number of times so far."""
    stopped: bool = False

    def stop(self) -> None:
        """Do it no more."""
        self.stopped = True

    def concerns(self, source: ReplicaId, target: ReplicaId, message: Message) -> bool:
        """Whether this rule has a hand in a message."""
        return (
            not self.stopped
            and isinstance(message, self.kind)
            and self.source in (None, source)
            and self.target in (None, target)
            and (self.times is None or self.count < self.times)
            and self.where(message)
        )


class Meddling:
    """All rules of one world. The first that concerns a message decides."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.rules: list[Rule] = []
        network.meddler = self

    def __call__(self, source: ReplicaId, target: ReplicaId, message: Message) -> Arrivals | None:
        """As `kraftlib.testing.network.Meddler`."""
        for rule in self.rules:
            if rule.concerns(source, target, message):
                rule.count += 1
                return rule.do(message)
        return None

    def stop(self) -> None:
        """Stop all rules."""
        for rule in self.rules:
            rule.stop()

    def drop(self, kind: Kind, **rule: Any) -> Rule:
        """Lose messages."""
        return self._add(kind, lambda message: (), **rule)

    def delay(self, kind: Kind, ms: int, **rule: Any) -> Rule:
        """Deliver messages so much later; messages behind them overtake them."""
        return self._add(kind, lambda message: ((ms * MILLISECOND, message),), **rule)

    def repeat(self, kind: Kind, *, after_ms: Iterable[int] = (0,), **rule: Any) -> Rule:
        """Deliver messages, and once more after each of these times."""
        late = [ms * MILLISECOND for ms in after_ms]
        return self._add(kind, lambda message: ((0, message), *((us, message) for us in late)), **rule)

    def alter(self, kind: Kind, change: Callable[[Message], Message], **rule: Any) -> Rule:
        """Deliver something else."""
        return self._add(kind, lambda message: ((0, change(message)),), **rule)

    def _add(self, kind: Kind, do: Callable[[Message], Arrivals], **rule: Any) -> Rule:
        made = Rule(kind=kind, do=do, **rule)
        self.rules.append(made)
        return made
