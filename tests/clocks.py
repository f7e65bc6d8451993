"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Shows `now`, in seconds, until a test changes it."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
