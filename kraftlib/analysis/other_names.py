"""Options that a user of Spark knows from its own sources, or from our streams, and their counterparts for a table."""

from __future__ import annotations

from typing import Final

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
    "startingoffsets": _OF_A_STREAM,
    "endingoffsets": "a table has endOffset",
    "startingtimestamp": "a table has startTimestamp",
    "endingtimestamp": "a table has endTimestamp",
    "maxoffsetspertrigger": _OF_A_STREAM,
    "maxrecordspertrigger": _OF_A_STREAM,
    "maxbytespertrigger": _OF_A_STREAM,
    "failondataloss": "it is for a stream; a table has mode",
}


def instead_of(name: str) -> str | None:
    """Return what to do instead of giving an option of that name; None, if no other source has it."""
    return _INSTEAD.get(name.lower())
