"""A hole: records that were in the log and are missing."""

from __future__ import annotations

from kraftlib.frozen import immutable
from kraftlib.types import Offset


@immutable(kw_only=True)
class Hole:
    """Records that were there and are not: [start_offset, end_offset), all in one segment."""

    segment: Offset
    """Base offset of the segment that they belong to."""
    position: int
    """Where they begin in its file."""
    start_offset: Offset
    end_offset: Offset
    end_position: int | None = None
    """Where the next whole batch stands; None if the hole reaches to the end of the segment."""
    was_durable: bool = True
    """Whether anything says that this was durable once, so that it is no torn tail."""
    reason: str
    """The finding at this place, for people."""
