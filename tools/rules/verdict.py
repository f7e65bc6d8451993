"""A judge of one conversation, and how it says that a rule is broken."""

from __future__ import annotations

from typing import Any, ClassVar

from kraftlib.testing.judge import BrokenRuleError
from kraftlib.wire.apis import ErrorCode
from tools.rules.scene import Scene


class SceneRules:
    """Rules of one conversation, of which each says what is wrong with `broken`."""

    HEARS: ClassVar[frozenset[type]] = frozenset()
    """Of which events, and which requests, it wants to know before the core handles them."""
    SEES: ClassVar[frozenset[type] | None] = None
    """Of which it wants to know afterwards; None: of all."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def began(self) -> None:
        """The life has begun."""

    def hearing(self, event: Any) -> None:
        """The core is about to handle an event."""

    def handled(self, event: Any) -> None:
        """It has handled it. Raises: BrokenRuleError."""

    def wakes_by(self, rule: str, due_ms: int, why: str) -> None:
        """A replica wakes by then, if nothing happens before."""
        wakes_ms = self.scene.core.deadline_ms()
        if wakes_ms is None or wakes_ms > max(due_ms, self.scene.now_ms):
            raise self.broken(rule, f"it wakes at {wakes_ms} ms, and {why} at {due_ms} ms")

    def broken(self, rule: str, what: str) -> BrokenRuleError:
        """Return the error that says that a rule is broken."""
        scene = self.scene
        return BrokenRuleError(rule, f"replica {scene.key.id}, epoch {scene.state.epoch}, {scene.now_ms} ms: {what}")


def name_of(code: int) -> str:
    """Return the name of an error."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def error_of(response: Any) -> int:
    """Return the error of an answer that has no partitions."""
    code: int = response.error_code
    return code
