"""Checks and counts that all logs of this package share: continuation, range, size of a read."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlib.errors import InvariantError, StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.types import Epoch, Offset


def ensure_continues(batch: Batch, end_offset: Offset, latest_epoch: Epoch) -> None:
    """Check that `batch` may follow a log that ends at `end_offset` in `latest_epoch`.

    Raises: InvariantError. The code that stamps batches, or takes them from a leader, checks before.
    """
    if batch.base_offset != end_offset or batch.epoch < latest_epoch:
        raise InvariantError(f"{batch!r} does not continue a log that ends at {end_offset} in epoch {latest_epoch}")


def ensure_readable(offset: Offset, start_offset: Offset, end_offset: Offset) -> None:
    """Check that a read may begin at `offset`: inside the log, or at its end.

    Raises: StorageError below the start, where a snapshot took the place of the records; InvariantError beyond the end.
    """
    if offset < start_offset:
        raise StorageError(f"offset {offset} is below the start of the log, {start_offset}: read the snapshot instead")
    ensure(offset <= end_offset, f"offset {offset} is beyond the end of the log, {end_offset}")


def up_to(batches: Sequence[Batch], first: int, max_bytes: int) -> Sequence[Batch]:
    """Return the batches from index `first` on that fit into `max_bytes` in all, but at least one."""
    size = len(batches[first].data)
    last, count = first + 1, len(batches)
    while last < count:
        size += len(batches[last].data)
        if size > max_bytes:
            break
        last += 1
    return batches[first:last]
