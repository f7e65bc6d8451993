"""Explains what a table would read. Spark's own `explain()` shows only name and columns of a source in Python.

print(explain("/archive", startOffset=1000, columns="offset,epoch"))
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import attrs

from kraftlib.analysis.options import Bounds
from kraftlib.analysis.reading import options_of, schema_for, text_options
from kraftlib.analysis.schemas import REPORTS
from kraftlib.analysis.splits import Split, plan

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def explain(path: str | os.PathLike[str], **options: object) -> str:
    """Return path, options, columns, and how many files, bytes, splits and tasks are read, of how many there are.

    Nothing but names, sizes and indexes is looked at. Raises: ConfigError, as reading does.
    """
    asked = options_of(path, **options)
    given = text_options(options)
    lines = {
        "path": asked.path,
        "view": asked.view,
        "columns": ", ".join(schema_for(asked).names),
        "options": ", ".join(f"{name}={text}" for name, text in given.items()) or "none",
    }
    if asked.view in REPORTS:
        lines["reads"] = "the newest checkpoint and the log behind it, folded by one task"
    else:
        left = plan(asked)
        there = [split for group in plan(attrs.evolve(asked, bounds=Bounds())) for split in group]
        read = [split for group in left for split in group]
        lines["reads"] = f"{_files(read)} of {_files(there)} files, {_size(read)} of {_size(there)}"
        lines["tasks"] = f"{len(left)}, {len(read)} splits"
    return "".join(f"{name:<8} {text}\n" for name, text in lines.items())


def _files(splits: Iterable[Split]) -> int:
    return len({split.file.path for split in splits})


def _size(splits: Iterable[Split]) -> str:
    size, unit = float(sum(split.size for split in splits)), 0
    while size >= 1_024 and unit + 1 < len(_UNITS):
        size, unit = size / 1_024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
