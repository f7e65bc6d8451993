"""Checks the files at the end of the demo."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import attrs

from kraftlib.cli.dump_batches import FoundBatch, walk
from kraftlib.errors import KraftError

Acknowledged = Mapping[str, tuple[str, int]]
"""Key -> value and offset."""


class Disagreement(KraftError):
    """Something that must hold does not."""


@attrs.frozen
class Compared:
    """The amount of data that was found equal."""

    offsets: int
    batches: int


def missing(acknowledged: Acknowledged, items: Mapping[str, str]) -> list[str]:
    """Return the acknowledged keys that `items` lacks, or holds with another value."""
    return [key for key, (value, _) in acknowledged.items() if items.get(key) != value]


def compare_logs(partitions: Sequence[Path], end_offset: int, acknowledged: Acknowledged) -> Compared:
    """Walk the segments of all replicas side by side up to `end_offset`.

    Raises: Disagreement, if a batch differs in one byte, does not follow the one before, or does not fit its checksum;
    or if an acknowledged record does not stand at its offset.
    """
    offset = batches = 0
    found: dict[int, tuple[str, str]] = {}
    for row in zip_longest(*(_batches(partition, end_offset) for partition in partitions)):
        first = row[0]
        if first is None or any(batch is None or batch.data != first.data for batch in row):
            where = [None if batch is None else (batch.base_offset, batch.last_offset, batch.crc) for batch in row]
            raise Disagreement(f"the logs differ from offset {offset} on: {where}")
        if first.base_offset != offset or not first.is_valid:
            raise Disagreement(f"batch at offset {first.base_offset} does not follow offset {offset}, or is damaged")
        offset, batches = first.last_offset + 1, batches + 1
        if not first.is_control:
            found.update((record.offset, _item(record.value)) for record in first.records())
    if offset != end_offset:
        raise Disagreement(f"the logs end at offset {offset}, not at {end_offset}")
    for key, (value, at) in acknowledged.items():
        if found.get(at) != (key, value):
            raise Disagreement(f"{key!r} was acknowledged at offset {at}, where the logs have {found.get(at)}")
    return Compared(offset, batches)


def _batches(partition: Path, end_offset: int) -> Iterator[FoundBatch]:
    for segment in sorted(partition.glob("*.log")):
        for batch in walk(segment):
            if isinstance(batch, FoundBatch) and batch.base_offset < end_offset:
                yield batch


def _item(value: bytes | None) -> tuple[str, str]:
    item = json.loads(value or b"{}")
    return item["key"], item["value"]
