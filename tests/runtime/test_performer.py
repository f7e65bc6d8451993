"""Each action of the core has its deed; flushes overlap with everything else."""

from __future__ import annotations

from typing import get_args, get_origin

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from tests.runtime.fakes import Rig
from tests.runtime.test_executor import batch


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.executor.start()
    return rig


def test_every_action_has_its_deed(rig: Rig) -> None:
    assert set(rig.executor._performer.actions) == {get_origin(action) or action for action in get_args(act.Action)}


def test_one_flush_is_in_flight_and_what_arrives_meanwhile_shares_the_next(rig: Rig) -> None:
    for number in range(4):
        rig.core.on(ev.ResponseReceived, act.AppendToLog((batch(number),)), act.FlushLog(0))
    for number in range(4):
        rig.executor.submit(ev.ResponseReceived(number, "records"))
    assert len(rig.disk.jobs) == 1, "the first flush has begun, the others share the second"

    rig.disk.finish()
    assert len(rig.disk.jobs) == 1
    rig.disk.finish()
    assert len(rig.disk.jobs) == 0
    assert rig.trace.count("flush") == 2
    assert [event for event in rig.core.events if isinstance(event, ev.Flushed)] == [ev.Flushed(4, 0), ev.Flushed(4, 0)]


@pytest.mark.parametrize(
    ("sync_note", "expected"), [("auto", [True, False, True]), ("always", [None] * 3), ("never", [None] * 3)]
)
def test_the_log_is_told_before_each_flush_whether_others_could_repair_it(
    sync_note: str, expected: list[bool | None]
) -> None:
    rig = Rig(sync_note=sync_note)
    rig.executor.start()
    found = []
    for offset, needed in enumerate([True, False, True]):
        rig.core.is_indispensable = needed
        rig.core.on(ev.TimeoutReached, act.AppendToLog((batch(offset),)), act.FlushLog(0))
        rig.executor.submit(ev.TimeoutReached())
        found.append(rig.log.sync_note)
        rig.disk.finish()

    assert found == expected


def test_events_go_on_while_a_flush_is_in_flight(rig: Rig) -> None:
    rig.core.on(ev.ResponseReceived, act.AppendToLog((batch(0),)), act.FlushLog(0))
    rig.core.on(ev.RequestReceived, act.SendResponse(1, "hello"))
    rig.executor.submit(ev.ResponseReceived(1, "records"))
    rig.executor.submit(ev.RequestReceived(1, "hello", 0))

    assert rig.trace == ["append [0, 1)", "respond hello to 1"]


def test_a_flush_from_before_a_truncation_carries_the_old_version(rig: Rig) -> None:
    rig.core.on(ev.ResponseReceived, act.AppendToLog((batch(0, 5),)), act.FlushLog(4))
    rig.core.on(ev.ResponseReceived, act.TruncateLog(0))
    rig.core.on(ev.LogTruncated, act.AppendToLog((batch(0, 2),)), act.FlushLog(5))
    rig.executor.submit(ev.ResponseReceived(1, "records"))
    rig.executor.submit(ev.ResponseReceived(2, "diverging"))
    rig.disk.finish()  # the flush: the core hears of it only when the truncation is done
    assert ev.Flushed(5, 4) not in rig.core.events
    rig.disk.finish()
    rig.disk.finish()

    assert rig.core.events[2:] == [ev.LogTruncated(0), ev.Flushed(5, 4), ev.Flushed(2, 5)]
