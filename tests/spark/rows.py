"""DataFrames as Arrow tables, for comparing with what the single-process twins give."""

from __future__ import annotations

from typing import Any


def table_of(frame: Any, schema: Any) -> Any:
    """Return a DataFrame as an Arrow table of this schema, its batches joined."""
    table = frame.toArrow()
    return table.select(schema.names).cast(schema).combine_chunks()
