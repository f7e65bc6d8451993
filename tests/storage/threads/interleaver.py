"""Two threads, of which one runs at a time, and which change over between any two lines of storage.

Threads that really run beside each other meet in the one line that matters once in thousands of runs. Here a trace
function stops them at every line of `kraftlib/storage`, and a schedule says which of them goes on: the same schedule is
the same run. The locks of storage are replaced by ones that the schedule knows of: the other thread is never waiting.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any, Final, Protocol

import attrs
import pytest

from kraftlib import storage
from kraftlib.storage import memory, reserve
from kraftlib.storage.log import spare
from kraftlib.storage.snapshots import stored

STORAGE: Final = str(Path(storage.__file__).parent)
OWN: Final = str(Path(__file__).parent / "planted.py")
"""Planted bugs stand here, and are code of storage like any other."""

LINES_MAX: Final = 200_000
"""So many lines, and two threads wait for each other in a circle."""

Trace = Callable[[FrameType, str, Any], Any]


@attrs.frozen
class Place:
    """A line of storage."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line}"


class Schedule(Protocol):
    """Says at which lines the other thread goes on."""

    @property
    def first(self) -> int:
        """The thread that begins: 0 or 1."""
        ...

    def changes_over(self, thread: int, number: int) -> bool:
        """Whether the other one goes on, before this thread's line of this number."""
        ...


@attrs.frozen
class Once:
    """One thread runs up to one of its lines, then the other one to its end, then the first one on."""

    first: int
    number: int

    def changes_over(self, thread: int, number: int) -> bool:
        """See `Schedule`."""
        return thread == self.first and number == self.number


@attrs.define
class AtRandom:
    """They change over at any line, by chance."""

    first: int
    seed: int
    one_in: int = 12
    _random: random.Random = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def changes_over(self, thread: int, number: int) -> bool:
        """See `Schedule`."""
        return self._random.randrange(self.one_in) == 0


class CooperativeLock:
    """A lock whose waiter lets the other thread go on."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            running = Interleaver.running
            if running is None or not running.lets_other_go_on():
                raise AssertionError("a lock is waited for that nobody will release")
        self._held = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False


def with_cooperative_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is made in storage from now on have locks that an interleaver can wait for."""
    for module in (memory, stored):
        monkeypatch.setattr(module, "Lock", CooperativeLock)
    for module in (reserve, spare):
        monkeypatch.setattr(module, "threading", SimpleNamespace(Lock=CooperativeLock))


class Interleaver:
    """Runs two functions by a schedule."""

    running: Interleaver | None = None

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._may_go_on = (threading.Semaphore(0), threading.Semaphore(0))
        self._is_over = [False, False]
        self._current = schedule.first
        self.lines: tuple[list[Place], list[Place]] = ([], [])
        """What each thread came by, in order."""
        self.errors: list[BaseException | None] = [None, None]

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Run both to their ends. Raises: what one of them raised."""
        threads = [
            threading.Thread(target=self._main, args=(number, function), daemon=True)
            for number, function in enumerate(functions)
        ]
        Interleaver.running = self
        try:
            for thread in threads:
                thread.start()
            self._may_go_on[self._current].release()
            for thread in threads:
                thread.join()
        finally:
            Interleaver.running = None
        for error in self.errors:
            if error is not None:
                raise error

    def _main(self, number: int, function: Callable[[], object]) -> None:
        self._may_go_on[number].acquire()
        sys.settrace(self._trace)
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self.errors[number] = error
        finally:
            sys.settrace(None)
            self._is_over[number] = True
            self._pass_on(1 - number)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        path = frame.f_code.co_filename
        return self._line if path.startswith(STORAGE) or path == OWN else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Trace:
        if event == "line":
            number = self._current
            lines = self.lines[number]
            lines.append(Place(frame.f_code.co_filename, frame.f_lineno))
            assert len(lines) < LINES_MAX, f"they go round in circles at {lines[-1]}"
            if self._schedule.changes_over(number, len(lines) - 1):
                self.lets_other_go_on()
        return self._line

    def lets_other_go_on(self) -> bool:
        """Wait until the other thread has come as far as it is to come; False, if it has ended already."""
        number = self._current
        if self._is_over[1 - number]:
            return False
        self._pass_on(1 - number)
        self._may_go_on[number].acquire()
        return True

    def _pass_on(self, number: int) -> None:
        if not self._is_over[number]:
            self._current = number
            self._may_go_on[number].release()


class AtOnce:
    """Runs two functions at the same time, as far as Python does that."""

    def __init__(self) -> None:
        self.lines: tuple[list[Place], list[Place]] = ([], [])
        """Nobody looks."""

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Run both to their ends. Raises: what one of them raised."""
        with ThreadPoolExecutor(len(functions)) as pool:
            for done in [pool.submit(function) for function in functions]:
                done.result()
