"""The options of a stream: those of `spark.readStream.format("kraft")`, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kraftlib.analysis.options import ReadOptions, parse_options
from kraftlib.errors import ConfigError, KraftError
from kraftlib.types import Endpoint, parse_endpoint

MAX_BYTES: Final = 16 << 20
PATIENCE_S: Final = 60.0

_OWN: Final = (
    "maxBytesPerTrigger",
    "maxRecordsPerTrigger",
    "onGap",
    "bootstrap",
    "clusterId",
    "visibility",
    "patienceMs",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
)
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BATCH_ONLY: Final = (
    "startOffset",
    "endOffset",
    "pin",
    "include",
    "startTimestamp",
    "endTimestamp",
    "minEpoch",
    "maxEpoch",
    "layout",
    "storageOptions",
)


@attrs.frozen(kw_only=True)
class StreamOptions:
    """The checked options of a stream; `reading` holds those that tables have, too."""

    reading: ReadOptions
    max_bytes: int = MAX_BYTES
    max_records: int | None = None
    snapshots: bool = False
    """Whether a checkpoint may stand for records that were compacted before they were archived (onGap=snapshot)."""
    servers: tuple[Endpoint, ...] = ()
    """Controllers of a live quorum, to be archived in `path`."""
    cluster_id: str | None = None
    uncommitted: bool = False
    """Allow the directory of a replica, which may hold records that are not committed and vanish again."""
    start: str | int | datetime = EARLIEST
    """Where a query without a checkpoint begins: earliest, latest, an offset at which a batch begins, or a time."""
    patience_s: float = PATIENCE_S
    """The time that a quorum may be unreachable at first, or an archive behind the query, before the query fails."""


_KAFKAS: Final = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "path: one stream follows one log",
    "subscribePattern": "path: one stream follows one log",
    "assign": "path: one stream follows one log",
    "startingOffsetsByTimestamp": "startingOffsets, a time",
    "startingTimestamp": "startingOffsets, a time",
    "endingOffsets": "endOffset of a table; a stream ends with trigger(availableNow=True)",
    "minOffsetsPerTrigger": "trigger(processingTime=…)",
    "groupIdPrefix": "no option: the place is kept in checkpointLocation",
    "kafka.group.id": "no option: the place is kept in checkpointLocation",
}
"""Options of Spark's source of Kafka, and their counterparts here."""


def parse_stream_options(given: Mapping[str, str], columns: tuple[str, ...] | None = None) -> StreamOptions:
    """Read the options of a stream. Raises: ConfigError that names the option and the remedy."""
    own = {name.lower(): name for name in _OWN}
    mine = {own[name.lower()]: text for name, text in given.items() if name.lower() in own}
    rest = without_stream_options(given)
    _refuse_kafkas(rest)
    _alias_limits(mine)
    for name in rest:
        if name.lower() in {one.lower() for one in _BATCH_ONLY}:
            raise ConfigError(
                f"option {name!r} is for reading a table: a stream goes on from the end in its checkpoint"
            )
    try:
        reading = parse_options(rest)
    except ConfigError as error:
        near = [match for name in rest for match in get_close_matches(name.lower(), own, n=1)]
        raise ConfigError(f"{error}{f'; or {own[near[0]]!r}, of a stream' if near else ''}") from error
    if reading.view != "records" or reading.mode != "FAILFAST":
        raise ConfigError(f"a stream has view=records and mode=FAILFAST, not {reading.view} and {reading.mode}")
    servers = tuple(parse_endpoint(part) for part in mine.get("bootstrap", "").split(",") if part)
    if mine.get("clusterId") and not servers:
        raise ConfigError("clusterId goes with bootstrap: an archive says itself whose it is")
    return StreamOptions(
        reading=attrs.evolve(reading, columns=columns if columns is not None else reading.columns),
        max_bytes=_positive(mine, "maxBytesPerTrigger", MAX_BYTES),
        max_records=_positive(mine, "maxRecordsPerTrigger", 0) or None,
        snapshots=_word(mine, "onGap", ("fail", "snapshot")) == "snapshot",
        servers=servers,
        cluster_id=mine.get("clusterId"),
        uncommitted=_word(mine, "visibility", ("committed", "uncommitted")) == "uncommitted",
        start=_start(mine.get("startingOffsets", EARLIEST).strip().lower()),
        patience_s=_positive(mine, "patienceMs", int(PATIENCE_S * 1_000)) / 1_000,
    )


def _refuse_kafkas(rest: Mapping[str, str]) -> None:
    """Refuse an option of Spark's source of Kafka, and name its counterpart."""
    for name in rest:
        instead = {known.lower(): text for known, text in _KAFKAS.items()}.get(name.lower())
        if instead is not None:
            raise ConfigError(f"option {name!r} is of Spark's source of Kafka; of this one it is {instead}")


def _alias_limits(mine: dict[str, str]) -> None:
    """Let the names of Spark's source of Kafka stand for ours. Raises: ConfigError, if both say something."""
    loss = {"true": "fail", "false": "snapshot"}
    if "failOnDataLoss" in mine:
        word = _word(mine, "failOnDataLoss", ("true", "false"))
        if mine.get("onGap", loss[word]).strip().lower() != loss[word]:
            raise ConfigError(f"failOnDataLoss={word} is onGap={loss[word]}, and onGap={mine['onGap']!r} is given, too")
        mine["onGap"] = loss[word]
    if "maxOffsetsPerTrigger" in mine:
        if "maxRecordsPerTrigger" in mine:
            raise ConfigError("maxOffsetsPerTrigger is maxRecordsPerTrigger under another name: give one of them")
        _positive(mine, "maxOffsetsPerTrigger", 0)
        mine["maxRecordsPerTrigger"] = mine["maxOffsetsPerTrigger"]


def _start(text: str) -> str | int | datetime:
    if text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdecimal() and int(text) < 2**63:
        return int(text)
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        raise ConfigError(
            f"option startingOffsets={text!r} must be earliest, latest, an offset, or a time as 2026-11-21T10:08:58Z"
        ) from None


def _positive(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) < 2**63:
        raise ConfigError(f"option {name}={text!r} must be a whole number above 0")
    return int(text)


def _word(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    word = given.get(name, allowed[0]).strip().lower()
    if word not in allowed:
        raise ConfigError(f"option {name}={word!r} must be one of {', '.join(allowed)}")
    return word


def without_stream_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that say how records are read: those of which the columns follow."""
    own = {name.lower() for name in _OWN}
    return {name: text for name, text in given.items() if name.lower() not in own}


class RefusedStream(DataSourceStreamReader):
    """Stands for a stream that cannot be: Spark (4.1 to 4.3) hides what is raised where a reader is made."""

    def __init__(self, error: KraftError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise what is wrong; so do all of its methods."""
        raise self.error

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Raise it where a query has a checkpoint."""
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise it."""
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise it."""
        raise self.error
