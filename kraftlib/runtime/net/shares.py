"""Bounds the processor time for which peers without a role keep the event loop busy with requests to the application.

Each of them has a share of the time, and may save up some of it. A peer that may ask much has no such bound
(`kraftlib.runtime.net.judge.Judge.may_ask_much`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

SHARE: Final = 0.05
"""The part of the time that one peer may take in the long run."""

AT_ONCE_S: Final = 0.25
"""Seconds of work of a peer that was quiet before."""

_REMEMBERED: Final = 512


class Shares:
    """The work of peers, in seconds of a processor, which come back as the time of `clock` passes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._whole_at: dict[Hashable, float] = {}
        """When a peer will have its whole share again."""

    def is_used_up(self, who: Hashable) -> bool:
        """Whether a peer has taken more than its share."""
        return (self._whole_at.get(who, 0.0) - self._clock()) * SHARE > AT_ONCE_S

    def spent(self, who: Hashable, seconds: float) -> None:
        """Count work for a peer."""
        now = self._clock()
        if len(self._whole_at) >= _REMEMBERED:
            self._whole_at = {other: at for other, at in self._whole_at.items() if at > now}
        self._whole_at[who] = max(self._whole_at.get(who, now), now) + seconds / SHARE
