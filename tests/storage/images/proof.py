"""Single-fault images, made and examined: `examine` is what the tests run, short, and `dev.py storage`, long."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from tests.storage.images.damage import Fault, faults
from tests.storage.images.history import History, history
from tests.storage.images.verdict import Examiner, Found, Outcome

HISTORIES = (
    {"closed": False, "compacted": False},
    {"closed": True, "compacted": False},
    {"closed": False, "compacted": True},
    {"closed": True, "compacted": True},
    {"closed": False, "compacted": False, "exact": True},
    {"closed": False, "compacted": True, "exact": True},
)
"""Killed or closed; with all of the log, or with its end behind a snapshot; and with a note that is synced."""

WITHOUT_A_COPY = frozenset({"snapshot", "topic", "meta.properties"})
"""Kinds of which a damaged file is not fetched again by itself: a replica that finds one stops, and says which."""


@attrs.define
class Examined:
    """What came of all images."""

    outcomes: dict[str, Counter[Outcome]] = attrs.Factory(lambda: defaultdict(Counter))
    """By kind of file."""
    wrong: list[str] = attrs.Factory(list)
    halted: list[str] = attrs.Factory(list)
    combinations: set[tuple[str, str, str]] = attrs.Factory(set)
    """Kinds of files, of faults and of bytes that were met."""

    def take(self, past: History, fault: Fault, found: Found) -> None:
        """Count what came of one image."""
        self.outcomes[fault.kind][found.outcome] += 1
        self.combinations.add((fault.kind, fault.what, fault.byte_class))
        line = f"{past.name}, {fault.path}, {fault.what}, {fault.where}: {found.why}"
        if found.outcome is Outcome.WRONG:
            self.wrong.append(line)
        elif found.outcome is Outcome.HALTED:
            self.halted.append(line)

    def add(self, other: Examined) -> None:
        """Count what somebody else has examined."""
        for kind, counts in other.outcomes.items():
            self.outcomes[kind] += counts
        self.wrong += other.wrong
        self.halted += other.halted
        self.combinations |= other.combinations

    @property
    def images(self) -> int:
        """How many there were."""
        return sum(counts.total() for counts in self.outcomes.values())

    def count(self, outcome: Outcome) -> int:
        """Return how many of all came out so."""
        return sum(counts[outcome] for counts in self.outcomes.values())

    def well(self, kinds: Iterable[str]) -> float:
        """Return which part of the images of these kinds was unharmed or repaired itself."""
        counts = sum((self.outcomes[kind] for kind in kinds), Counter[Outcome]())
        return (counts[Outcome.UNHARMED] + counts[Outcome.REPAIRED]) / max(1, counts.total())

    @property
    def repairable(self) -> list[str]:
        """Kinds that the others of a quorum, or other files, can stand in for."""
        return sorted(kind for kind in self.outcomes if kind not in WITHOUT_A_COPY)


def examine(top: Path, count: int, *, seed: int = 0, say: Callable[[str], object] = lambda line: None) -> Examined:
    """Make and examine `count` images in a directory, which should be one in memory."""
    result = Examined()
    for number, lived in enumerate(HISTORIES):
        shutil.rmtree(top / "history", ignore_errors=True)
        past = history(top / "history", **lived)
        _examine(past, top, count // len(HISTORIES), seed + number, result)
        say(f"{past.name}: {result.images} images, {len(result.wrong)} wrong")
    return result


def _examine(past: History, top: Path, count: int, seed: int, result: Examined) -> None:
    with Examiner(top / "examined") as examiner:
        untouched = examiner.examine(past.image, past)
        if untouched.outcome is not Outcome.UNHARMED:
            raise AssertionError(f"{past.name}: nothing was done to it, and it is {untouched}")
        for fault in faults(past, count, seed):
            found = examiner.examine(fault.image, past)
            result.take(past, fault, found)
