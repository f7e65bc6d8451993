"""Quotas of controller mutations: partitions that a client may create and delete in a second (KIP-599).

A quota has a bucket of tokens, one for each partition, which holds what eleven seconds bring (Kafka's
`controller.quota.window.num`). A request may overdraw it; the next one is refused until the bucket has tokens again.
Clients of versions from before KIP-599 do not know of such a refusal: they are only told how long to wait. Buckets are
in memory of the active controller only.

The quota of a client is the first that there is, of: user and client id, user and default client id, user, default user
and client id, both defaults, default user, client id, default client id. One of a client id has a bucket for each
client, one of a user alone is shared by all its clients.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode

MUTATIONS: Final = "controller_mutation_rate"
WINDOW_S: Final = 11
"""The seconds that fill a bucket."""

LOOKS: Final = 4
"""The number of buckets that each request looks at."""

THROTTLE_MS_MAX: Final = 2**31 - 1
"""The largest time to wait that an answer can state."""

USER, CLIENT_ID = "user", "client-id"
Part = tuple[str, str, bool]
"""Type and name of a part of an entity, and whether it is the default."""

Entity = tuple[Part, ...]
Client = tuple[str, str]
"""User and client id; one of them is empty where it does not count."""


@attrs.define
class _Bucket:
    tokens: float
    filled_ms: int

    def refill(self, rate: float, now_ms: int) -> None:
        """Add what has come since the last time."""
        self.tokens = min(rate * WINDOW_S, self.tokens + rate * (now_ms - self.filled_ms) / 1_000)
        self.filled_ms = now_ms


@attrs.define
class Account:
    """The quota of one request, and the time that its sender should wait."""

    rate: float | None
    """Partitions a second; None: there is no quota."""
    is_strict: bool
    now_ms: int
    _bucket: _Bucket | None = None
    throttle_time_ms: int = 0

    def take(self, partitions: int) -> None:
        """Charge the quota. Raises: RefusedError with THROTTLING_QUOTA_EXCEEDED, if it was overdrawn before."""
        if self.rate is None or self._bucket is None:
            return
        self._bucket.refill(self.rate, self.now_ms)
        if self.is_strict and self._bucket.tokens < 0:
            self._wait(self._bucket.tokens, self.rate)
            raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.tokens -= partitions
        if not self.is_strict and self._bucket.tokens < 0:
            self._wait(self._bucket.tokens, self.rate)

    def _wait(self, tokens: float, rate: float) -> None:
        self.throttle_time_ms = round(min(-tokens / rate * 1_000, THROTTLE_MS_MAX))


class MutationQuotas:
    """The buckets. One that is full again is as good as a new one, and is forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Client, tuple[float, _Bucket]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def clear(self) -> None:
        """Forget all."""
        self._buckets.clear()

    def account(
        self, rates: Mapping[Entity, float], *, user: str, client_id: str, is_strict: bool, now_ms: int
    ) -> Account:
        """Return the account of a request of this user and client id."""
        found = _quota_of(rates, user, client_id) if rates else None
        if found is None:
            self._buckets.pop((user, client_id), None)  # a request without a quota fills it, as in Kafka
            return Account(None, is_strict, now_ms)
        rate, key = found
        _, bucket = self._buckets.get(key) or (rate, _Bucket(rate * WINDOW_S, now_ms))
        self._buckets[key] = rate, bucket
        self._buckets.move_to_end(key)
        self._forget(now_ms)
        return Account(rate, is_strict, now_ms, bucket)

    def _forget(self, now_ms: int) -> None:
        """Look at the few buckets that were looked at least recently, and forget those that are full.

        Each request adds one at most, so their number shrinks again, and an overdrawn one keeps no other.
        """
        for _ in range(min(LOOKS, len(self._buckets) - 1)):
            key, (rate, bucket) = next(iter(self._buckets.items()))
            bucket.refill(rate, now_ms)
            if bucket.tokens == rate * WINDOW_S:
                del self._buckets[key]
            else:
                self._buckets.move_to_end(key)


def _quota_of(rates: Mapping[Entity, float], user: str, client_id: str) -> tuple[float, Client] | None:
    found = next(((rates[entity], key) for entity, key in _candidates(user, client_id) if entity in rates), None)
    return None if found is None or math.isnan(found[0]) else found  # as in Kafka, NaN limits nothing


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Client]]:
    """Yield entities in their order, with what names the bucket."""
    clients: tuple[Part, Part] = (CLIENT_ID, client_id, False), (CLIENT_ID, "", True)
    for one in ((USER, user, False), (USER, "", True)):
        for client in clients:
            yield (client, one), (user, client_id)
        yield (one,), (user, "")
    for client in clients:
        yield (client,), ("", client_id)
