"""Logs of replicas, compared by their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kraftlib.records.batch import Batch, read_batches


def batches(partition: Path) -> Iterator[Batch]:
    """Yield the batches in the segments of a directory, as the files have them."""
    for path in sorted(partition.glob("*.log")):
        yield from read_batches(path.read_bytes(), drop_incomplete=True, origin=0)


def committed(partition: Path, end_offset: int) -> dict[int, bytes]:
    """Return the bytes of each batch below `end_offset`, by base offset."""
    return {batch.base_offset: bytes(batch.data) for batch in batches(partition) if batch.last_offset < end_offset}


def assert_equal_logs(*partitions: Path, end_offset: int, start_offset: int = 0) -> int:
    """Check that all logs have the same bytes at the same offsets; return how many batches that were.

    `start_offset` is where the shortest of them begins, be it because of a snapshot.
    """
    first, *others = (
        {o: d for o, d in committed(path, end_offset).items() if o >= start_offset} for path in partitions
    )
    for path, other in zip(partitions[1:], others, strict=True):
        differing = [offset for offset in sorted({*first, *other}) if first.get(offset) != other.get(offset)]
        assert differing == [], f"{partitions[0]} and {path} differ at offsets {differing[:10]}"
    assert first, f"nothing below {end_offset} in {partitions[0]}"
    return len(first)


def epochs_have_one_leader(leaders: list[list[tuple[int, int]]]) -> bool:
    """Whether whatever was heard, by whomever, names one leader for each epoch."""
    known: dict[int, int] = {}
    return all(known.setdefault(epoch, leader) == leader for heard in leaders for epoch, leader in heard)


def values(partition: Path) -> dict[int, bytes]:
    """Return the values of the data records in a log, by offset."""
    found: dict[int, bytes] = {}
    for batch in batches(partition):
        if not batch.is_control:
            found.update(enumerate(batch.values(), batch.base_offset))
    return found
