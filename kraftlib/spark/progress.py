"""The lag of a stream, out of the progress that Spark reports after each batch.

class Alarm(StreamingQueryListener):
    def onQueryProgress(self, event):
        if (kraft.lag(event.progress) or 0) > 10_000:
            ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


def lag(progress: StreamingQueryProgress | Mapping[str, Any] | None) -> int | None:
    """Return how many records a query over one log is behind, after the batch that `progress` is of.

    It counts up to `latestOffset`, and up to the high watermark where the query follows a live quorum: records that are
    committed and not yet archived. None, if the progress does not say: there is none yet, the log could not be read, or
    PySpark is older than 4.2.
    """
    sources = [] if progress is None else _get(progress, "sources")
    if len(sources) != 1:
        return None
    end, latest = (_place(_get(sources[0], name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    return max(0, max(latest["offset"], latest.get("high_watermark", 0)) - end["offset"])


def _get(told: Any, name: str) -> Any:
    return told.get(name) if isinstance(told, Mapping) else getattr(told, name)


def _place(text: Any) -> dict[str, int] | None:
    """Return an offset of a stream of ours; None, if it is that of another source, or of the checkpoint of none."""
    try:
        told = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return told if isinstance(told, dict) and isinstance(told.get("offset"), int) else None
