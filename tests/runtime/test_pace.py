"""Background work rests as long as it works, longer where others work, and ends when it is told to."""

from __future__ import annotations

import pytest

from kraftlib.errors import ClosedError
from kraftlib.runtime.pace import REST_BUSY, REST_IDLE, REST_MAX_S, SLICE_NS, Pacer


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000
        self.others_ns = 0
        self.wall_ns = 0
        self.slept: list[float] = []

    def pacer(self) -> Pacer:
        return Pacer(
            clock_ns=lambda: self.now_ns,
            process_ns=lambda: self.now_ns + self.others_ns,
            wall_ns=lambda: self.wall_ns,
            sleep=self.slept.append,
        )

    def work(self, ns: int, *, others_ns: int = 0) -> None:
        self.now_ns += ns
        self.others_ns += others_ns
        self.wall_ns += 2 * ns


def test_a_slice_of_work_is_followed_by_a_rest_of_its_length() -> None:
    clock = Clock()
    pacer = clock.pacer()
    for worked_ns in (0, SLICE_NS // 2, SLICE_NS // 2, SLICE_NS // 2, 3 * SLICE_NS):
        clock.work(worked_ns)
        pacer.step()

    assert clock.slept == [REST_IDLE * SLICE_NS / 1e9, REST_IDLE * 3.5 * SLICE_NS / 1e9]


def test_while_others_work_the_rest_is_several_slices_long_and_no_longer_than_they_do() -> None:
    clock = Clock()
    pacer = clock.pacer()
    pacer.step()
    for others_ns in (0, SLICE_NS, SLICE_NS, 0, SLICE_NS // 10):
        clock.work(SLICE_NS, others_ns=others_ns)
        pacer.step()

    rests = [round(slept * 1e9 / SLICE_NS) for slept in clock.slept]
    assert rests == [REST_IDLE, REST_BUSY, REST_BUSY, REST_IDLE, REST_IDLE]


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
