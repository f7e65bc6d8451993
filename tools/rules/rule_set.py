"""The base of all rule sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica


def kind_of(event: ev.Event) -> type:
    """Return by what rule sets tell events apart: by their type, and requests by the type of the request."""
    kind = type(event)
    return type(event.request) if kind is ev.RequestReceived else kind  # type: ignore[union-attr]


class RuleSet:
    """The rules of one conversation, for one life of a replica.

    It knows the log and election that the life began with, the events and the actions; it may read from `core` what
    other rule sets judge. Raises: BrokenRuleError, from any of its methods.
    """

    HEARS: ClassVar[frozenset[type] | None] = None
    """Of which events, and which requests, it wants to know before the core handles them; None: of all."""
    SEES: ClassVar[frozenset[type] | None] = None
    """Of which it wants to know afterwards."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.state = core.state

    def started(self, actions: Sequence[act.Action], now_ms: int) -> None:
        """The life begins with these actions."""

    def hearing(self, event: ev.Event, now_ms: int) -> None:
        """The core is about to handle an event."""

    def handled(self, event: ev.Event, actions: Sequence[act.Action], now_ms: int) -> None:
        """The core has handled the event, and asks for these actions."""
