"""A state machine that keeps its promises, and many that break one. Other processes import them."""

from __future__ import annotations

import random as chance
import time
from collections.abc import Iterable
from typing import Any, ClassVar

from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.types import LeaderAndEpoch


def word(random: chance.Random, number: int) -> dict[str, Any]:
    """A change of one of a few keys."""
    return {"key": random.choice("abcdefgh"), "add": random.randrange(1, 9)}


class Sums(StateMachine):
    """A sum for each key."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def apply(self, record: CommittedRecord) -> Any:
        key = record.value["key"]
        self.sums[key] = self.sums.get(key, 0) + record.value["add"]
        return self.sums[key]

    def snapshot(self) -> Iterable[Any]:
        return [[key, self.sums[key]] for key in sorted(self.sums)]

    def restore(self, values: Iterable[Any]) -> None:
        self.sums = dict(values)


class AsksTheClock(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        return super().apply(record) + (time.time() > 1.9e9)


class KeepsTheTime(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        self.sums["at"] = time.time_ns()
        return super().apply(record)


class DrawsLots(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        return super().apply(record) + chance.randrange(2)


class HashesStrings(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        return super().apply(record) + hash(record.value["key"]) % 1_000


class WalksASet(Sums):
    def snapshot(self) -> Iterable[Any]:
        return [[key, self.sums[key]] for key in set(self.sums)]


class ChoosesFromASet(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        total = super().apply(record)
        return [total, next(iter({"first", "second", "third", record.value["key"]}))]


class NamesByAddress(Sums):
    def apply(self, record: CommittedRecord) -> Any:
        return [super().apply(record), id(self)]


class SharesItsState(Sums):
    everybody: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        self.sums = self.everybody


class CountsLeaders(Sums):
    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.sums["leaders"] = self.sums.get("leaders", 0) + 1


class FreezesItsOwnState(Sums):
    def freeze(self) -> Iterable[Any]:
        return self.sums.items()


class SnapshotsLazily(Sums):
    def snapshot(self) -> Iterable[Any]:
        return ([key, self.sums[key]] for key in sorted("abcdefgh") if key in self.sums)


class AddsToWhatWasThere(Sums):
    def restore(self, values: Iterable[Any]) -> None:
        self.sums.update(values)


class SumsUpTwice(Sums):
    def restore(self, values: Iterable[Any]) -> None:
        for key, total in values:
            self.sums[key] = self.sums.get(key, 0) + total


class ForgetsAKey(Sums):
    def snapshot(self) -> Iterable[Any]:
        return [[key, self.sums[key]] for key in sorted(self.sums) if key != "h"]


class RoundsItsSnapshot(Sums):
    def snapshot(self) -> Iterable[Any]:
        return [[key, self.sums[key] // 10 * 10] for key in sorted(self.sums)]


class ClearsWhatItHasWritten(Sums):
    def snapshot(self) -> Iterable[Any]:
        values = list(super().snapshot())
        self.sums.pop("a", None)
        return values


class CountsItsSnapshots(Sums):
    taken = 0

    def freeze(self) -> Iterable[Any]:
        self.taken += 1
        return super().freeze()

    def apply(self, record: CommittedRecord) -> Any:
        return super().apply(record) + self.taken


class HidesErrors(Sums):
    def restore(self, values: Iterable[Any]) -> None:
        self.sums = {}
        try:
            for key, total in values:
                self.sums[key] = total
        except Exception:  # noqa: BLE001  that is the bug
            pass


class KeepsHalfOfABrokenSnapshot(Sums):
    def restore(self, values: Iterable[Any]) -> None:
        if not hasattr(self, "half"):
            self.half: list[Any] = []
        for each in values:
            self.half.append(each)
        self.sums = {}
        for key, total in self.half:
            self.sums[key] = self.sums.get(key, 0) + total


class ForgetsWhatItWasTold(Sums):
    """A value decides something that no snapshot has."""

    last = ""

    def apply(self, record: CommittedRecord) -> Any:
        again, self.last = record.value["key"] == self.last, record.value["key"]
        return [super().apply(record), again]


class WritesWhatItCannotRead(Sums):
    def snapshot(self) -> Iterable[Any]:
        return [{key: self.sums[key] for key in sorted(self.sums)}]


class UsesItsValues(Sums):
    """Keeps counters in a module, as a cache would be."""

    seen: ClassVar[list[Any]] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.seen.append(record.value)
        return [super().apply(record), len(self.seen)]


PLANTED: list[type[Sums]] = [
    AsksTheClock, KeepsTheTime, DrawsLots, HashesStrings, WalksASet, ChoosesFromASet, NamesByAddress, SharesItsState,
    CountsLeaders, FreezesItsOwnState, SnapshotsLazily, AddsToWhatWasThere, SumsUpTwice, ForgetsAKey, RoundsItsSnapshot,
    ClearsWhatItHasWritten, CountsItsSnapshots, HidesErrors, KeepsHalfOfABrokenSnapshot, ForgetsWhatItWasTold,
    WritesWhatItCannotRead, UsesItsValues,
]  # fmt: skip
