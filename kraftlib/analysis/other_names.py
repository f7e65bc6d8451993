"""Options that a user of Spark knows from its own sources, or from our streams, and their counterparts for a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kraftlib.errors import ConfigError

_NOT_NEEDED: Final = "leave it out, since the columns are those of the view; the option columns names fewer"
_ALL_BELOW: Final = "leave it out, since everything below the path is read; the path may be a glob"
_ONE_LOG: Final = "path says where the files are"
_OF_A_STREAM: Final = "it is for a stream; a table has startOffset and endOffset"
_INSTEAD: Final = {
    "inferschema": _NOT_NEEDED,
    "header": _NOT_NEEDED,
    "mergeschema": _NOT_NEEDED,
    "multiline": _NOT_NEEDED,
    "recursivefilelookup": _ALL_BELOW,
    "pathglobfilter": _ALL_BELOW,
    "basepath": "labels come from directories as cluster=…/replica=…, or from the option layout",
    "modifiedafter": "startTimestamp is about records",
    "modifiedbefore": "endTimestamp is about records",
    "versionasof": "endOffset ends a table before an offset, and atOffset is the state of a report",
    "timestampasof": "endTimestamp ends a table before a time, and atTimestamp is the state of a report",
    "badrecordspath": "mode=PERMISSIVE gives a row for a damaged range",
    "ignorecorruptfiles": "mode=DROPMALFORMED leaves out what is damaged",
    "subscribe": _ONE_LOG,
    "subscribepattern": _ONE_LOG,
    "assign": _ONE_LOG,
    "kafka.bootstrap.servers": "a table is read from files, and a stream from a quorum by bootstrap",
    "maxfilespertrigger": "a stream has maxRecordsPerTrigger and maxBytesPerTrigger",
    "latestfirst": "a stream follows the log; startingOffsets says where it begins",
    "maxoffsetspertrigger": _OF_A_STREAM,
    "maxrecordspertrigger": _OF_A_STREAM,
    "maxbytespertrigger": _OF_A_STREAM,
    "failondataloss": "it is for a stream; a table has mode",
}
_ALREADY_SO: Final = {
    "inferschema": ("true", "false"),
    "mergeschema": ("true", "false"),
    "recursivefilelookup": ("true",),
    "ignorecorruptfiles": ("false",),
}
"""Name -> the words that ask for what a table does anyway."""
_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"
_OFFSETS: Final = {
    "startingoffsets": (_EARLIEST, "startOffset", "startTimestamp"),
    "endingoffsets": (_LATEST, "endOffset", "endTimestamp"),
}
"""Name -> the word that bounds nothing, and our options for an offset and for a time."""
_TIMES: Final = {"startingtimestamp": "startTimestamp", "endingtimestamp": "endTimestamp"}


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """Return the bounds that Spark's source of Kafka has under our names, and leave out what goes without saying.

    Raises: ConfigError, if a bound says nothing, or is given under two names.
    """
    ours = {name.lower() for name in given}
    found: dict[str, str] = {}
    for name, text in given.items():
        if str(text).strip().lower() in _ALREADY_SO.get(name.lower(), ()):
            continue
        known = _TIMES.get(name.lower()) or _place(name, str(text))
        if known is None:
            continue
        if known != name and known.lower() in ours:
            raise ConfigError(f"{name} is {known} under another name: give one of them")
        ours.add(known.lower())
        found[known] = text
    return found


def _place(name: str, text: str) -> str | None:
    """Return our option for a place in the log; None, if that is its beginning or end. Other names stay."""
    if name.lower() not in _OFFSETS:
        return name
    everything, offset, time = _OFFSETS[name.lower()]
    word = text.strip().lower()
    if word == everything:
        return None
    if word.isdecimal():
        return offset
    if word in (_EARLIEST, _LATEST):
        raise ConfigError(f"option {name}={text!r}: no record of a table lies there")
    try:
        datetime.fromisoformat(word.upper())
    except ValueError:
        raise ConfigError(
            f"option {name}={text!r} must be {everything}, an offset, or a time as 2026-11-21T10:08:58Z"
        ) from None
    return time


def instead_of(name: str) -> str | None:
    """Return what to do instead of giving an option of that name; None, if no other source has it."""
    return _INSTEAD.get(name.lower())
