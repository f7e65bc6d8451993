"""Logs for the tests of analysis: any batches that hypothesis thinks of, as segments with or without an index."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kraftlib.metadata import TopicRecord, encode_record
from kraftlib.records.batch import CONTROL, Batch, assemble, read_batches
from kraftlib.records.compression import Codec, compress
from kraftlib.records.control import ControlType, encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord
from kraftlib.records.record import Header, Record, encode_block
from kraftlib.storage.log.index import index_of
from kraftlib.types import OffsetAndEpoch

BASE_MS = 1_700_000_000_000

HEADERS = st.builds(Header, st.text(max_size=3), st.none() | st.binary(max_size=3))
VALUES = st.none() | st.binary(max_size=8) | st.integers(100, 300).map(bytes) | st.just(
    encode_record(TopicRecord(name="t"), 0)
)  # fmt: skip
CODECS = st.sampled_from(list(Codec))


def batch_of(
    records: Sequence[Record], *, epoch: int = 1, codec: Codec = Codec.NONE, base_timestamp: int = BASE_MS
) -> Batch:
    """Return records, whose offsets follow from the first, as one batch of any producer."""
    block = encode_block(records, base_offset=records[0].offset, base_timestamp=base_timestamp)
    if codec is not Codec.NONE:
        block = compress(codec, block)
    newest = max(record.timestamp for record in records)
    return assemble((block,), len(records), codec, base_timestamp, newest, records[0].offset, epoch)


def values_batch(values: Sequence[bytes], *, base_offset: int = 0, epoch: int = 1, codec: Codec = Codec.NONE) -> Batch:
    """Return values as one batch."""
    records = [Record(base_offset + index, BASE_MS + base_offset, None, value) for index, value in enumerate(values)]
    return batch_of(records, epoch=epoch, codec=codec)


@st.composite
def log_batches(draw: st.DrawFn, *, max_size: int = 12) -> list[Batch]:
    """A log: epochs rise now and then, each begun by its leader; records with everything that the format allows."""
    offset = draw(st.sampled_from([0, 0, 7, 2**40]))
    epoch, out = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, max_size))):
        if draw(st.integers(0, 4)) == 0:
            epoch += draw(st.integers(0, 2))
            message = LeaderChangeMessage(leader_id=1)
            out.append(encode_control_batch([message], timestamp_ms=BASE_MS, base_offset=offset, epoch=epoch))
        else:
            records = [
                Record(
                    offset + index,
                    BASE_MS + draw(st.integers(-3, 3) | st.integers(-(2**33), 2**33)),
                    draw(st.none() | st.binary(max_size=4)),
                    draw(VALUES),
                    tuple(draw(st.lists(HEADERS, max_size=2))),
                )
                for index in range(draw(st.integers(1, 4)))
            ]
            out.append(batch_of(records, epoch=epoch, codec=draw(CODECS)))
        offset = out[-1].end_offset
    return out


def write_log(
    directory: Path, batches: Sequence[Batch], *, cuts: Iterable[int] = (), index: bool = False
) -> list[Path]:
    """Write batches as segments that end before the batches numbered `cuts`."""
    directory.mkdir(parents=True, exist_ok=True)
    edges = sorted({0, *cuts, len(batches)})
    paths = []
    for first, last in pairwise(edges):
        members = batches[first:last]
        path = directory / f"{members[0].base_offset:020d}.log"
        path.write_bytes(b"".join(bytes(batch.data) for batch in members))
        if index:
            path.with_suffix(".index").write_bytes(index_of(members[0].base_offset, members).offset_entries())
        paths.append(path)
    return paths


def write_snapshot(directory: Path, values: Sequence[bytes], *, at: OffsetAndEpoch, footer: bool = True) -> Path:
    """Write values as a checkpoint."""
    header = encode_control_batch([SnapshotHeaderRecord()], timestamp_ms=BASE_MS, epoch=at.epoch)
    data = [bytes(header.data)]
    if values:
        data.append(bytes(values_batch(values, base_offset=1, epoch=at.epoch).data))
    if footer:
        end = encode_control_batch(
            [SnapshotFooterRecord()], timestamp_ms=BASE_MS, base_offset=1 + len(values), epoch=at.epoch
        )
        data.append(bytes(end.data))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{at.offset:020d}-{at.epoch:010d}.checkpoint"
    path.write_bytes(b"".join(data))
    return path


def plain_rows(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Return what the view `records` must say of batches, read one by one."""
    rows = []
    for batch in batches:
        for record in batch.records(max_bytes=1 << 30):
            control = int.from_bytes((record.key or b"")[2:4]) if batch.attributes & CONTROL else None
            rows.append(
                {
                    "offset": record.offset,
                    "epoch": batch.epoch,
                    "timestamp": None if record.timestamp == -1 else utc(record.timestamp),
                    "control": batch.is_control,
                    "control_type": None if control is None else ControlType(control).name.lower(),
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": header.key, "value": header.value} for header in record.headers],
                    "batch_base": batch.base_offset,
                    "crc_ok": True,
                    "problem": None,
                }
            )
    return rows


PLAIN_COLUMNS = "offset epoch timestamp control control_type key value headers batch_base crc_ok problem".split()


def utc(millis: int) -> datetime.datetime:
    """Return ms since 1970 as a date."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=millis)


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Return what the view `records` must say of sound bytes."""
    return plain_rows(read_batches(data))
