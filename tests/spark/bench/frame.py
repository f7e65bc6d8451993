"""What a figure is, and how figures are shown and checked."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import attrs

COMPARED: Final = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


@attrs.frozen(kw_only=True)
class Figure:
    """One number, and what it should be."""

    name: str
    value: float
    unit: str
    goal: str = ""
    """As `>= 6`; empty for what is only shown."""
    beside: str = ""
    """The limit of the same run, in words."""

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached; always, if there is none."""
        if not self.goal:
            return True
        sign, _, number = self.goal.partition(" ")
        return bool(COMPARED[sign](self.value, float(number)))


class Context:
    """What benchmarks share: a place for data, its size, and a session that is made when first needed."""

    def __init__(self, directory: Path, *, megabytes: int, rounds: int, box_s: float = 150.0) -> None:
        self.directory = directory
        self.megabytes = megabytes
        self.rounds = rounds
        self._box_s = box_s
        self.begin()

    def begin(self) -> None:
        """Begin another benchmark, with a box of time of its own."""
        self._until = time.monotonic() + self._box_s

    @cached_property
    def spark(self) -> Any:
        """A session as `kraftlib.spark.session` makes it, on all processors."""
        from kraftlib.spark import session

        made = session(app_name="kraftlib-bench")
        made.sparkContext.setLogLevel("ERROR")
        return made

    def stop(self) -> None:
        """Stop the session, if there is one."""
        if "spark" in self.__dict__:
            self.spark.stop()
            del self.spark

    def best(
        self,
        *runs: Callable[[], object],
        rounds: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> list[float]:
        """Run each in turn, several times, and return the best seconds of each, by this clock.

        The first round warms up, and one is measured in any case; no other begins when the box of time is over.
        """
        seconds: list[list[float]] = [[] for _ in runs]
        for number in range((rounds or self.rounds) + 1):
            if number > 1 and time.monotonic() > self._until:
                break
            for run, times in zip(runs, seconds, strict=True):
                began = clock()
                run()
                if number:
                    times.append(clock() - began)
        return [min(times) for times in seconds]


def show(figures: Sequence[Figure]) -> None:
    """Print figures as a table."""
    rows = [("figure", "value", "goal", "", "beside it, in the same run")]
    for figure in figures:
        mark = "" if not figure.goal else "ok" if figure.is_met else "MISSED"
        rows.append((figure.name, f"{figure.value:.2f} {figure.unit}".rstrip(), figure.goal, mark, figure.beside))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)
