"""The files that hold a log: segments and checkpoints, their replica, and the facts in their names."""

from __future__ import annotations

import enum

import attrs

Log = tuple[str | None, str | None, int | None]
"""Cluster, topic, partition."""


class Kind(enum.Enum):
    """The kinds of files."""

    LOG = "log"
    SNAPSHOT = "snapshot"
    BOOTSTRAP = "bootstrap"


@attrs.frozen(kw_only=True)
class Labels:
    """The replica of the file; None if neither the path nor a meta.properties names it."""

    cluster: str | None = None
    replica: str | None = None
    topic: str | None = None
    partition: int | None = None


@attrs.frozen(kw_only=True)
class LogFile:
    """A segment or a checkpoint. Small, and can be sent to another process."""

    root: str
    """The URI at which `path` is found; empty for local files."""
    path: str
    kind: Kind
    offset: int
    """Base offset of a segment, end offset of a checkpoint."""
    epoch: int | None
    """Epoch of a checkpoint."""
    size: int
    """Bytes to be read; the file may have grown since."""
    labels: Labels
    from_offset: int | None = None
    """Where the rows of a segment begin, if a snapshot stands for those before."""
    is_followed_by_snapshot: bool = False
    """Whether a checkpoint stands for the records between it and the next segment, as in an archive."""
    next_offset: int | None = None
    """Base offset of the segment that follows in its directory; None for the last, and for checkpoints."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """The path without its last part."""
        return self.path.rpartition("/")[0]

    @property
    def is_last(self) -> bool:
        """Whether it is the newest segment of its directory, which may grow."""
        return self.kind is Kind.LOG and self.next_offset is None
