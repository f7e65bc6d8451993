"""The frames that real Kafka sent, from tests/data."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftlib.codec.reader import Reader

DATA = Path(__file__).parent / "data"
RELEASES = ("kafka-4.3.1", "kafka-3.9.2")


def pairs(release: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of `wire` (with Kafka's own parse) or `life` (all of them), frames as bytes."""
    with gzip.open(DATA / release / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            pair = json.loads(line)
            pair["request"] = bytes.fromhex(pair["request"])
            pair["response"] = bytes.fromhex(pair["response"] or "")
            yield pair


def logs() -> list[Path]:
    """Return every segment and checkpoint of which we have Kafka's dump."""
    return sorted(Path(str(dump).removesuffix(".dump.txt")) for dump in DATA.rglob("*.dump.txt"))


def log_records(path: Path) -> Iterator[tuple[int, bool, bytes, bytes]]:
    """Yield offset, whether it is a control record, key and value of each record, by the plainest of readers."""
    log = Reader(path.read_bytes())
    while log.remaining:
        base_offset = log.int64()
        batch = Reader(log.read_bytes(log.int32()))
        batch.skip(9)
        is_control = bool(batch.int16() & 0x20)
        batch.skip(34)
        for _ in range(batch.int32()):
            record = Reader(batch.read_bytes(batch.varint()))
            record.skip(1)
            record.varlong()
            offset = base_offset + record.varint()
            key, value = (record.read_bytes(max(record.varint(), 0)) for _ in range(2))
            yield offset, is_control, key, value


def dumped_records(path: Path) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each record, as Kafka's dump tool printed it."""
    for line in Path(f"{path}.dump.txt").read_text("utf-8").splitlines():
        if match := re.match(r"\| offset: (\d+) .*? headerKeys: \[\] (.*)", line):
            yield int(match[1]), match[2]
