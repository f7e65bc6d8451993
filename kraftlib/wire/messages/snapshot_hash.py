"""SnapshotHash (30001): are the first bytes of a snapshot the same there? Private, not Kafka's.

A follower whose leader is gone in the midst of a download may go on at the next one only if that one has the very same
bytes so far. Snapshots of Kafka's replicas differ in their timestamps; ours are the same bytes for the same state.
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, binary, int16, int32, int64, message, string


@message(kind="request", api_key=30_001, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SnapshotHashRequest(Message):
    """Asks for the SHA-256 of the first `position` bytes of a snapshot."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    replica_id: int = int32("0+", default=-1)
    end_offset: int = int64("0+")
    epoch: int = int32("0+")
    position: int = int64("0+")


@message(kind="response", api_key=30_001, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class SnapshotHashResponse(Message):
    """The hash and the size of the whole file, or why there is none."""

    error_code: int = int16("0+")
    size: int = int64("0+", default=-1)
    digest: bytes = binary("0+")
