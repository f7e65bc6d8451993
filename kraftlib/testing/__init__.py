"""The simulator and the kits with which logs, transports and state machines are tested.

`simulate`, `Subject` and `InvariantViolation` are what most tests of a state machine need; `World` is for scenarios
written by hand. They are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlib.testing.process import Ending
    from kraftlib.testing.simulation import Report, simulate
    from kraftlib.testing.subject import Subject
    from kraftlib.testing.violation import InvariantViolation
    from kraftlib.testing.world import World

__all__ = ["Ending", "InvariantViolation", "Report", "Subject", "World", "simulate"]


def __getattr__(name: str) -> Any:
    match name:
        case "Ending":
            from kraftlib.testing.process import Ending

            return Ending
        case "InvariantViolation":
            from kraftlib.testing.violation import InvariantViolation

            return InvariantViolation
        case "Report":
            from kraftlib.testing.simulation import Report

            return Report
        case "Subject":
            from kraftlib.testing.subject import Subject

            return Subject
        case "World":
            from kraftlib.testing.world import World

            return World
        case "simulate":
            from kraftlib.testing.simulation import simulate

            return simulate
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
