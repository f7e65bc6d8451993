"""Batches for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.records.batch import Batch, encode_batch

TIMESTAMP = 1_700_000_000_000


def a_batch(base_offset: int, epoch: int = 1, *, records: int = 1, size: int = 20, timestamp: int = TIMESTAMP) -> Batch:
    """Return a batch of `records` values of `size` bytes that tell its offset and epoch."""
    values = [f"{base_offset + n}@{epoch}".encode().ljust(size, b".") for n in range(records)]
    return encode_batch(values, timestamp_ms=timestamp, base_offset=base_offset, epoch=epoch)


def some_batches(*epochs: int, base_offset: int = 0, records: int = 1, size: int = 20) -> list[Batch]:
    """Return one batch per epoch named, back to back."""
    batches: list[Batch] = []
    for epoch in epochs:
        batches.append(a_batch(base_offset, epoch, records=records, size=size))
        base_offset += records
    return batches


def offsets(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """Return (base offset, epoch) of each."""
    return [(batch.base_offset, batch.epoch) for batch in batches]
