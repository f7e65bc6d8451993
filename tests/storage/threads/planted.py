"""Bugs that two threads in one log are easily given, to be planted into the real one. Each was there once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kraftlib.storage import files, names, reserve
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.tail import Tail
from tests.storage.threads.meetings import InMemory, Meeting, Scene, Spent


@attrs.frozen
class Race:
    """What is wrong, and in which meeting that must show."""

    name: str
    meeting: Meeting
    plant: Callable[[pytest.MonkeyPatch], None]


def _the_file_is_closed_before_the_next_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the last segment goes by the descriptor that appends are written to."""
    read_by: dict[Path, SegmentChain] = {}

    def read(self: SegmentChain, start_offset: int, max_bytes: int, holes: Sequence[Any] = ()) -> Sequence[Any]:
        segment = self.segment_of(start_offset)
        if segment is self.active:
            read_by[segment.path] = self
        try:
            return segment.read(start_offset, max_bytes)
        finally:
            read_by.pop(segment.path, None)

    @contextmanager
    def opened(path: Path, flags: int = files.READ) -> Iterator[int]:
        chain = read_by.get(path)
        if chain is not None and chain.active.path == path:
            yield chain.open_files._descriptor
        else:
            with really(path, flags) as descriptor:
                yield descriptor

    def drop(self: SegmentChain, segment: Segment, mark: Any) -> None:
        place = self._segments.index(segment)
        behind = self._segments[place + 1 :]
        kept = segment.cut_at(mark.position, mark.crc, is_growing=not behind)
        self._segments = (*self._segments[:place], kept)
        if behind:
            self.open_files._close_files()
            for dropped in reversed(behind):
                dropped.remove_files()
            self.open_files._descriptor = os.open(kept.path, os.O_RDWR)
        kept.load_index()

    really = files.opened
    monkeypatch.setattr(SegmentChain, "read", read)
    monkeypatch.setattr(files, "opened", opened)
    monkeypatch.setattr(SegmentChain, "_drop_segments_behind", drop)


def _a_list_that_is_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def up_to(self: Tail, end_offset: int) -> Tail:
        keep = sum(base_offset < end_offset for base_offset in self._base_offsets)
        del self._batches[keep:]
        del self._base_offsets[keep:]
        return self

    monkeypatch.setattr(Tail, "up_to", up_to)


def _segments_are_taken_out_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop deletes the first ones while a flush looks up the last one."""

    def get(self: SegmentChain) -> list[Segment]:
        live: list[Segment] = self.__dict__["live"]
        return live

    def put(self: SegmentChain, segments: Sequence[Segment]) -> None:
        self.__dict__.setdefault("live", [])[:] = segments

    def delete_below(self: SegmentChain, offset: int) -> None:
        segments = get(self)
        while len(segments) > 1 and segments[1].base_offset <= offset:
            base_offset = segments.pop(0).base_offset
            for name in (names.segment_name, names.index_name, names.time_index_name, names.producer_state_name):
                self.open_files.condemn(self._directory / name(base_offset))

    monkeypatch.setattr(SegmentChain, "delete_below", delete_below)
    monkeypatch.setattr(SegmentChain, "_segments", property(get, put), raising=False)


def _the_reserve_has_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "threading", SimpleNamespace(Lock=nullcontext))


RACES = (
    Race(
        "a truncation closes the file that a listener reads",
        Meeting(Scene, Scene.read, Scene.truncate),
        _the_file_is_closed_before_the_next_is_open,
    ),
    Race(
        "a truncation cuts the list that a listener reads",
        Meeting(InMemory, Scene.read, Scene.truncate),
        _a_list_that_is_read_is_cut,
    ),
    Race(
        "retention takes segments out of the list that a flush indexes",
        Meeting(Scene, Scene.delete, Scene.flush),
        _segments_are_taken_out_of_the_list,
    ),
    Race(
        "two threads take the reserve at once",
        Meeting(Spent, Scene.look_at_space, Scene.flush),
        _the_reserve_has_no_lock,
    ),
)
