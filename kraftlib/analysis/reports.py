"""Topics, partitions, brokers and the rest of a Kafka cluster as they were after any record of its log.

    report("/archive/cluster=c/replica=1", "partitions", at_offset=1_000).to_pandas()

The state at an offset is the newest checkpoint at or below it and the log between, folded record by record as Kafka's
own brokers do it; a partition's change is a delta and a removed topic takes its partitions along, so "the last value of
each key" would be wrong. A time is turned into an offset first: all before the first record that is later.

Consumer groups are not in the metadata log; Kafka keeps them in a topic of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import pyarrow as pa

from kraftlib.analysis.columns import Table
from kraftlib.analysis.log_files import Kind, LogFile
from kraftlib.analysis.options import Bounds, Range, ReadOptions, pin_text
from kraftlib.analysis.reading import options_of, read, read_table
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.schemas import REPORTS
from kraftlib.analysis.splits import chosen_files
from kraftlib.codec.declared import read as read_message
from kraftlib.errors import ConfigError, ProtocolError, StorageError
from kraftlib.metadata import decode_record
from kraftlib.metadata.image import ClusterImage
from kraftlib.records.control_messages import SnapshotHeaderRecord
from kraftlib.types import uuid_text

FOLDED: Final = ("origin", "offset", "control", "value")
"""The columns of the records that folding needs."""


def report(
    path: str | os.PathLike[str],
    what: str,
    *,
    at_offset: int | None = None,
    at_timestamp: object = None,
    **options: object,
) -> Any:
    """Return a table of `what` (a key of REPORTS) as of an offset, which is exclusive, or a time; else as of the end.

    Raises: ConfigError, if the log does not reach back that far; StorageError for a record that cannot be folded.
    """
    check_report(what)
    return report_for(options_of(path, **options, view=what, atOffset=at_offset, atTimestamp=at_timestamp))


def report_for(options: ReadOptions) -> Any:
    """As `report`, for options of which `view` says what is wanted."""
    check_one_log(options)
    parts = parts_as_of(options, offset_at(options))
    image = folded((table for part in parts for table in read(part)), parts)
    return rows_of(image, options.view)


def check_report(what: str) -> None:
    """Refuse what no report is about. Raises: ConfigError."""
    if what not in REPORTS:
        hint = "; they are not in the metadata log, but in the topic __consumer_offsets" if "group" in what else ""
        raise ConfigError(f"there is no report of {what!r}{hint}: there are {', '.join(REPORTS)}")


def offset_at(options: ReadOptions) -> int | None:
    """Return the offset before which everything counts; None is the end of the log.

    Raises: ConfigError for a time before the log begins: its state then is not empty but unknown.
    """
    moment = options.at_timestamp
    if moment is None:
        return options.at_offset
    if options.at_offset is not None:
        raise ConfigError("atOffset or atTimestamp: one of them says as of when")
    later = read_table(options.path, view="batches", columns="base_offset", startTimestamp=moment + 1)
    # A batch is folded whole or not at all: all its records have one timestamp in KRaft.
    end: int | None = min(later["base_offset"].to_pylist(), default=None)
    if end is not None:
        _check_begun(options, end, moment)
    return end


def _check_begun(options: ReadOptions, end: int, moment: int) -> None:
    """Check that something at `end`, the first offset after `moment`, is of that time: a record, or a checkpoint."""
    files = chosen_files(attrs.evolve(options, include="all", view="records"))
    if end > min(file.offset for file in files if file.kind is Kind.LOG):
        return
    usable = [f for f in files if f.kind is Kind.SNAPSHOT and 0 < f.offset <= end]
    base = max(usable, key=lambda f: (f.offset, f.epoch or 0), default=None)
    if base is None:
        raise ConfigError(f"{options.path} has no record as old as {_text_of(moment)}: its log begins later, at {end}")
    pinned = pin_text(pins_of([base]))
    header = read_table(options.path, include="snapshot", pin=pinned, columns="control_type,value").to_pylist()[0]
    last_ms = read_message(SnapshotHeaderRecord, header["value"], 0).last_contained_log_timestamp
    if last_ms > moment:
        raise ConfigError(
            f"{options.path} cannot tell the state at {_text_of(moment)}: its log begins at {end}, and the checkpoint"
            f" {base.name} is of {_text_of(last_ms)}; an archive keeps everything"
        )


def _text_of(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1_000, UTC).isoformat(timespec="milliseconds")


def parts_as_of(options: ReadOptions, end: int | None) -> list[ReadOptions]:
    """Return what is to be read for the state before offset `end`: a checkpoint, if any, and the log behind it.

    Raises: ConfigError, if the log begins too late for that.
    """
    files = chosen_files(attrs.evolve(options, include="all", view="records"))
    usable = [f for f in files if f.kind is Kind.SNAPSHOT and (end is None or f.offset <= end)]
    base = max(usable, key=lambda f: (f.offset, f.epoch or 0), default=None)
    segments = [f for f in files if f.kind is Kind.LOG]
    start = 0 if base is None else base.offset
    check_reach(options.path, segments, start, end)
    common = attrs.evolve(options, view="records", columns=FOLDED, decode=None, pushdown=False)
    parts = []
    if base is not None:
        parts.append(attrs.evolve(common, include="snapshot", pin=((base.path, base.size),), bounds=Bounds()))
    if segments and (end is None or end > start):
        bounds = Bounds(offset=Range(start=start, end=end))
        parts.append(attrs.evolve(common, include="log", pin=pins_of(files), bounds=bounds))
    return parts


def pins_of(files: Iterable[LogFile]) -> tuple[tuple[str, int], ...]:
    """Return files and sizes as a pin, so that every part sees the same log."""
    return tuple((file.path, file.size) for file in files)


def check_reach(path: str, segments: list[LogFile], start: int, end: int | None) -> None:
    """Check that the log has all records from `start` on. Raises: ConfigError with the offsets."""
    first = min((file.offset for file in segments), default=None)
    if first is None or first <= start or (end is not None and end <= start):
        return
    raise ConfigError(
        f"{path} cannot tell the state as of {'its end' if end is None else f'offset {end}'}: its log begins at"
        f" {first}, and no checkpoint stands for the records before it; an archive keeps everything"
    )


def folded(tables: Iterable[Table], parts: Sequence[ReadOptions]) -> ClusterImage:
    """Return the state after the records of `parts`, which come in their order.

    Raises: StorageError for a record that does not fit, and for offsets that are missing.
    """
    image = ClusterImage()
    wanted = next((part.bounds.offset for part in parts if part.include == "log"), Range())
    expected = wanted.start or 0
    for table in tables:
        for origin, offset, control, value in zip(*(table[name].to_pylist() for name in FOLDED), strict=True):
            if origin == "log":
                _check_next(offset, expected)
                expected = offset + 1
            if not control and value is not None:
                _apply(image, value, f"{offset} of the {origin}")
    if wanted.end is not None:
        _check_next(wanted.end, expected)
    return image


def _check_next(offset: int, expected: int) -> None:
    if offset != expected:
        raise StorageError(f"the log has nothing from offset {expected} up to {offset}: the state there cannot be told")


def _apply(image: ClusterImage, value: bytes, where: str) -> None:
    try:
        image.apply(decode_record(value)[0])
    except ProtocolError as error:
        raise StorageError(f"the record at {where} cannot be folded: {error}") from error
    if image.faults:
        raise StorageError(f"the record at {where} does not fit: {image.faults[0]}")


def rows_of(image: ClusterImage, what: str) -> Any:
    """Return the state as a table of `what`."""
    return pa.Table.from_pylist(list(_ROWS[what](image)), schema=REPORTS[what])


def _topics(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for topic in sorted(image.topics.values(), key=lambda found: found.name):
        yield {"name": topic.name, "id": uuid_text(topic.topic_id), "partitions": len(topic.partitions)}


def _partitions(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for topic in sorted(image.topics.values(), key=lambda found: found.name):
        for number, partition in sorted(topic.partitions.items()):
            yield {
                "topic": topic.name,
                "partition": number,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "under_replicated": len(partition.isr) < len(partition.replicas),
            }


def _brokers(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for number, broker in sorted(image.brokers.items()):
        yield {
            "id": number,
            "epoch": broker.epoch,
            "rack": broker.rack,
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "endpoints": _places(broker.endpoints),
        }


def _controllers(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for number, places in sorted(image.controllers.items()):
        yield {"id": number, "endpoints": _places(places)}


def _configs(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for resource, entries in sorted(image.configs.items()):
        for name, value in sorted(entries.items()):
            yield {"resource": resource, "name": name, "value": value}


def _features(image: ClusterImage) -> Iterator[dict[str, Any]]:
    for name, level in sorted(image.features.items()):
        yield {"name": name, "level": level}


def _places(endpoints: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={place}" for name, place in sorted(endpoints.items()))


_ROWS: Final[dict[str, Callable[[ClusterImage], Iterator[dict[str, Any]]]]] = {
    "topics": _topics,
    "partitions": _partitions,
    "brokers": _brokers,
    "controllers": _controllers,
    "configs": _configs,
    "features": _features,
}
