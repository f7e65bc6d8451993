"""The history of one item of a Kafka cluster: every record about it, with the leader and the record before it.

    for row in history("/archive", "topic:events").to_pylist(): ...

One row a change: offset, epoch, leader of that epoch (from the epoch's own first record), timestamp, the record as
JSON, and the offset of the change before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from kraftlib.analysis.entities import nothing_about, option_text, parse_entity, wanted_entities
from kraftlib.analysis.reading import options_of, read_table
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.schemas import TIMESTAMP

COLUMNS: Final = ("offset", "epoch", "timestamp", "record")
HISTORY: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("leader", pa.int32()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("record", pa.string()),
        pa.field("previous_offset", pa.int64()),
    ]
)


def history(path: str | os.PathLike[str], what: str, **options: object) -> Any:
    """Return the changes of `what` (as `topic:events`) in the log at `path`, in their order, as an Arrow table.

    Raises: ConfigError, if `what` names no kind of thing, or nothing that is in the log; and for several replicas.
    """
    asked = parse_entity(what)
    check_one_log(options_of(path, **options))
    topics = read_table(path, **{**options, "decode": "TopicRecord", "columns": "record"})["record"].to_pylist()
    named = [(topic["name"], topic["topicId"]) for topic in topics]
    wanted = wanted_entities(asked, named)
    given = {**options, "columns": COLUMNS, "decode": "json", "about": option_text(wanted)}
    found = read_table(path, **given).to_pylist()
    if not found:
        raise nothing_about(asked, os.fspath(path), named)
    leaders = leaders_of(read_table(path, **{**options, "columns": "epoch,control_type,value"}).to_pylist())
    found.sort(key=lambda row: row["offset"])
    before = None
    for row in found:
        row |= {"leader": leaders.get(row["epoch"]), "previous_offset": before}
        before = row["offset"]
    return pa.Table.from_pylist(found, schema=HISTORY)


def leaders_of(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the leader of each epoch, from the leader change records among `rows`."""
    return {row["epoch"]: leader_in(row["value"]) for row in rows if row["control_type"] == "leader_change"}


def leader_in(value: bytes) -> int:
    """Return the leader that a leader change record names: int16 version, int32 leader id."""
    return int.from_bytes(value[2:6], signed=True)
