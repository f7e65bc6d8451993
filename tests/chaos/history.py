"""What the clients of a chaos run asked for and were told, in the form that both judges read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.testing.linearizability import Call, Model


@attrs.frozen(kw_only=True)
class Operation:
    """One call on one register. Times are nanoseconds of the monotonic clock of the run.

    `kind` is "put" (`value`), "cas" (`old`, `value`; `output` says whether it was done) or "read" (`output` is what was
    read). `ended` is None where the outcome is unknown: it took effect at any time since `began`, or never. A call that
    was refused is not in the history, so that its effect, if it has one, cannot be explained.
    """

    client: int
    key: str
    kind: str
    value: str | None = None
    old: str | None = None
    output: str | bool | None = None
    began: int
    ended: int | None = None


def to_call(operation: Operation) -> Call:
    """Return the operation as our checker reads it."""
    match operation.kind:
        case "put":
            action, result = ("put", operation.value), True
        case "cas":
            action, result = ("cas", operation.old, operation.value), operation.output
        case _:
            action, result = ("read",), operation.output
    return Call(
        action=action, result=result, began=operation.began, ended=operation.ended, caller=f"client {operation.client}"
    )


def step(value: str | None, action: Sequence[Any]) -> tuple[str | None, Any]:
    """Carry out one action on a register; return its new value and the result."""
    match action:
        case ("put", new):
            return new, True
        case ("cas", old, new):
            return (new, True) if value == old else (value, False)
        case _:
            return value, value


REGISTER = Model(initial=None, step=step)
