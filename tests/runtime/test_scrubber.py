from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.runtime.disk import InlineDisk
from kraftlib.runtime.scrubber import FIRST_AFTER_MS, SLICE_BYTES, Scrubber
from kraftlib.storage.damage.scrub import ScrubFinding

DAY_MS = 24 * 3_600 * 1_000


class Rig:
    """A scrubber over a log that yields what it is told, and a clock that is moved by hand."""

    def __init__(self, *items: int | ScrubFinding | Exception, interval_ms: int = DAY_MS) -> None:
        self.now_ms = 0
        self.runs = 0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.damaged: list[int] = []
        self._items = items
        self.scrubber = Scrubber(
            self,
            interval_ms=interval_ms,
            bytes_per_s=10 * SLICE_BYTES,
            background=InlineDisk(),
            clock=lambda: self.now_ms,
            call_later=self._call_later,
            on_damage=self._damage,
            step=lambda: None,
        )

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        self.later.append((delay_s, call))
        return self

    def cancel(self) -> None:
        self.later.clear()

    def _damage(self, offset: int, error: CorruptBatchError) -> None:
        self.damaged.append(offset)

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        self.runs += 1
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item

    def look(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.scrubber.look()

    def go_on(self) -> float:
        delay_s, call = self.later.pop(0)
        call()
        return delay_s


def test_it_begins_when_it_is_due_and_not_before() -> None:
    rig = Rig(1)
    for now_ms in (0, FIRST_AFTER_MS - 1):
        rig.look(now_ms)
    assert rig.runs == 0
    rig.look(FIRST_AFTER_MS)
    assert rig.runs == 1
    rig.look(FIRST_AFTER_MS + DAY_MS - 1)
    assert rig.runs == 1
    rig.look(FIRST_AFTER_MS + DAY_MS)
    assert (rig.runs, rig.scrubber.counts.completed) == (2, 2)


def test_it_pauses_after_each_slice_to_keep_to_its_rate() -> None:
    rig = Rig(*[SLICE_BYTES // 2] * 6)
    rig.look(FIRST_AFTER_MS)

    assert [rig.go_on() for _ in range(3)] == [0.1] * 3
    assert rig.scrubber.counts.completed == 1
    assert rig.scrubber.counts.bytes_read == 3 * SLICE_BYTES


def test_one_that_is_under_way_is_not_begun_again() -> None:
    rig = Rig(SLICE_BYTES, SLICE_BYTES)
    rig.look(FIRST_AFTER_MS)
    rig.look(FIRST_AFTER_MS + 2 * DAY_MS)

    assert rig.runs == 1


def test_damage_of_the_log_is_told_and_that_of_a_snapshot_said() -> None:
    finding = ScrubFinding(path=Path("x.log"), offset=7, reason="rotten")
    snapshot = ScrubFinding(path=Path("x.checkpoint"), offset=None, reason="rotten")
    rig = Rig(1, finding, snapshot)
    rig.look(FIRST_AFTER_MS)

    assert rig.damaged == [7]
    assert rig.scrubber.counts.findings == 2


def test_an_error_ends_this_scrub_and_not_the_next() -> None:
    rig = Rig(StorageError("gone"))
    rig.look(FIRST_AFTER_MS)
    rig.look(FIRST_AFTER_MS + DAY_MS)

    assert (rig.runs, rig.scrubber.counts.completed) == (2, 0)


def test_never_is_never() -> None:
    rig = Rig(1, interval_ms=0)
    rig.look(10 * DAY_MS)

    assert rig.runs == 0


def test_after_the_end_it_does_not_go_on() -> None:
    rig = Rig(SLICE_BYTES, 1)
    rig.look(FIRST_AFTER_MS)
    rig.scrubber.stop()

    assert rig.later == []


def test_after_the_end_no_file_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrub of a large log takes minutes, and a client that is closed may be kept for its status."""
    rig, closed = Rig(), []

    def scrub(step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        try:
            yield from [SLICE_BYTES] * 9
        finally:
            closed.append(True)

    monkeypatch.setattr(rig, "scrub", scrub)
    rig.look(FIRST_AFTER_MS)
    assert not closed
    rig.scrubber.stop()
    assert closed


def test_a_slice_that_ends_after_the_end_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(SLICE_BYTES, SLICE_BYTES, 1)
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(InlineDisk, "run", lambda disk, work, done: jobs.append(lambda: done(work(), None)))
    rig.look(FIRST_AFTER_MS)
    rig.scrubber.stop()
    jobs.pop()()

    assert (jobs, rig.later, rig.scrubber.counts.completed) == ([], [], 0)
