"""Delays the answers to a peer that repeats a failing request, a little more each time.

Kafka's replicas retry without any pause while no leader is known or a pre-vote is denied: up to 3,000 requests
a second from one peer (measured). Each such answer takes a token of its connection; when they are
used up the next answers wait until their tokens have grown back. Answers that help a peer take none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from kraftlib.wire.apis import ErrorCode

ANSWERS_PER_SECOND: Final = 100
"""Failing requests per second on one connection in the long run. A kraftlib replica pauses and sends half as many."""

ANSWERS_AT_ONCE: Final = 100
"""Failing requests before the first answer is delayed. Even an unlucky election needs fewer."""

_REMEMBERED: Final = 512


class HotLoops:
    """Says how long an answer to a failing request is delayed."""

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
    """Whether an answer does not help its receiver: an error, or a vote that is not granted."""
    if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return True
    topics = getattr(response, "topics", None) or getattr(response, "responses", None) or ()
    for topic in topics:
        for partition in getattr(topic, "partitions", ()):
            if getattr(partition, "error_code", ErrorCode.NONE) != ErrorCode.NONE or not getattr(
                partition, "vote_granted", True
            ):
                return True
    return False
