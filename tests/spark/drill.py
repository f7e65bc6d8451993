"""A query without Spark: what its engine does with a stream, in the order in which it does it, and nothing else.

Offsets are written before a batch runs and its commit after; a batch whose commit is missing runs again, between the
same offsets. Run as a process of its own, to be killed at any moment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from kraftlib.spark.stream import StreamReader
from kraftlib.spark.stream_options import parse_stream_options


def write(path: Path, told: Any) -> None:
    """Write a file durably, all or nothing."""
    partial = path.with_suffix(".part")
    with partial.open("w") as stream:
        json.dump(told, stream)
        stream.flush()
        os.fsync(stream.fileno())
    partial.rename(path)


def numbers(directory: Path) -> list[int]:
    """Return the numbers of the batches of which there is a file."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def main(home: Path, options: dict[str, str]) -> None:
    """Run batches until killed."""
    offsets, commits, output = (home / name for name in ("offsets", "commits", "output"))
    reader = StreamReader(parse_stream_options(options, ("offset", "value")))
    while True:
        number = max(numbers(commits), default=-1) + 1
        start = json.loads((offsets / str(number - 1)).read_text()) if number else reader.initialOffset()
        if not (offsets / str(number)).exists():
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                continue
            write(offsets / str(number), end)
        end = json.loads((offsets / str(number)).read_text())
        rows = [
            [row["offset"], row["value"].hex()]
            for partition in reader.partitions(start, end)
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]
        if (output / str(number)).exists() and json.loads((output / str(number)).read_text()) != rows:
            write(home / "differs", number)
        write(output / str(number), rows)
        write(commits / str(number), {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
