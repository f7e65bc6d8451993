"""Reading a log at start, batch by batch: its content, its end, and the holes in between.

The scan goes on behind bad bytes, if anything whole stands there, and leaves a `Hole`: one per segment at most, from
the first bad batch to the next whole one, or to the end of the segment if there is trouble more than once.
`kraftlib.storage.damage.recovery` says what a hole means.

Behind an exact sync point nothing was ever acknowledged: there the first bad byte ends the log, and nothing is read
behind it.
"""

from __future__ import annotations

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.storage import files
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.salvage import find_whole_batch
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import RELATIVE_OFFSET_MAX, SegmentIndex
from kraftlib.storage.log.prefix import controls_up_to
from kraftlib.storage.log.segment import SEGMENT_BYTES_MAX, Segment, batches_in
from kraftlib.storage.log.spare import only_zeros_follow
from kraftlib.storage.log.sync_point import UNKNOWN_CRC, Mark
from kraftlib.types import Offset


def scan_segment(log: RecoveredLog, base_offset: Offset) -> None:
    """Add the segment of this base offset to `log`, or the rest of it, if its beginning is known."""
    segment = _segment_to_read(log, base_offset)
    if segment is None:
        return
    with files.opened(segment.path) as descriptor:
        size = files.size_of(segment.path)
        if size > SEGMENT_BYTES_MAX:
            raise StorageError(
                f"{segment.path} has {size} bytes, and no segment has more than {SEGMENT_BYTES_MAX}: cut off what"
                " stands behind its last batch (`kraftlib dump-log` names the place), or give this replica a new, empty"
                " directory",
                path=segment.path,
                position=SEGMENT_BYTES_MAX,
            )
        log.bytes_read += size - segment.size
        while (trouble := _read_batches(log, segment, descriptor, size)) is not None:
            if not _goes_on_behind(log, segment, descriptor, size, trouble):
                break
        if log.watch is None:
            with files.storage_errors("sync", segment.path):
                files.sync_data(descriptor)


def _segment_to_read(log: RecoveredLog, base_offset: Offset) -> Segment | None:
    """Add the segment of this base offset to `log`, unless it is there, and return it; None if it is not to be read."""
    if log.segments and log.segments[-1].base_offset == base_offset:
        return log.segments[-1]
    if log.segments and base_offset != log.end_offset and not log.is_torn:
        _leave_gap(log, base_offset)
    segment = Segment(log.directory, base_offset)
    log.segments.append(segment)
    if log.is_torn:
        return None
    segment.index = SegmentIndex(base_offset)
    log.end_offset = base_offset
    return segment


def _goes_on_behind(log: RecoveredLog, segment: Segment, descriptor: int, size: int, trouble: tuple[str, bool]) -> bool:
    """Note what `_read_batches` has come upon; return whether the segment is to be read on behind it."""
    reason, is_whole = trouble
    if not is_whole and only_zeros_follow(descriptor, segment.path, segment.size, size):
        log.zero_tails.append(segment)
        return False
    if log.is_unacknowledged:
        _end_torn(log, segment, reason)
        return False
    if is_whole and _skip_epoch(log, segment, descriptor, reason):
        return True
    return _skip(log, segment, reason, is_whole=is_whole)


def _end_torn(log: RecoveredLog, segment: Segment, reason: str) -> None:
    """Let the log end here: later batches were never acknowledged."""
    log.is_torn = True
    log.holes.append(_hole_behind(log, segment, log.end_offset, reason))


def _hole_behind(log: RecoveredLog, segment: Segment, end_offset: Offset, reason: str) -> Hole:
    """Return a hole from the end of the batches read of this segment to `end_offset`, which may never have been
    there."""
    return Hole(
        segment=segment.base_offset,
        position=segment.size,
        start_offset=log.end_offset,
        end_offset=end_offset,
        was_durable=False,
        reason=reason,
    )


def _leave_gap(log: RecoveredLog, base_offset: Offset) -> None:
    """The segment before ends too early: the missing records belong to it."""
    last = log.segments[-1]
    if log.end_offset > base_offset:
        distrust(log, last, base_offset)
        return
    if log.holes and log.holes[-1].segment == last.base_offset:
        log.holes[-1] = attrs.evolve(log.holes[-1], end_offset=base_offset, end_position=None)
        return
    reason = f"{last.path} ends at offset {log.end_offset}, the next segment begins at {base_offset}"
    if log.is_unacknowledged:
        _end_torn(log, last, reason)
    else:
        log.holes.append(_hole_behind(log, last, base_offset, reason))


def distrust(log: RecoveredLog, last: Segment, base_offset: Offset) -> None:
    """The segment before reaches into the next one: its bytes are from elsewhere, and all of it is missing."""
    reason = f"{last.path} reaches to offset {log.end_offset}, though the next segment begins at {base_offset}"
    log.holes = [hole for hole in log.holes if hole.segment != last.base_offset]
    log.holes.append(
        Hole(segment=last.base_offset, position=0, start_offset=last.base_offset, end_offset=base_offset, reason=reason)
    )
    log.epochs.truncate_to(last.base_offset)
    log.control_batches = controls_up_to(log.control_batches, last.base_offset)
    last.size, last.crc, last.index = 0, UNKNOWN_CRC, SegmentIndex(last.base_offset)


def _read_batches(log: RecoveredLog, segment: Segment, descriptor: int, size: int) -> tuple[str, bool] | None:
    """Take the batches from the end of `segment` on; return what is wrong where they leave off, None at its end.

    With it, whether what stands there is a whole batch: then the write was not interrupted.
    """
    sync = log.sync_point.mark if log.sync_point is not None else None
    at_sync = sync.position if sync is not None and sync.segment == segment.base_offset else -1
    before = (segment.size, segment.crc, log.end_offset)
    try:
        for batch in batches_in(descriptor, segment.path, segment.size, size):
            if batch.base_offset != log.end_offset or batch.epoch < log.epochs.latest_epoch:
                reason = (
                    f"{segment.path}, position {segment.size}: {batch!r} does not continue a log that ends at"
                    f" {log.end_offset} in epoch {log.epochs.latest_epoch}"
                )
                return reason, True
            if batch.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                return f"{segment.path}, position {segment.size}: {batch!r} ends beyond what a segment can hold", True
            if log.contradicts(batch):
                return f"{segment.path}, position {segment.size}: {batch!r} is not of the epoch that was noted", True
            log.take(segment, batch)
            if segment.size == at_sync and sync is not None and UNKNOWN_CRC not in (sync.crc, segment.crc):
                _check_sum(log, segment, sync, before)
    except CorruptBatchError as bad:
        return str(bad), False
    return None


def _check_sum(log: RecoveredLog, segment: Segment, sync: Mark, before: tuple[int, int, Offset]) -> None:
    """Compare all bytes up to the sync point with the noted sum: epochs and offsets are in no other checksum."""
    if segment.crc == sync.crc:
        return
    position, _, start_offset = before
    log.holes.append(
        Hole(
            segment=segment.base_offset,
            position=position,
            start_offset=start_offset,
            end_offset=log.end_offset,
            end_position=segment.size,
            reason=f"{segment.path}, positions {position} to {segment.size}: every batch is whole, but the bytes are"
            " not those that were made durable: offsets or epochs have changed",
        )
    )
    segment.crc = UNKNOWN_CRC


def _skip_epoch(log: RecoveredLog, segment: Segment, descriptor: int, reason: str) -> bool:
    """Where only the epoch is wrong, it was changed: that of this batch, or of those before that have another one.

    Without a note the wrong one is unknown, so all of them are missing. Return whether that is it.
    """
    batch = next(batches_in(descriptor, segment.path, segment.size, files.size_of(segment.path)))
    position, offset = (segment.size, log.end_offset) if log.contradicts(batch) else log.epoch_place
    if batch.base_offset != log.end_offset or not segment.base_offset <= offset <= log.end_offset:
        return False
    first = log.hole_of(segment)
    if first is not None:
        log.holes.remove(first)
        position, offset = first.position, first.start_offset
    segment.size += len(batch.data)
    segment.crc = UNKNOWN_CRC
    log.end_offset = batch.end_offset
    log.epochs.truncate_to(offset)
    log.holes.append(
        Hole(
            segment=segment.base_offset,
            position=position,
            start_offset=offset,
            end_offset=log.end_offset,
            end_position=segment.size,
            reason=reason,
        )
    )
    log.epoch_place = (segment.size, log.end_offset)
    return True


def _skip(log: RecoveredLog, segment: Segment, reason: str, *, is_whole: bool) -> bool:
    """Go on behind bad bytes, if a whole batch of a later offset stands there; else leave the rest of the segment."""
    first = log.hole_of(segment)
    # Where a whole batch stands in the wrong place, the right one may follow.
    expected_offset = log.end_offset - 1 if is_whole else log.end_offset
    found = find_whole_batch(segment.path, segment.size, expected_offset=expected_offset)
    if found is not None and found[1].epoch < log.epochs.latest_epoch:
        found = None
    hole = Hole(
        segment=segment.base_offset,
        position=segment.size if first is None else first.position,
        start_offset=log.end_offset if first is None else first.start_offset,
        end_offset=log.end_offset if found is None else found[1].base_offset,
        end_position=None if found is None else found[0],
        was_durable=is_whole or found is not None or first is not None,
        reason=reason if first is None else first.reason,
    )
    if first is not None:
        log.holes.remove(first)
    log.holes.append(hole)
    segment.crc = UNKNOWN_CRC
    if found is None:
        return False
    segment.size, log.end_offset = found[0], found[1].base_offset
    return True
