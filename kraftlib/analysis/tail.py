"""Following the segments of one log as they grow: the end that can be read, and its place in the files.

Meant for an archive, which holds committed records only: nothing that was there is ever taken back, so a place, once
found, stays right. A place is an offset and the epoch of the record before it. The epoch is the proof that a reader who
comes back finds the log that he left: in another one, or in one that lost records, it does not fit.

Where the quorum had compacted what an archive lacks, a checkpoint stands for the missing records. It *replaces* what
came before, so it is never mixed with records: one step leads over the gap, from the end of the records to the
checkpoint's end.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import HEADER_SIZE, BatchHeader, parse_header
from kraftlib.storage import files, names
from kraftlib.storage.log.index import SegmentIndex
from kraftlib.storage.snapshots.snapshot_files import list_snapshots
from kraftlib.types import OffsetAndEpoch

BATCH_MAX_BYTES: Final = 128 << 20
_WINDOW: Final = 256 << 10
_INDEX_MAX_BYTES: Final = 64 << 20
_REMEMBERED: Final = 64


class LostLogError(StorageError):
    """The log is not the one that was read before, or does not reach back to the offset to go on from."""


class BehindError(LostLogError):
    """The log ends before the place where reading is to go on: it may still come up to there."""


@attrs.frozen(kw_only=True)
class Piece:
    """The part of one reader: whole batches of a segment, `[start, end)` in bytes, or a checkpoint."""

    path: str
    start: int
    end: int
    start_offset: int
    epoch: int
    """Of the record before; of all of a checkpoint."""
    is_checkpoint: bool = False


@attrs.frozen(kw_only=True)
class _Spot:
    """Where an offset stands: in this segment, at this byte."""

    base_offset: int
    position: int
    epoch: int


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one step, which always takes at least one batch."""

    records: int | None = None
    bytes: int | None = None


class LogTail:
    """The log in one directory. Not thread-safe; remembers where it was, so that going on costs nothing."""

    def __init__(self, directory: Path, *, snapshots: bool = False) -> None:
        """`snapshots` allows a checkpoint to stand in for missing records; without, a gap is an error."""
        self._directory: Final = directory
        self._snapshots: Final = snapshots
        self._spots: OrderedDict[int, _Spot] = OrderedDict()

    # Going on ---------------------------------------------------------------------------------------

    def end(self) -> OffsetAndEpoch:
        """Return the place behind everything that is there now."""
        bases = self._bases()
        if not bases:
            return OffsetAndEpoch(offset=0, epoch=0)
        base = bases[-1]
        known = self._furthest(base)
        if known is None:
            ended = self._checkpoint_at(base)
            place = OffsetAndEpoch(offset=base, epoch=0 if ended is None else ended.epoch)
            spot = self._near(base, 2**62)
        else:
            place, spot = known
        for header, position in self._headers(spot, None, is_last=True):
            place = OffsetAndEpoch(offset=header.last_offset + 1, epoch=header.epoch)
            spot = _Spot(base_offset=base, position=position + header.size, epoch=header.epoch)
        if spot.position:
            self._remember(place.offset, spot)
        return place

    def before(self, offset: int) -> OffsetAndEpoch:
        """Return a place at or before an offset, with no gap between: the last checkpoint there, or the beginning."""
        bases = {base for base in self._bases() if base <= offset}
        ends = [found for found in list_snapshots(self._directory) if found.offset in bases]
        return max(ends, key=lambda found: found.offset, default=OffsetAndEpoch(offset=0, epoch=0))

    def advance(self, start: OffsetAndEpoch, limits: Limits = Limits(), *, end: int | None = None) -> OffsetAndEpoch:
        """Return how far one step from `start` leads: `start` itself, if nothing more is there.

        `end` is an offset that is not to be passed. Raises: LostLogError, CorruptBatchError.
        """
        bases = self._bases()
        if not bases or (start.offset == 0 and bases[0] == 0 and self._size(bases[0]) == 0):
            if start.offset > 0:
                raise self._behind(start, 0)
            return start
        spot = self._find(start, bases)
        if spot is None:
            return self._over_gap(start, bases, end)
        return self._walk_on(start, spot, bases, limits, end)

    def _walk_on(
        self, start: OffsetAndEpoch, spot: _Spot, bases: list[int], limits: Limits, end: int | None
    ) -> OffsetAndEpoch:
        at, records, size = start, 0, 0
        while True:
            for header, position in self._headers(spot, at.offset, is_last=spot.base_offset == bases[-1]):
                records, size = records + header.last_offset - header.base_offset + 1, size + header.size
                is_too_much = _exceeds(records, limits.records) or _exceeds(size, limits.bytes)
                if (at != start and is_too_much) or (end is not None and header.last_offset >= end):
                    return at
                at = OffsetAndEpoch(offset=header.last_offset + 1, epoch=header.epoch)
                spot = _Spot(base_offset=spot.base_offset, position=position + header.size, epoch=header.epoch)
                self._remember(at.offset, spot)
            following = [base for base in bases if base > spot.base_offset]
            if not following or following[0] != at.offset:
                if at == start and following:
                    return self._over_gap(start, bases, end)
                return at
            spot = _Spot(base_offset=at.offset, position=0, epoch=at.epoch)

    def _over_gap(self, start: OffsetAndEpoch, bases: list[int], end: int | None) -> OffsetAndEpoch:
        """Return the end of the checkpoint that stands for the records that are missing from `start` on."""
        base = next(base for base in bases if base > start.offset)
        covering = self._checkpoint_at(base)
        if not self._snapshots or covering is None:
            raise LostLogError(
                f"{self._directory} lacks the records from offset {start.offset} to {base}: they were compacted before"
                " they were archived; onGap=snapshot reads the checkpoint that stands for them",
                path=self._directory,
            )
        return start if end is not None and base > end else covering

    def _checkpoint_at(self, offset: int) -> OffsetAndEpoch | None:
        return next((found for found in list_snapshots(self._directory) if found.offset == offset), None)

    # Where it lies ----------------------------------------------------------------------------------

    def pieces(self, start: OffsetAndEpoch, end: OffsetAndEpoch) -> list[Piece]:
        """Return what holds the records of a step that was made, or is made again after a restart.

        Raises: LostLogError, if the log is not the one of which `advance` said `end`.
        """
        if end.offset < start.offset:
            raise self._lost(end, f"it lies before {start}, where the reader stands")
        if end.offset == start.offset:
            return []
        bases = self._bases()
        spot = self._find(start, bases) if bases else None
        gap_ends = next((base for base in bases if base > start.offset), None)
        if spot is None or (gap_ends == end.offset and not self._continues(spot, start.offset)):
            return [self._checkpoint_piece(start, end)]
        return self._segment_pieces(start, end, spot, bases)

    def _segment_pieces(self, start: OffsetAndEpoch, end: OffsetAndEpoch, spot: _Spot, bases: list[int]) -> list[Piece]:
        pieces: list[Piece] = []
        at = start
        while at.offset < end.offset:
            piece_start, position, before = at, spot.position, spot
            for header, where in self._headers(spot, at.offset, is_last=False, end=end.offset):
                at = OffsetAndEpoch(offset=header.last_offset + 1, epoch=header.epoch)
                position = where + header.size
            if position == before.position:
                raise self._behind(end, at.offset)
            pieces.append(
                Piece(
                    path=str(self._path(before.base_offset)),
                    start=before.position,
                    end=position,
                    start_offset=piece_start.offset,
                    epoch=piece_start.epoch,
                )
            )
            spot = _Spot(base_offset=at.offset, position=0, epoch=at.epoch)
            if at.offset < end.offset and at.offset not in bases:
                is_gap = bases[-1] > at.offset
                raise self._lost(end, f"there is a gap at {at}") if is_gap else self._behind(end, at.offset)
        if at != end:
            raise self._lost(end, f"the log has {at} there")
        return pieces

    def _checkpoint_piece(self, start: OffsetAndEpoch, end: OffsetAndEpoch) -> Piece:
        path = self._directory / names.checkpoint_name(end)
        if not path.exists():
            raise self._lost(end, f"there are no records from {start} on and no checkpoint of that id")
        return Piece(
            path=str(path),
            start=0,
            end=files.size_of(path),
            start_offset=start.offset,
            epoch=end.epoch,
            is_checkpoint=True,
        )

    # Finding places ---------------------------------------------------------------------------------

    def _find(self, place: OffsetAndEpoch, bases: list[int]) -> _Spot | None:
        """Return where a place is; None, if the records behind it begin later. Raises: LostLogError."""
        spot = self._spots.get(place.offset) or self._look_up(place, bases)
        if spot is not None and place.offset > 0 and spot.epoch != place.epoch:
            raise self._lost(place, f"the record before it is of epoch {spot.epoch} there: the log is another one")
        if spot is not None and place.offset in bases:
            spot = _Spot(base_offset=place.offset, position=0, epoch=place.epoch)  # not the end of the segment before
        return spot

    def _look_up(self, place: OffsetAndEpoch, bases: list[int]) -> _Spot | None:
        if place.offset < bases[0]:
            return None
        ended = self._checkpoint_at(place.offset)
        if ended is not None and ended.epoch == place.epoch and place.offset in bases:
            return _Spot(base_offset=place.offset, position=0, epoch=place.epoch)
        if place.offset == 0:
            return _Spot(base_offset=0, position=0, epoch=0)
        base = max((base for base in bases if base < place.offset), default=bases[0])
        end_offset = base
        if base < place.offset:
            for header, position in self._headers(self._near(base, place.offset), None, is_last=base == bases[-1]):
                end_offset = header.last_offset + 1
                if end_offset == place.offset:
                    return _Spot(base_offset=base, position=position + header.size, epoch=header.epoch)
                if end_offset > place.offset:
                    raise self._lost(place, f"it lies amid a batch that ends at {end_offset}")
        if place.offset in bases:
            raise self._lost(place, "the record before it is not there, and no checkpoint of that id stands for it")
        if base != bases[-1]:
            return None  # amid a gap: something else had been archived there, or nothing
        raise self._behind(place, end_offset)

    def _near(self, base_offset: int, offset: int) -> _Spot:
        """Return where to begin to look for an offset: where the index says, if it is right."""
        index = SegmentIndex(base_offset)
        entries = files.read_file(self._directory / names.index_name(base_offset), max_bytes=_INDEX_MAX_BYTES)
        position = 0
        if entries and index.load(entries, segment_size=self._size(base_offset)):
            position = index.position_before(offset - 1)
        return _Spot(base_offset=base_offset, position=position, epoch=0)

    def _continues(self, spot: _Spot, offset: int) -> bool:
        """Whether a batch stands at this spot."""
        return next(self._headers(spot, offset, is_last=True), None) is not None

    def _headers(
        self, spot: _Spot, offset: int | None, *, is_last: bool, end: int | None = None
    ) -> Iterator[tuple[BatchHeader, int]]:
        """Yield headers and positions of the batches from `spot` on, the first of which has this base offset.

        Ends at the end of the segment, at a batch that is still being written, and at `end`. Raises: CorruptBatchError.
        """
        path = self._path(spot.base_offset)
        descriptor = files.open_existing(path)
        try:
            size, position, window_at, window = os.fstat(descriptor).st_size, spot.position, 0, b""
            while position + HEADER_SIZE <= size and (end is None or offset is None or offset < end):
                if not window_at <= position <= window_at + len(window) - HEADER_SIZE:
                    with files.storage_errors("read", path):
                        window_at, window = position, files.read_at(descriptor, min(_WINDOW, size - position), position)
                header = parse_header(window, position - window_at, origin=window_at)
                if position + header.size > size or header.size > BATCH_MAX_BYTES:
                    break
                if offset is not None and header.base_offset != offset:
                    raise CorruptBatchError(
                        f"{path}, position {position}: base offset {header.base_offset}, expected is {offset}",
                        path=path,
                        position=position,
                    )
                yield header, position
                position += header.size
                offset = header.last_offset + 1
        except CorruptBatchError as error:
            if not is_last or error.path is not None:
                raise
        finally:
            os.close(descriptor)

    # Files ------------------------------------------------------------------------------------------

    def _bases(self) -> list[int]:
        found = map(names.parse_segment_name, files.list_names(self._directory))
        return sorted(base for base in found if base is not None)

    def _path(self, base_offset: int) -> Path:
        return self._directory / names.segment_name(base_offset)

    def _furthest(self, base_offset: int) -> tuple[OffsetAndEpoch, _Spot] | None:
        """Return the last place of a segment that is remembered, as far as the segment still reaches."""
        size = self._size(base_offset)
        known = [
            (offset, spot)
            for offset, spot in self._spots.items()
            if spot.base_offset == base_offset and spot.position <= size
        ]
        if not known:
            return None
        offset, spot = max(known, key=lambda one: one[0])
        return OffsetAndEpoch(offset=offset, epoch=spot.epoch), spot

    def _size(self, base_offset: int) -> int:
        return files.size_of(self._path(base_offset))

    def _remember(self, offset: int, spot: _Spot) -> None:
        self._spots[offset] = spot
        self._spots.move_to_end(offset)
        while len(self._spots) > _REMEMBERED:
            self._spots.popitem(last=False)

    def _behind(self, place: OffsetAndEpoch, end_offset: int) -> BehindError:
        return BehindError(str(self._lost(place, f"the log ends at offset {end_offset}")), path=self._directory)

    def _lost(self, place: OffsetAndEpoch, why: str) -> LostLogError:
        return LostLogError(
            f"{self._directory} has no place {place} (offset@epoch): {why}. It was truncated, or it is not the log"
            " that was read before",
            path=self._directory,
        )


def _exceeds(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


def place_text(place: OffsetAndEpoch) -> dict[str, Any]:
    """Return a place as Spark stores it. Always in this order: Spark compares offsets as text."""
    return {"v": 1, "epoch": place.epoch, "offset": place.offset}


def parse_place(told: Any) -> OffsetAndEpoch:
    """Read what `place_text` made. Raises: LostLogError for another version, or no place at all."""
    try:
        version, epoch, offset = told["v"], told["epoch"], told["offset"]
    except (KeyError, TypeError) as error:
        raise LostLogError(f"the checkpoint of the query holds no place in a log: {told!r}") from error
    if version != 1 or not all(isinstance(number, int) and number >= 0 for number in (epoch, offset)):
        raise LostLogError(f"the checkpoint of the query holds {told!r}, which this release does not understand")
    return OffsetAndEpoch(offset=offset, epoch=epoch)
