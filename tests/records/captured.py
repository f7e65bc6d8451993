"""Files that real Kafka controllers wrote, and what Kafka's own dump tool says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

DATA: Final = Path(__file__).resolve().parent.parent / "data"

_BATCH: Final = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+) .*"
    r"partitionLeaderEpoch: (?P<epoch>\d+) .*isControl: (?P<is_control>true|false) .*"
    r"position: (?P<position>\d+) CreateTime: (?P<timestamp>\d+) size: (?P<size>\d+) magic: 2 "
    r"compresscodec: none crc: (?P<crc>\d+) isvalid: true"
)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<timestamp>\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>\d+) sequence: -1 headerKeys: \[\] (?P<content>.*)"
)
_BARE_CONTROL: Final = re.compile(r"controlType: ([A-Z_]+)\(\d\)")
_CONTROL: Final = re.compile(r"(LeaderChange|KRaftVersion|KRaftVoters|SnapshotHeader|SnapshotFooter):? (\{.*\})")


@attrs.frozen
class DumpedRecord:
    """One line of a dump that begins with a bar."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    control: tuple[str, Any] | None
    """Kafka's name of the control type, and its content; 3.9 says only the type of a leader change."""


@attrs.frozen
class DumpedBatch:
    """One line of a dump that begins with a base offset, and the records below it."""

    base_offset: int
    last_offset: int
    count: int
    epoch: int
    is_control: bool
    position: int
    timestamp: int
    size: int
    crc: int
    records: list[DumpedRecord]


def captured(pattern: str) -> list[Path]:
    """Return the captured files whose name matches; never none."""
    found = sorted(path for path in DATA.glob(f"kafka-*/**/{pattern}") if not path.name.endswith(".txt"))
    if not found:
        raise FileNotFoundError(f"no captured file is called {pattern}")
    return found


def name(path: Path) -> str:
    """Return a short name for a captured file."""
    return str(path.relative_to(DATA))


def dump_of(path: Path) -> list[DumpedBatch]:
    """Return what Kafka's dump tool says of a captured file."""
    batches: list[DumpedBatch] = []
    for line in path.with_name(f"{path.name}.dump.txt").read_text().splitlines():
        if match := _BATCH.match(line):
            batches.append(_batch(match))
        elif match := _RECORD.match(line):
            batches[-1].records.append(_record(match))
    return batches


def _batch(match: re.Match[str]) -> DumpedBatch:
    fields: dict[str, Any] = {
        key: text if key == "is_control" else int(text) for key, text in match.groupdict().items()
    }
    return DumpedBatch(**{**fields, "is_control": fields["is_control"] == "true"}, records=[])


def _record(match: re.Match[str]) -> DumpedRecord:
    return DumpedRecord(
        offset=int(match["offset"]),
        timestamp=int(match["timestamp"]),
        key_size=int(match["key_size"]),
        value_size=int(match["value_size"]),
        control=_control(match["content"]),
    )


def _control(content: str) -> tuple[str, Any] | None:
    if match := _CONTROL.fullmatch(content):
        return match[1], json.loads(match[2])
    match = _BARE_CONTROL.fullmatch(content)
    return (match[1], None) if match else None


def sizes(batch: DumpedBatch) -> Iterator[tuple[int, int, int, int]]:
    """Yield offset, timestamp, key size and value size of the records of a batch."""
    for record in batch.records:
        yield record.offset, record.timestamp, record.key_size, record.value_size
