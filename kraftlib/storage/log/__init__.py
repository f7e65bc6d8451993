"""The log in files: a chain of segments with their indexes, the newest batches in memory, epochs, and notes.

`chain` grows and cuts the segments, and `open_files` are those that it writes to; each `segment` has an `index`. The
newest batches stay in the `tail`, and which epoch starts where stands in `epochs`. The `sync_point` has the durable end
of the log, `prefix` the results of a scan, and `unsynced` the fact that a sync has failed. The `spare` is the next
segment, filled with zeros. The `growing_log` is made of all of them.

`FileReplicatedLog`, which is made of that log, its damage and its snapshots, can be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlib.storage.file_log import FileReplicatedLog as FileReplicatedLog


def __getattr__(name: str) -> object:
    """Import the log when it is asked for: it stands on the modules of this package."""
    if name == "FileReplicatedLog":
        from kraftlib.storage.file_log import FileReplicatedLog

        return FileReplicatedLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
