"""Every call that changes a file fails once, in every way: nothing is acknowledged behind it, and nothing is lost."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.directory import open_directory
from tests.storage.crash.faulty import FAULTS, once, sweep
from tests.storage.crash.sites import call_sites
from tests.storage.images.history import config_of, history
from tools.storage_proof.file_trace import FileTrace

FEW = ("EIO", "short", "short, then ENOSPC")
"""The rest is for `dev.py storage`: all stories, lives and damages, each with all faults. CI runs it."""


@pytest.mark.parametrize("protocol", ["append", "vote"])
def test_a_protocol_survives_an_error_at_each_of_its_calls(protocol: str, place: Path) -> None:
    result = sweep(place, stories=[protocol], lives=(), damages=(), faults=FEW)

    assert result.bad == []
    assert result.refused > 10


def test_nothing_else_is_worse_off_after_an_error(place: Path) -> None:
    result = sweep(place, stories=(), lives=["damaged_vote"], damages=(), faults=FEW)

    assert result.bad == []


def test_what_is_done_about_damage_survives_an_error_at_each_of_its_calls(place: Path) -> None:
    result = sweep(place, stories=(), lives=(), damages=["lost_identity"], faults=FEW)

    assert result.bad == []
    assert result.refused > 10


def test_a_start_that_fails_leaves_nothing_open(place: Path) -> None:
    """Whoever starts again and again, until a disk is back, must not run out of descriptors meanwhile."""
    past = history(place / "history", closed=False, compacted=True)
    failed = 0
    for number in itertools.count():
        shutil.rmtree(place / "home", ignore_errors=True)
        past.image.lay_out(place / "home")
        trace = FileTrace(place / "home", image=past.image, before=once(number, FAULTS["EIO"]))
        with trace:
            try:
                open_directory(config_of(place / "home")).close()
            except (StorageError, OSError):
                failed += 1
            assert trace.open_paths == []
        if len(trace.calls) <= number:
            break
    assert failed > 50


@pytest.mark.slow
def test_every_line_that_changes_a_file_is_reached(place: Path) -> None:
    """A new call of `os`, or of a helper that makes one, must come with a story that reaches it."""
    sites = call_sites()
    reached = sweep(place, damages=(), faults=["short"]).reached | sweep(place, stories=(), lives=(), faults=()).reached
    for story, fault in (("append", "EIO"), ("roll_into_zeros", "short, then ENOSPC")):
        reached |= sweep(place, stories=[story], lives=(), damages=(), faults=[fault]).reached

    assert {str(site): sites[site] for site in set(sites) - reached} == {}
    assert len(sites) > 100
