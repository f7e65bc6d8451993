"""Which byte ranges of which files hold what is asked for: the work of one reader each.

A split begins at a batch, and where batches begin is known in three ways only: the start of the file; an entry of its
`.index` file, when a header with that very offset stands there and the batches before it lead to it; a walk from the
start over every header, for local files. Nothing is ever searched for: a value may hold a complete batch, with a CRC
that fits, and a search would find that.

A plan looks at the entries around a range that was asked for, since these decide what is left out. A segment that is
read whole is only cut (`analysis.cuts`), and readers settle where their cuts begin and end.

Each split has its expected first and last offsets and epochs, so that a reader notices what is missing at the
seams. A `pin` fixes files and sizes, so that several reads of a growing log see one and the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.conditions import Pruning
from kraftlib.analysis.cuts import Cut, cuts_of
from kraftlib.analysis.files import find_files
from kraftlib.analysis.log_files import Kind, LogFile
from kraftlib.analysis.marks import IndexMarks, Seam, WalkMarks, has_index_entries
from kraftlib.analysis.options import Bounds, Range, ReadOptions
from kraftlib.errors import ConfigError, CorruptBatchError

SPLIT_MIN_BYTES: Final = 8 << 20
"""Smaller splits cost more in tasks than they gain by being spread."""

TASKS_MAX: Final = 2_000
"""Of more there is no end of scheduling: tasks of a very large log are larger than was asked for."""

INDEXES_AT_ONCE: Final = 16
"""Files of an object store that are looked at together while planning."""


@attrs.frozen(kw_only=True)
class Split:
    """Whole batches of one file: those that begin in [start, end)."""

    file: LogFile
    start: int
    end: int
    start_offset: int | None = None
    """Base offset that the first batch must have; None is not known."""
    start_epoch: int | None = None
    """Epoch of the batch before it."""
    end_offset: int | None = None
    """Base offset of the next batch."""
    end_epoch: int | None = None
    """Epoch of the next batch."""
    cut: Cut | None = None
    """The planned cut, if the bounds are only planned: see `settled`."""

    @property
    def is_end_of_file(self) -> bool:
        """Whether it goes to the end of the file, as far as that is read."""
        return self.end >= self.file.size

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


def pin(options: ReadOptions) -> tuple[tuple[str, int], ...]:
    """Return the files below the path and their sizes now, for the option `pin`."""
    files = _files(options)
    return tuple((file.path, file.size) for file in files)


def plan(options: ReadOptions, pruning: Pruning = Pruning()) -> list[list[Split]]:
    """Return the splits for each task. `pruning` leaves out what cannot hold wanted rows, but may keep more."""
    files = [file for file in chosen_files(options) if pruning.may_hold(file)]
    bounds = options.bounds & pruning.bounds
    target = target_bytes(sum(file.size for file in files if _overlaps(file, bounds)), options)

    def splits(file: LogFile) -> list[Split]:
        return splits_of(file, options, bounds_of(file, bounds), target)

    if any(file.root for file in files):
        with ThreadPoolExecutor(INDEXES_AT_ONCE) as pool:
            found = list(pool.map(splits, files))
    else:
        found = list(map(splits, files))
    wanted = [split for group in found for split in group]
    return pack(wanted, target_bytes(sum(split.size for split in wanted), options))


def settled(split: Split) -> Split | None:
    """Return a split with the bounds that it turns out to have; None, if there is none. Raises: StorageError."""
    if split.cut is None:
        return split
    found = split.cut.seams(split.file)
    if found is None:
        return None
    begin, behind = found
    if begin is not None:
        split = attrs.evolve(split, start=begin[0], start_offset=begin[1], start_epoch=begin[3])
    if behind is None:
        return attrs.evolve(split, end=split.file.size, end_offset=_end_offset(split.file), cut=None)
    return attrs.evolve(split, end=behind[0], end_offset=behind[1], end_epoch=behind[2], cut=None)


def chosen_files(options: ReadOptions) -> list[LogFile]:
    """Return the files that hold what is to be read. Raises: ConfigError, if there is none of the kind."""
    files = _files(options)
    if options.view == "files":
        return files
    if options.mode == "FAILFAST":
        _check_emptied(files)
    if len(files) == 1:
        return files
    chosen = [file for file in files if _is_included(file, files, options)]
    if options.include == "latest":
        chosen = [_behind_snapshot(file, chosen) for file in chosen]
    if not chosen:
        raise ConfigError(f"{options.path} holds nothing that include={options.include} asks for; try include=all")
    if options.mode == "FAILFAST":
        _check_start(chosen, options.bounds.offset.start)
    return chosen


def _files(options: ReadOptions) -> list[LogFile]:
    pinned = None if options.pin is None else dict(options.pin)
    bootstrap = options.view == "files" or options.include == "all"
    return find_files(options.path, pinned=pinned, bootstrap=bootstrap, layout=options.layout)


def _check_start(files: Sequence[LogFile], start: int | None) -> None:
    """Refuse an offset that was asked for and is in no file any more. Raises: ConfigError."""
    snapshots = {file.directory for file in files if file.kind is Kind.SNAPSHOT}
    firsts: dict[str, int] = {}
    for file in files:
        if file.kind is Kind.LOG and file.directory not in snapshots:
            firsts[file.directory] = min(file.offset, firsts.get(file.directory, file.offset))
    for directory, first in firsts.items():
        if start is not None and start < first:
            raise ConfigError(
                f"startOffset={start} is below the start of the log in {directory}, which is {first}: earlier records"
                " are gone, or in an archive"
            )


def _check_emptied(files: Sequence[LogFile]) -> None:
    """Refuse a newest segment that is empty although its index names batches. Raises: CorruptBatchError.

    Read as it stands it would be a log that never had a record.
    """
    for file in files:
        if file.is_last and file.size == 0 and has_index_entries(file):
            raise CorruptBatchError(
                f"{file.path} is empty, and its index names batches: the segment was emptied; take it from another"
                " replica, or read with mode=PERMISSIVE",
                path=file.path,
                position=0,
            )


def _is_included(file: LogFile, files: Sequence[LogFile], options: ReadOptions) -> bool:
    if options.include == "all":
        return True
    if options.include != "latest":
        return file.kind is (Kind.LOG if options.include == "log" else Kind.SNAPSHOT)
    end = options.bounds.offset.end
    snapshots = [
        f
        for f in files
        if f.kind is Kind.SNAPSHOT and f.directory == file.directory and (end is None or f.offset <= end)
    ]
    newest = max(snapshots, key=lambda f: (f.offset, f.epoch or 0), default=None)
    if file.kind is Kind.SNAPSHOT:
        return file is newest
    return newest is None or file.next_offset is None or file.next_offset > newest.offset


def _behind_snapshot(file: LogFile, files: Sequence[LogFile]) -> LogFile:
    """Return a segment as it is read behind the snapshot of its directory: without the rows that that stands for."""
    ends = [f.offset for f in files if f.kind is Kind.SNAPSHOT and f.directory == file.directory]
    return attrs.evolve(file, from_offset=max(ends)) if ends and file.kind is Kind.LOG else file


def bounds_of(file: LogFile, bounds: Bounds) -> Bounds:
    """Return which records of one file are wanted: all of a snapshot, and of a log those within `bounds`."""
    if file.kind is not Kind.LOG:
        return Bounds()
    return bounds & Bounds(offset=Range(start=file.from_offset))


def target_bytes(total: int, options: ReadOptions) -> int:
    """Return how large the work of a task should be, of that many bytes in all.

    As was asked for, but small enough to feed every processor twice, and large enough for TASKS_MAX of them.
    """
    tasks = 2 * (options.parallelism or os.cpu_count() or 1)
    wanted = min(options.max_partition_bytes, max(total // tasks, min(SPLIT_MIN_BYTES, options.max_partition_bytes)))
    return max(wanted, total // TASKS_MAX)


def pack(splits: Iterable[Split], target: int) -> list[list[Split]]:
    """Return the splits in groups of about `target` bytes, in their order; many small files make one task."""
    groups: list[list[Split]] = []
    size = 0
    for split in splits:
        if not groups or size + split.size > target:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += split.size
    return groups


def splits_of(file: LogFile, options: ReadOptions, bounds: Bounds, target: int) -> list[Split]:
    """Return the splits of one file that can hold rows within `bounds`, of about `target` bytes each."""
    if file.size == 0 and file.is_last:
        return []
    whole = Split(
        file=file,
        start=0,
        end=file.size,
        start_offset=_first_offset(file, options),
        end_offset=_end_offset(file),
    )
    if file.kind is not Kind.LOG:
        return [whole]
    covered = Range(start=file.offset, end=file.next_offset)
    if not _overlaps(file, bounds):
        return []
    if file.size == 0 or options.view == "files":
        return [whole]  # one that has lost what it held is read as well: the reader says so
    by_content = bool(bounds.epoch) or bounds.timestamp.start is not None
    is_narrowed = _narrows(bounds.offset, covered)
    if not is_narrowed and file.size <= target and not by_content:
        return [whole]
    # After damage a walk may follow a wrong length to anywhere: where damage is tolerated, it is not relied upon.
    can_walk = not file.root and options.mode == "FAILFAST"
    if not is_narrowed and not (by_content and can_walk):
        cuts = cuts_of(file, target)
        if cuts:
            return _equal_parts(whole, cuts)
    elif not (by_content and can_walk):
        index = IndexMarks.of(file)
        if index is not None:
            cut = _cut(whole, index, index.within(bounds.offset), target)
            if cut is not None:
                return cut
    if can_walk:
        marks = WalkMarks(file, contiguous=options.contiguous)
        within = marks.within(bounds)
        if within is None and file.is_last and options.bounds.offset.start is not None:
            # Whether that is beyond the end is seen when the end is read.
            within = (len(marks.position) - 1, len(marks.position))
        return _cut(whole, marks, within, target) or []
    return [whole]


def _equal_parts(whole: Split, cuts: Sequence[Cut]) -> list[Split]:
    edges = [*(cut.start(whole.file) for cut in cuts), whole.end]
    return [
        Split(
            file=whole.file,
            start=start,
            end=end,
            start_offset=None if cut.number else whole.start_offset,
            cut=cut,
        )
        for cut, (start, end) in zip(cuts, pairwise(edges), strict=True)
    ]


def _overlaps(file: LogFile, bounds: Bounds) -> bool:
    """Whether a file can hold what lies within `bounds`, going by its name and the next one's."""
    if file.kind is not Kind.LOG:
        return True
    covered = Range(start=file.offset, end=file.next_offset)
    return not (bounds.are_empty or (covered & bounds.offset).is_empty)


def _end_offset(file: LogFile) -> int | None:
    """Return what must follow a segment, as far as that is known."""
    return None if file.is_followed_by_snapshot else file.next_offset


def _first_offset(file: LogFile, options: ReadOptions) -> int | None:
    if file.kind is Kind.LOG:
        # A segment of a compacted topic may begin above its name.
        return file.offset if options.contiguous else None
    return 0


def _narrows(wanted: Range, covered: Range) -> bool:
    below = wanted.start is not None and covered.start is not None and wanted.start > covered.start
    above = wanted.end is not None and (covered.end is None or wanted.end < covered.end)
    return below or above


def _cut(
    whole: Split, marks: IndexMarks | WalkMarks, within: tuple[int, int] | None, target: int
) -> list[Split] | None:
    """Return the splits between the marks numbered `within`, of about `target` bytes each.

    None for `within` is that nothing can match. Returns None, if a mark turns out to be wrong.
    """
    if within is None:
        return []
    first, last = within
    start = int(marks.position[first]) if first >= 0 else 0
    end = int(marks.position[last]) if last < len(marks.position) else whole.end
    pieces = max(1, round((end - start) / target))
    inner = np.searchsorted(marks.position, start + (end - start) * np.arange(1, pieces) // pieces)
    numbers = sorted({first, *(number for number in inner.tolist() if first < number < last), last})
    seams: list[Seam] = []
    for number in numbers:
        if number < 0:
            seams.append((0, whole.start_offset, None, None))
        elif number >= len(marks.position):
            seams.append((whole.end, whole.end_offset, None, None))
        else:
            seam = marks.seam(number)
            if seam is None:
                return None
            seams.append(seam)
    return [
        Split(
            file=whole.file,
            start=position,
            end=end,
            start_offset=offset,
            start_epoch=epoch_before,
            end_offset=end_offset,
            end_epoch=end_epoch,
        )
        for (position, offset, _, epoch_before), (end, end_offset, end_epoch, _) in pairwise(seams)
    ]
