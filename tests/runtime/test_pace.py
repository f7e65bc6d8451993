"""Background work rests as long as it works, and ends when it is told to."""

from __future__ import annotations

import pytest

from kraftlib.errors import ClosedError
from kraftlib.runtime.pace import REST_MAX_S, SLICE_NS, Pacer


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000
        self.slept: list[float] = []

    def pacer(self) -> Pacer:
        return Pacer(clock_ns=lambda: self.now_ns, sleep=self.slept.append)


def test_a_slice_of_work_is_followed_by_a_rest_of_its_length() -> None:
    clock = Clock()
    pacer = clock.pacer()
    for worked_ns in (0, SLICE_NS // 2, SLICE_NS // 2, SLICE_NS // 2, 3 * SLICE_NS):
        clock.now_ns += worked_ns
        pacer.step()

    assert clock.slept == [SLICE_NS / 1e9, 3.5 * SLICE_NS / 1e9]


def test_a_rest_is_bounded_and_another_threads_clock_costs_none() -> None:
    clock = Clock()
    pacer = clock.pacer()
    pacer.step()
    clock.now_ns += 10**12
    pacer.step()
    clock.now_ns = 5
    pacer.step()

    assert clock.slept == [REST_MAX_S]


def test_cancelled_work_ends_at_its_next_step() -> None:
    pacer = Clock().pacer()
    pacer.cancel()
    with pytest.raises(ClosedError):
        pacer.step()
