"""The simulator and the kits with which logs, transports and state machines are tested.

`simulate`, `Subject` and `InvariantViolation` are what most tests of a state machine need; `World` is for scenarios
written by hand; `check_history` judges what callers of any service were told. They are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from kraftlib.testing.linearizability import Call, Model, Verdict, check_each, check_history
    from kraftlib.testing.process import Ending
    from kraftlib.testing.simulation import Report, simulate
    from kraftlib.testing.subject import Subject
    from kraftlib.testing.violation import InvariantViolation
    from kraftlib.testing.world import World

__all__ = [
    "Call", "Ending", "InvariantViolation", "Model", "Report", "Subject", "Verdict", "World", "check_each",
    "check_history", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module: ModuleType
    match name:
        case "Call" | "Model" | "Verdict" | "check_each" | "check_history":
            from kraftlib.testing import linearizability as module
        case "Ending":
            from kraftlib.testing import process as module
        case "InvariantViolation":
            from kraftlib.testing import violation as module
        case "Report" | "simulate":
            from kraftlib.testing import simulation as module
        case "Subject":
            from kraftlib.testing import subject as module
        case "World":
            from kraftlib.testing import world as module
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
