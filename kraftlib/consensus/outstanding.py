"""At most one request is outstanding per destination, and a response is used once (KIP-595, Configurations).

A response counts only if it answers the outstanding request: a late, duplicated or foreign one finds nothing here. A
change of role forgets everything, so that no response to a request of an earlier role is ever used. The question of a
Fetch stands beside it as a `FetchQuestion`: its response counts only while that still is the question.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

import attrs

from kraftlib.codec.declared import Message
from kraftlib.frozen import define, frozen
from kraftlib.types import Endpoint, Epoch, OffsetAndEpoch, ReplicaId

BACKOFF_MAX_MS: Final = 500
"""Longest pause after failures in a row, as Kafka's reconnect backoff."""

FIRST_UPSTREAM: Final = -500_000
"""From here down to the lanes, destinations are upstreams, in the order in which they are configured."""

FIRST_LANE: Final = -1_000_000
"""From here down, destinations are lanes beside the connection between replicas (see `extensions.read_index`)."""

_LANE_SIZE: Final = 2**31
"""The number of replica ids, each of which has a destination in each lane."""


def in_lane(lane: int, replica_id: ReplicaId) -> int:
    """Return the destination of a replica in a lane; lanes are numbered from 0."""
    return FIRST_LANE - lane * _LANE_SIZE - replica_id


def replica_at(destination: int) -> ReplicaId | None:
    """Return the replica that a destination stands for; None for a bootstrap server, whose id is not known."""
    if destination >= 0:
        return destination
    return (FIRST_LANE - destination) % _LANE_SIZE if destination <= FIRST_LANE else None


RequestT = TypeVar("RequestT", bound=Message, covariant=True)


class FetchQuestion(NamedTuple):
    """The question of a Fetch to the leader. Its response counts for exactly this question, and for no other.

    A divergence at another position would cut off records that were acknowledged meanwhile. A named tuple, because one
    is made for each Fetch.
    """

    leader_id: ReplicaId
    epoch: Epoch
    position: OffsetAndEpoch
    log_version: int
    is_anonymous: bool
    fills: bool
    """Whether it asks for missing records, instead of those behind our log."""


@frozen
class Outstanding(Generic[RequestT]):
    """A request on its way."""

    correlation_id: int
    destination: int
    endpoint: Endpoint
    request: RequestT
    sent_ms: int
    read_round: int = 0
    """Of a BeginQuorumEpoch: the newest round of reads that had begun when it was sent."""
    question: FetchQuestion | None = None
    """Of a Fetch to the leader: its question. None for a Fetch that only asks who leads."""


@define(kw_only=True)
class OutstandingRequests:
    """The outstanding requests, and the destinations that are left alone for a while."""

    request_timeout_ms: int
    requests: dict[int, Outstanding[Message]] = attrs.field(factory=dict)
    """Those that wait for an answer, by correlation id, in the order in which they were sent."""
    _next_correlation_id: int = 0
    _awaiting: dict[int, int] = attrs.field(factory=dict)
    _backing_off: dict[int, int] = attrs.field(factory=dict)
    _failures: dict[int, int] = attrs.field(factory=dict)

    def open(
        self,
        destination: int,
        endpoint: Endpoint,
        request: Message,
        now_ms: int,
        *,
        read_round: int = 0,
        question: FetchQuestion | None = None,
    ) -> int:
        """Note a request as sent; return its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self.requests[correlation_id] = Outstanding(
            correlation_id, destination, endpoint, request, now_ms, read_round, question
        )
        self._awaiting[destination] = correlation_id
        return correlation_id

    def take(self, correlation_id: int) -> Outstanding[Message] | None:
        """Return the request that this answers, once; None if none is waiting for it."""
        outstanding = self.requests.pop(correlation_id, None)
        if outstanding is not None and self._awaiting.get(outstanding.destination) == correlation_id:
            del self._awaiting[outstanding.destination]
        return outstanding

    def back_off(self, destination: int, until_ms: int) -> None:
        """Leave the destination alone until then."""
        self._backing_off[destination] = max(until_ms, self._backing_off.get(destination, until_ms))

    def failed(self, destination: int, now_ms: int, backoff_ms: int) -> None:
        """Leave the destination alone for `backoff_ms`, doubled with each failure in a row, half a second at most."""
        failures = self._failures[destination] = min(self._failures.get(destination, 0) + 1, 16)
        self.back_off(destination, now_ms + min(backoff_ms << (failures - 1), max(backoff_ms, BACKOFF_MAX_MS)))

    def failures(self, destination: int) -> int:
        """Return how often the destination has failed in a row."""
        return self._failures.get(destination, 0)

    def succeeded(self, destination: int) -> None:
        """An answer came: a later failure is the first in a row again."""
        self._failures.pop(destination, None)

    def retry_now(self, destination: int) -> None:
        """Ask again at once: only the connection failed, and a new one may be had."""
        self._backing_off.pop(destination, None)

    def is_ready(self, destination: int, now_ms: int) -> bool:
        """Whether a request may be sent there now."""
        if self._backing_off.get(destination, now_ms) > now_ms:
            return False
        return destination not in self._awaiting

    def is_backing_off(self, destination: int, now_ms: int) -> bool:
        """Whether the destination is being left alone."""
        return self._backing_off.get(destination, now_ms) > now_ms

    @property
    def idle(self) -> bool:
        """Whether nothing is outstanding between replicas; questions of readers have lanes of their own."""
        return all(destination <= FIRST_LANE for destination in self._awaiting)

    def expire(self, now_ms: int) -> list[Outstanding[Message]]:
        """Give up requests without an answer in time: their connections are ready again, late answers are ignored."""
        late: list[Outstanding[Message]] = []
        for request in self.requests.values():
            if not request.sent_ms + self.request_timeout_ms <= now_ms:
                break
            late.append(request)
        for request in late:
            self.take(request.correlation_id)
        return late

    def deadline_ms(self, now_ms: int) -> int | None:
        """When the next request expires or the next destination is ready again."""
        times = [until for until in self._backing_off.values() if until > now_ms]
        for request in self.requests.values():
            times.append(request.sent_ms + self.request_timeout_ms)
            break  # the others were sent later
        return min(times, default=None)

    def forget(self) -> None:
        """Forget everything: answers to earlier requests are not heard any more."""
        self.requests.clear()
        self._awaiting.clear()
        self._backing_off.clear()
        self._failures.clear()
