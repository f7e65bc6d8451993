"""Peers that ask in vain, over and over, are answered a little later each time.

Kafka's replicas retry without any pause as long as nobody knows a leader or a pre-vote is denied: up to 3,000 requests
a second from one peer (measured). Each such answer takes a token of its connection; when they are
used up the next answers wait until their tokens have grown back. Answers that bring a peer forward take none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from kraftlib.wire.apis import ErrorCode

ANSWERS_PER_SECOND: Final = 100
"""In vain, to one connection, in the long run. A kraftlib replica pauses by itself and asks half as often."""

ANSWERS_AT_ONCE: Final = 100
"""In vain, before the first one is held: an election, however unlucky, needs fewer."""

_REMEMBERED: Final = 512


class HotLoops:
    """Says how long an answer in vain is to be held."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # When a connection will have all its tokens back, in the time that one token takes to grow.
        self._full_at: dict[Hashable, float] = {}

    def pause_s(self, peer: Hashable) -> float:
        """Take a token of `peer`; return after how many seconds the answer may leave."""
        now = self._clock() * ANSWERS_PER_SECOND
        full_at = max(self._full_at.get(peer, now), now) + 1
        if len(self._full_at) >= _REMEMBERED:
            self._full_at = {other: at for other, at in self._full_at.items() if at > now}
        self._full_at[peer] = full_at
        return max(0.0, full_at - now - ANSWERS_AT_ONCE) / ANSWERS_PER_SECOND


def is_in_vain(response: Any) -> bool:
    """Whether an answer leaves its receiver where it was: an error, or a vote that is not granted."""
    if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return True
    topics = getattr(response, "topics", None) or getattr(response, "responses", None) or ()
    for topic in topics:
        for partition in getattr(topic, "partitions", ()):
            if partition.error_code != ErrorCode.NONE or not getattr(partition, "vote_granted", True):
                return True
    return False
