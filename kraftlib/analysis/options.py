"""The options of a reader, as text or as values.

Spark passes any option through, so a misspelt one would silently read everything: every name and value is checked here,
and the error says what was meant. Names are Spark's, in camel case, and their case does not matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.analysis.layout import checked_layout, with_storage_options
from kraftlib.analysis.other_names import instead_of, translated
from kraftlib.analysis.schemas import REPORTS, VIEWS
from kraftlib.analysis.value_decoder import decoder_name
from kraftlib.errors import ConfigError

if TYPE_CHECKING:
    from kraftlib.analysis.entities import Entity

MODES: Final = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
INCLUDES: Final = ("log", "snapshot", "latest", "all")
TAILS: Final = ("ignore", "fail")
JSON: Final = "json"

MIB: Final = 1 << 20
CHUNK_BYTES: Final = 8 * MIB
"""Larger chunks leave the processor's cache, smaller ones pay for numpy's calls: both were measured to be slower."""

_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": MIB, "mb": MIB, "g": 1 << 30, "gb": 1 << 30}
_MAX: Final = 2**63 - 1
_MILLIS_MAX: Final = 253_402_300_799_999
_MEMORY_MAX: Final = 1 << 30


@attrs.frozen(kw_only=True)
class Range:
    """Half-open; None is no bound."""

    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        return self.start is not None or self.end is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can lie in it."""
        return self.start is not None and self.end is not None and self.start >= self.end

    def __and__(self, other: Range) -> Range:
        starts = [bound for bound in (self.start, other.start) if bound is not None]
        ends = [bound for bound in (self.end, other.end) if bound is not None]
        return Range(start=max(starts, default=None), end=min(ends, default=None))


@attrs.frozen(kw_only=True)
class Bounds:
    """Which records of logs are asked for. Of snapshots, which stand for a state, all rows are given."""

    offset: Range = Range()
    epoch: Range = Range()
    timestamp: Range = Range()
    """Ms since 1970. Records without a timestamp lie in no range."""

    def __and__(self, other: Bounds) -> Bounds:
        return Bounds(
            offset=self.offset & other.offset,
            epoch=self.epoch & other.epoch,
            timestamp=self.timestamp & other.timestamp,
        )

    @property
    def are_empty(self) -> bool:
        """Whether no record can be within."""
        return self.offset.is_empty or self.epoch.is_empty or self.timestamp.is_empty


@attrs.frozen(kw_only=True)
class ReadOptions:
    """Everything that can be asked of a reader; each field has an option of the same name."""

    path: str = ""
    """A directory, a file, a glob or a URI; or several of them as a JSON list."""
    view: str = "records"
    columns: tuple[str, ...] | None = None
    """Fewer columns cost less; None is all but those that must be asked for."""
    include: str = "log"
    """`log`, `snapshot` (all of them), `latest` (the newest and the log behind it), or `all`."""
    bounds: Bounds = Bounds()
    """Options startOffset, endOffset, startTimestamp, endTimestamp (half-open), minEpoch, maxEpoch (inclusive)."""
    mode: str = "FAILFAST"
    """The treatment of damage: an error, a row that says so, or nothing."""
    tail: str = "ignore"
    """Whether a batch that is cut short at the very end of a log is one being written, or damage."""
    verify_crc: bool = True
    contiguous: bool = True
    """Whether offsets have no gaps, as in every metadata log; false for a compacted topic."""
    decode: str | None = None
    """Kafka's metadata records: `json` adds a column `record`; a name, as TopicRecord, adds the fields of that type."""
    value_decoder: str | None = None
    """`package.module:function` of yours that makes the column `record` of values: see `analysis.value_decoder`."""
    layout: str | None = None
    """The pattern of directory names, such as `{cluster}/{replica}/{topic}-{partition}`: see `analysis.layout`."""
    max_inflated_bytes: int = 64 * MIB
    """The largest decompressed size of a batch."""
    chunk_bytes: int = CHUNK_BYTES
    max_partition_bytes: int = 128 * MIB
    parallelism: int = 0
    """Processors to feed; 0 is those of this machine."""
    pin: tuple[tuple[str, int], ...] | None = None
    """Files and how much of each is read, as `kraftlib.analysis.splits.pin` gives them."""
    pushdown: bool = False
    """Let Spark's filters prune. Sound for one query of a DataFrame only: see `kraftlib.spark.lookup`."""
    about: frozenset[Entity] | None = None
    """Keep records of Kafka's metadata about these things only, topics by their ids: `broker:3,config:TOPIC:events`; or
    a JSON list, as `["quota:client-id=a,user=b"]`."""
    at_offset: int | None = None
    """For reports: the state before this offset."""
    at_timestamp: int | None = None
    """For reports: the state at this time, ms since 1970."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options that `given` spells. Raises: ConfigError that names the option, its value and the remedy."""
    values: dict[str, Any] = {}
    bounds: dict[str, dict[str, int]] = {"offset": {}, "epoch": {}, "timestamp": {}}
    for name, text in translated(given).items():
        known = _KNOWN.get(name.lower())
        if known is None:
            raise ConfigError(f"there is no option {name!r}{_remedy(name)}")
        field, read = known
        try:
            value = read(str(text))
        except ValueError as error:
            raise ConfigError(f"option {_NAMES[name.lower()]}={text!r}: {error}") from error
        kind, dot, side = field.partition(".")
        if dot:
            bounds[kind][side] = value
        else:
            values[field] = value
    storage = values.pop("storage", {})
    paths = values.pop("paths", ())
    if paths and values.get("path"):
        raise ConfigError(f"path={values['path']!r} and paths={list(paths)!r}: give one of them")
    if paths:
        values["path"] = paths[0] if len(paths) == 1 else json.dumps(paths)
    if storage:
        if len(paths) > 1:
            raise ConfigError("storageOptions goes with one path: write the options into the URIs, as s3://…?region=x")
        values["path"] = with_storage_options(values.get("path", ""), storage)
    values["bounds"] = Bounds(**{kind: Range(**sides) for kind, sides in bounds.items()})
    _check_bounds(bounds)
    options = ReadOptions(**values)
    for_records = {"decode": options.decode, "valueDecoder": options.value_decoder, "about": options.about}
    for_reports = {"atOffset": options.at_offset, "atTimestamp": options.at_timestamp}
    for views, wanted in ((("records",), for_records), (tuple(REPORTS), for_reports)):
        for name, value in wanted.items():
            if value is not None and options.view not in views:
                raise ConfigError(f"the option {name} is for {' or '.join(views)}, not for the view {options.view!r}")
    if options.decode is not None and options.value_decoder is not None:
        raise ConfigError("decode and valueDecoder both make the column 'record': give one of them")
    return options


def _check_bounds(bounds: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse bounds between which nothing can lie: an empty answer would look like a log without such records."""
    for kind, (first, last), least in (
        ("offset", ("startOffset", "endOffset"), 0),
        ("timestamp", ("startTimestamp", "endTimestamp"), 0),
        ("epoch", ("minEpoch", "maxEpoch"), 1),
    ):
        start, end = bounds[kind].get("start"), bounds[kind].get("end")
        if start is not None and end is not None and end - start < least:
            raise ConfigError(f"{first}={start} is beyond {last}={end - least}: nothing lies between them")


def _remedy(name: str) -> str:
    instead = instead_of(name)
    if instead is not None:
        return f": {instead}"
    near = get_close_matches(name.lower(), _KNOWN, n=1)
    known = ", ".join(sorted(_NAMES.values()))
    return (f"; did you mean {_NAMES[near[0]]!r}?" if near else ";") + f" known are: {known}"


# Values --------------------------------------------------------------------------------------------


def _one_of(*allowed: str, fold: Callable[[str], str] = str.lower) -> Callable[[str], str]:
    def read(text: str) -> str:
        value = fold(text.strip())
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return value

    return read


def _flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _once(text: str) -> bool:
    if text.strip().lower() == "true":
        raise ValueError(
            "Spark keeps what the first filter left, and later queries of the same DataFrame would lack rows: ask with"
            " kraftlib.spark.lookup, or say 'once' and ask once"
        )
    return _one_of("never", "once")(text) == "once"


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text.strip(), re.ASCII) or int(text) > _MAX:
        raise ValueError("expected a whole number that is not negative")
    return int(text)


def _number_above(text: str) -> int:
    return _number(text) + 1


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise ValueError("expected a number of bytes, as 8388608, 8m or 1g")
    size = int(match[1]) * _UNITS[match[2]]
    if size < 1:
        raise ValueError("expected at least one byte")
    return size


def _bytes_in_memory(text: str) -> int:
    size = _bytes(text)
    if size > _MEMORY_MAX:
        raise ValueError("expected at most 1g: Arrow counts the bytes of an array in 32 bits")
    return size


def _timestamp(text: str) -> int:
    """Return ms since 1970 from a number of them or an ISO 8601 date; without a zone it is UTC."""
    if re.fullmatch(r"-?[0-9]{1,18}", text.strip(), re.ASCII):
        return _millis(text.strip())
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("expected ms since 1970, or a time as 2026-11-21T10:08:58Z") from None
    return to_millis(moment)


def _millis(text: str) -> int:
    """Return a number as ms since 1970. Raises: ValueError for one that was surely meant otherwise."""
    number = int(text)
    if re.fullmatch(r"(19|20)[0-9]{6}", text):
        raise ValueError(f"as ms since 1970 that is an evening in January: write {text[:4]}-{text[4:6]}-{text[6:]}")
    if len(text) == 10 and number > 0:
        raise ValueError(f"as ms since 1970 that is a day in {_day(number)}: are they seconds? Write {text}000")
    if number > _MILLIS_MAX:
        raise ValueError("as ms since 1970 that is beyond the year 9999: are they micro- or nanoseconds?")
    return number


def _day(millis: int) -> str:
    return f"{datetime.fromtimestamp(millis / 1_000, UTC):%B %Y}"


def to_millis(moment: datetime) -> int:
    """Return ms since 1970, rounded down; a moment without a zone is in UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _decode(text: str) -> str | None:
    name = text.strip()
    if name.lower() in ("", "none"):
        return None
    if name.lower() == JSON:
        return JSON
    from kraftlib.metadata import RECORDS

    known = [record.__name__ for record in RECORDS.values()]
    named_by_dump = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", one).upper(): one for one in known}
    name = named_by_dump.get(name, name)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"expected json, or the name of a record of Kafka's metadata, as TopicRecord{hint}")
    return name


def _about(text: str) -> frozenset[Entity]:
    from kraftlib.analysis.entities import parse_entity

    is_list = text.lstrip().startswith("[")
    names = _listed(text, 'expected names, or a JSON list of them, as ["topic:a"]') if is_list else _names(text)
    return frozenset(map(parse_entity, names))


def pin_text(pins: Sequence[tuple[str, int]]) -> str:
    """Return pins as the text of an option."""
    return json.dumps([[path, size] for path, size in pins], separators=(",", ":"))


def _pin(text: str) -> tuple[tuple[str, int], ...]:
    try:
        return tuple((str(path), int(size)) for path, size in json.loads(text))
    except (TypeError, ValueError):
        raise ValueError("expected what kraftlib.spark.pin gave") from None


def _paths(text: str) -> tuple[str, ...]:
    return _listed(text, 'expected a JSON list of paths, as ["/a", "/b"]')


def _listed(text: str, expected: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(one, str) and one for one in names):
        raise ValueError(expected)
    return tuple(names)


def _storage(text: str) -> dict[str, str]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, (str, int, bool)) for value in given.values()):
        raise ValueError('expected JSON of names and values, as {"endpoint_override": "minio:9000", "scheme": "http"}')
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "path": ("path", str),
    "paths": ("paths", _paths),
    "view": ("view", _one_of(*VIEWS)),
    "columns": ("columns", _names),
    "include": ("include", _one_of(*INCLUDES)),
    "startOffset": ("offset.start", _number),
    "endOffset": ("offset.end", _number),
    "startTimestamp": ("timestamp.start", _timestamp),
    "endTimestamp": ("timestamp.end", _timestamp),
    "minEpoch": ("epoch.start", _number),
    "maxEpoch": ("epoch.end", _number_above),
    "mode": ("mode", _one_of(*MODES, fold=str.upper)),
    "tail": ("tail", _one_of(*TAILS)),
    "verifyCrc": ("verify_crc", _flag),
    "contiguous": ("contiguous", _flag),
    "decode": ("decode", _decode),
    "valueDecoder": ("value_decoder", decoder_name),
    "layout": ("layout", checked_layout),
    "storageOptions": ("storage", _storage),
    "maxInflatedBytes": ("max_inflated_bytes", _bytes_in_memory),
    "chunkBytes": ("chunk_bytes", _bytes_in_memory),
    "maxPartitionBytes": ("max_partition_bytes", _bytes),
    "parallelism": ("parallelism", _number),
    "pin": ("pin", _pin),
    "pushdown": ("pushdown", _once),
    "about": ("about", _about),
    "atOffset": ("at_offset", _number),
    "atTimestamp": ("at_timestamp", _timestamp),
}
_NAMES: Final = {name.lower(): name for name in _OPTIONS}
_KNOWN: Final = {name.lower(): known for name, known in _OPTIONS.items()}
OPTION_NAMES: Final = tuple(_OPTIONS)
