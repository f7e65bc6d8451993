"""Two machines of a shop, in an old and a new release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kraftlib.machines import Machines, VersionedMachine
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine


class Orders(VersionedMachine):
    """Counts what was ordered. Level 2 has orders of more than one piece, and a shorter snapshot."""

    supports = 2

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last_ms = 0

    def apply(self, record: CommittedRecord) -> Any:
        if record.version > self.supports:
            raise ValueError(f"version {record.version} is not known")
        self.last_ms = record.timestamp_ms
        item = record.value["item"]
        self.counts[item] += record.value["pieces"] if record.version > 1 else 1
        return self.counts[item]

    def snapshot(self) -> Iterable[Any]:
        if self.level == 1:
            return [self.last_ms, *sorted(self.counts.elements())]
        return [self.last_ms, *([item, count] for item, count in sorted(self.counts.items()))]

    def restore(self, values: Iterable[Any]) -> None:
        last_ms, *rows = values
        counts = Counter(rows) if self.level == 1 else Counter(dict(rows))
        self.last_ms, self.counts = last_ms, counts


class OldOrders(Orders):
    """The release before."""

    supports = 1


class Stock(StateMachine):
    """Keeps what was put into it, in order; as bytes."""

    def __init__(self) -> None:
        self.items: list[bytes] = []

    def apply(self, record: CommittedRecord) -> int:
        self.items.append(record.value)
        return len(self.items)

    def snapshot(self) -> Iterable[bytes]:
        return list(self.items)

    def restore(self, values: Iterable[bytes]) -> None:
        self.items = list(values)


def shop(orders: type[Orders] = Orders, **more: StateMachine) -> Machines:
    """Return the machines of one replica."""
    machines: dict[str, StateMachine] = {"orders": orders(), **more}
    return Machines(machines, serde={"orders": JsonSerde()}, added=tuple(more))


def new_shop() -> Machines:
    """Return those of the newest release."""
    return shop(stock=Stock())
