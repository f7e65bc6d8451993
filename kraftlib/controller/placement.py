"""Which brokers get the replicas of a new partition: spread over racks, then over brokers (KIP-36, KIP-631).

Brokers are taken in turn, as in Kafka's StripedReplicaPlacer: each partition begins one broker further than the one
before, its replicas go to as many racks as there are, and active brokers come before fenced ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain, zip_longest

from kraftlib.controller.cluster import Cluster
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode


def place(
    cluster: Cluster, *, partitions: int, replication_factor: int, random: random.Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each of so many partitions, the preferred leader first.

    Raises: RefusedError with INVALID_REPLICATION_FACTOR, if there are too few brokers, or no active one.
    """
    usable = {number: broker for number, broker in cluster.brokers.items() if not broker.in_controlled_shutdown}
    active = [number for number in usable if not usable[number].fenced]
    if replication_factor > len(usable):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered.",
        )
    if not active:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced.",
        )
    fenced = [number for number in usable if usable[number].fenced]
    start = random.randrange(len(active))
    order = [
        (_striped(_by_rack(cluster, active), start + number), _striped(_by_rack(cluster, fenced), start + number))
        for number in range(min(partitions, len(active) * max(1, len(fenced))))
    ]
    placed = []
    for number in range(partitions):
        first, rest = order[number % len(order)]
        placed.append(_spread(cluster, [*first, *rest], replication_factor))
    return placed


def _by_rack(cluster: Cluster, brokers: Sequence[int]) -> list[list[int]]:
    racks: dict[str, list[int]] = {}
    for number in sorted(brokers):
        racks.setdefault(cluster.brokers[number].rack or "", []).append(number)
    return [racks[rack] for rack in sorted(racks)]


def _striped(racks: Sequence[Sequence[int]], start: int) -> list[int]:
    """Return all brokers, one rack after the other in turn, beginning at `start`."""
    rows = zip_longest(*racks)
    order = [number for number in chain.from_iterable(rows) if number is not None]
    turn = start % len(order) if order else 0
    return order[turn:] + order[:turn]


def _spread(cluster: Cluster, order: Sequence[int], count: int) -> tuple[int, ...]:
    """Return `count` of these brokers: first one of each rack, then any."""
    chosen: list[int] = []
    racks: set[str] = set()
    for number in order:
        rack = cluster.brokers[number].rack or ""
        if rack not in racks and len(chosen) < count:
            racks.add(rack)
            chosen.append(number)
        if len(racks) == count:
            break
    chosen += [number for number in order if number not in chosen][: count - len(chosen)]
    return tuple(chosen)
