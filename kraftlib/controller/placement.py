"""Which brokers get the replicas of a new partition: spread over racks, then over brokers (KIP-36, KIP-631).

Brokers are taken in turn, as in Kafka's StripedReplicaPlacer: each partition begins one broker further than the one
before, its replicas go to as many racks as there are, and active brokers come before fenced ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    usable = cluster.takers()
    active = [number for number in usable if not usable[number].fenced]
    if not active:
        raise _refused(
            replication_factor, "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(usable):
        raise _refused(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    fenced = [number for number in usable if usable[number].fenced]
    start = random.randrange(len(active))
    racks = {number: broker.rack or "" for number, broker in usable.items()}
    rack_count = len(set(racks.values()))
    first, last = _striped(racks, active), _striped(racks, fenced)
    return [
        _spread(racks, chain(_from(first, turn), _from(last, turn)), replication_factor, rack_count)
        for turn in range(start, start + partitions)
    ]


def _refused(replication_factor: int, reason: str) -> RefusedError:
    text = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
    return RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _striped(racks: Mapping[int, str], brokers: Iterable[int]) -> list[int]:
    """Return these brokers, one of each rack in turn."""
    of_racks: dict[str, list[int]] = {}
    for number in sorted(brokers):
        of_racks.setdefault(racks[number], []).append(number)
    rows = zip_longest(*(of_racks[rack] for rack in sorted(of_racks)))
    return [number for number in chain.from_iterable(rows) if number is not None]


def _from(order: Sequence[int], turn: int) -> Iterator[int]:
    """Yield all of a circle, beginning at `turn`."""
    return (order[number % len(order)] for number in range(turn, turn + len(order)))


def _spread(racks: Mapping[int, str], order: Iterable[int], count: int, rack_count: int) -> tuple[int, ...]:
    """Return `count` of these brokers: first one of each rack, then any. Only as many as needed are looked at."""
    chosen: list[int] = []
    others: list[int] = []
    seen: set[str] = set()
    for number in order:
        if racks[number] in seen:
            others.append(number)
        else:
            seen.add(racks[number])
            chosen.append(number)
        if len(chosen) == count or (len(seen) == rack_count and len(chosen) + len(others) >= count):
            break
    return (*chosen, *others[: count - len(chosen)])
