"""Meetings of two threads, tried at each line and by chance."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.storage.threads.interleaver import AtOnce, AtRandom, Interleaver, Once, Place, Schedule
from tests.storage.threads.meetings import Meeting

IN_MEMORY: Final = Path("/dev/shm")


@attrs.frozen
class Effort:
    """How much is tried of each meeting, either thread first."""

    lines: int | None
    """At how many lines the first thread is left; None: at each."""
    at_random: int
    """How many runs change over by chance."""


SHORT: Final = Effort(lines=3, at_random=1)
"""For the tests; `dev.py storage` tries ten times as much of each meeting."""
LONG: Final = Effort(lines=None, at_random=40)


def explore(meeting: Meeting, effort: Effort, seed: int) -> int:
    """Run a meeting in many ways; return in how many. Raises: whatever went wrong, with how to see it again."""
    count = 0
    for schedule in schedules(meeting, effort, seed):
        run(meeting, schedule, seed)
        count += 1
    return count


def schedules(meeting: Meeting, effort: Effort, seed: int) -> Iterator[Schedule]:
    """Yield the ways in which a meeting is tried."""
    chance = random.Random(f"{meeting} {seed}")
    for first in (0, 1):
        places = _first_visits(run(meeting, Once(first, -1), seed)[first])
        wanted = len(places) if effort.lines is None else min(effort.lines, len(places))
        for number in sorted(chance.sample(places, wanted)):
            yield Once(first, number)
        for _ in range(effort.at_random):
            yield AtRandom(first, chance.randrange(1 << 30))


def _first_visits(lines: list[Place]) -> list[int]:
    """Return where each line is come by first, and where last: what happens in a loop happens there."""
    first: dict[Place, int] = {}
    last: dict[Place, int] = {}
    for number, place in enumerate(lines):
        first.setdefault(place, number)
        last[place] = number
    return sorted({*first.values(), *last.values()})


def run(meeting: Meeting, schedule: Schedule | None, seed: int) -> tuple[list[Place], list[Place]]:
    """Let the two meet once, and check what is left; return the lines that each has come by.

    Without a schedule, they really run at the same time.
    """
    where = IN_MEMORY if IN_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="kraftlib-meeting-", dir=where))
    interleaver = Interleaver(schedule) if schedule is not None else AtOnce()
    try:
        scene = meeting.scene(directory)
        interleaver.run([lambda: meeting.one(scene), lambda: meeting.other(scene)])
        scene.check()
    except BaseException as error:
        left = ""
        if isinstance(schedule, Once):
            lines, number = interleaver.lines[schedule.first], schedule.number
            left = f", left before {lines[number]}" if 0 <= number < len(lines) else ""
        error.add_note(f"seed {seed}, {meeting}, {schedule}{left}")
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return interleaver.lines
