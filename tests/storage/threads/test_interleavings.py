"""The threads of a replica in the same log, one line after the other, in many orders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from kraftlib.errors import StorageError
from tests.storage.threads.exploring import LONG, SHORT, explore, run
from tests.storage.threads.interleaver import with_cooperative_locks
from tests.storage.threads.meetings import MEETINGS, Meeting
from tests.storage.threads.planted import RACES, Race

SEED = int(os.environ.get("KRAFTLIB_SEED", "1"))
EFFORT = LONG if os.environ.get("KRAFTLIB_INTERLEAVINGS") == "all" else SHORT


@pytest.fixture
def quickly_changing_threads() -> Iterator[None]:
    """Python lets another thread run every microsecond, and not every five milliseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("meeting", MEETINGS, ids=str)
def test_two_threads_may_meet_anywhere(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is left at one of its lines while the other runs to its end; and both change over by chance."""
    with_cooperative_locks(monkeypatch)

    assert explore(meeting, EFFORT, SEED) > 0


@pytest.mark.parametrize("meeting", MEETINGS, ids=str)
def test_two_threads_may_really_meet(meeting: Meeting, quickly_changing_threads: None) -> None:
    """Not one after the other, but as Python has it: lines are not the smallest things between which they change."""
    run(meeting, None, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_bugs_of_two_threads_are_found(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the real one had, planted back."""
    with_cooperative_locks(monkeypatch)
    race.plant(monkeypatch)

    with pytest.raises((StorageError, OSError, IndexError, AssertionError)) as caught:
        explore(race.meeting, LONG, SEED)
    assert "seed" in caught.value.__notes__[0]
