"""The log of a directory, read to its end and judged as a start would judge it: nothing is changed.

The scan and the judgement are those of `kraftlib.storage.damage.recovery`; here they become findings, one for each
segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import attrs

from kraftlib.errors import CorruptBatchError, KraftError
from kraftlib.records.batch import Batch, check_kraft
from kraftlib.storage import files, names
from kraftlib.storage.damage.judgement import (
    Judgement,
    is_of_other_files,
    is_void,
    judge,
    note_known,
    should_have_sync_point,
)
from kraftlib.storage.damage.missing import had_segments
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.scan import scan_segment
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import SyncPoint, read_sync_point
from kraftlib.storage.snapshots.damaged_snapshots import fault_at_start
from kraftlib.types import Offset, OffsetAndEpoch

T = TypeVar("T")

Progress = Callable[[int], object]
"""Told how many bytes more have been read."""


@attrs.frozen(kw_only=True)
class Finding:
    """The finding for one file."""

    path: Path
    verdict: str
    """`ok`, `note` or `damaged`."""
    detail: str
    position: int | None = None
    """Where the damage begins, in bytes."""
    size: int = 0


class LogVerification:
    """All segments of a partition's directory, read on the first question.

    A log that is `in_use` is read once more if it seems damaged: a batch that was just being written may have looked
    so.
    """

    def __init__(self, partition: Path, *, in_use: bool, progress: Progress) -> None:
        self._partition = partition
        self._in_use = in_use
        self._progress = progress
        self._scan: _Scan | None = None

    def _scanned(self) -> _Scan:
        if self._scan is None:
            self._scan = _Scan(self._partition, self._progress)
            if self._in_use and (self._scan.judgement.damaged or self._scan.faults):
                self._scan = _Scan(self._partition, lambda size: None)
        return self._scan

    def finding(self, path: Path) -> Finding:
        """Judge one segment."""
        base, scan = names.parse_segment_name(path.name) or 0, self._scanned()
        size = scan.sizes.get(base, 0)
        records, end_offset = scan.records[base], scan.ends.get(base, base)
        so_far = f"{records} records up to offset {end_offset}"
        found = scan.judgement
        if (fault := scan.faults.get(base)) is not None:
            return Finding(path=path, verdict="damaged", detail=said(fault), position=scan.places.get(base), size=size)
        if (hole := _first_of(found.damaged, base)) is not None:
            why = f"; {found.why}" if found.why is not None and hole is found.damaged[-1] else ""
            detail = f"{said(hole.reason)}{why}"
            return Finding(path=path, verdict="damaged", detail=detail, position=hole.position, size=size)
        if found.torn is not None and base == found.torn.segment:
            what = "being written" if self._in_use else "a torn tail, which the next start cuts off"
            detail = f"{so_far}, then {size - found.torn.position} bytes: {what}"
            return Finding(path=path, verdict="note", detail=detail, size=size)
        if found.torn is not None and base > found.torn.segment:
            detail = "begun behind a torn tail: the next start removes it"
            return Finding(path=path, verdict="note", detail=detail, size=size)
        if base in scan.zero_tails:
            detail = f"{so_far}, then {size - scan.zero_tails[base]} zeros that were written ahead"
            return Finding(path=path, verdict="ok" if self._in_use else "note", detail=detail, size=size)
        return Finding(path=path, verdict="ok", detail=f"{records} records, offsets {base} to {end_offset}", size=size)

    def said_of_sync_point(self) -> tuple[str, str]:
        """Return verdict and detail for the note of the durable end."""
        scan = self._scanned()
        if scan.note is None:
            return "note", "nothing in it can be read, and it is what tells a torn tail from damage"
        detail = f"durable up to offset {scan.note.mark.end_offset}"
        return "ok", f"{detail}; of other files, of which these are copies" if scan.is_copied else detail

    def missing(self) -> Iterator[Finding]:
        """Say what is not there and should be."""
        scan = self._scanned()
        log, newest = scan.log, scan.newest
        damaged = Finding(path=self._partition, verdict="damaged", detail="")
        note = Finding(path=self._partition, verdict="note", detail="")
        if not log.segments:
            if had_segments(log, scan.note):
                yield attrs.evolve(damaged, detail="no segment is left, and a replica has run there")
            return
        if log.start_offset and (newest is None or newest.offset < log.start_offset):
            detail = f"the log begins at offset {log.start_offset}, and no checkpoint has what stood before"
            yield attrs.evolve(damaged, detail=detail)
        if newest is not None and newest.offset > log.end_offset and not scan.faults and not log.holes:
            detail = (
                f"the newest checkpoint is {newest}, beyond the log's end {log.end_offset}: the next start begins there"
            )
            yield attrs.evolve(note, detail=detail)


class _Scan:
    """The result of one reading of the log."""

    def __init__(self, partition: Path, progress: Progress) -> None:
        self.records: Counter[Offset] = Counter()
        self.ends: dict[Offset, Offset] = {}
        self.sizes: dict[Offset, int] = {}
        self.faults: dict[Offset, KraftError] = {}
        """Bytes that cannot be read, or a whole batch that cannot be in a KRaft log."""
        self.places: dict[Offset, int | None] = {}
        self._progress = progress
        listed = files.list_names(partition) if partition.is_dir() else []
        bases = sorted(base for base in map(names.parse_segment_name, listed) if base is not None)
        self.note: SyncPoint | None = _or(None, lambda: read_sync_point(partition)) if listed else None
        ids = filter(None, map(names.parse_checkpoint_name, listed))
        whole = sorted(one for one in ids if _is_whole(partition, one))
        self.log = RecoveredLog(partition, whole)
        self.log.watch = self._take
        self.newest: OffsetAndEpoch | None = whole[-1] if whole else None
        self.is_copied = False
        note = self.note
        if note is not None and not _or(False, lambda: is_void(partition, note)):
            self.log.sync_point = note
            self.is_copied = is_of_other_files(partition, note, bases)
            note_known(self.log)
        for base, after in zip_longest(bases, bases[1:]):
            self._read(base, after)
        doubtful = self.note is None and bool(bases) and _or(True, lambda: should_have_sync_point(partition))
        nothing = Judgement(damaged=(), torn=None, why=None)
        self.judgement = judge(self.log, doubtful=doubtful) if self.log.segments else nothing
        self.zero_tails = {segment.base_offset: segment.size for segment in self.log.zero_tails}

    def _read(self, base: Offset, after: Offset | None) -> None:
        path = self.log.directory / names.segment_name(base)
        self._here = 0
        try:
            self.sizes[base] = files.size_of(path)
            scan_segment(self.log, base)
        except KraftError as error:
            self.faults[base], self.places[base] = error, getattr(error, "position", None)
            self.log.segments = [segment for segment in self.log.segments if segment.base_offset != base]
            if after is not None:
                self.log.end_offset = after  # the other segments are judged all the same
        self._progress(self.sizes.get(base, 0) - self._here)

    def _take(self, segment: Segment, batch: Batch) -> None:
        base = segment.base_offset
        self.records[base] += batch.record_count
        self.ends[base] = batch.end_offset
        self._here += batch.size
        self._progress(batch.size)
        try:
            check_kraft(batch)
        except CorruptBatchError as error:
            self.places.setdefault(base, segment.size - batch.size)
            self.faults.setdefault(base, error)


def _or(otherwise: T, look: Callable[[], T]) -> T:
    """Look at a file that tells something of the log. One that cannot be read has a finding of its own."""
    try:
        return look()
    except KraftError:
        return otherwise


def _is_whole(partition: Path, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a start would count this checkpoint."""
    return _or(False, lambda: fault_at_start(partition, snapshot_id) is None)


def _first_of(holes: Sequence[Hole], base: Offset) -> Hole | None:
    return next((hole for hole in holes if hole.segment == base), None)


def said(what: object) -> str:
    """Return a message in one line."""
    return " ".join(str(what).split()) or type(what).__name__
