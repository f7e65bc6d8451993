"""StateDigest (30007): replicas compare the states of their state machines. Private, not Kafka's."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)
from kraftlib.wire.bounds import DIFFERING, DIGEST_BYTES, DIGESTS


@message(kind="request", api_key=30_007, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class StateDigestRequest(Message):
    """Tells the newest digests of a replica and asks for those of another one."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    replica_id: int = int32("0+", default=-1)
    """-1: a tool that only asks."""
    snapshot_from: int = int64("0+", default=-1)
    """A quarantined replica wants a snapshot of the leader that ends at this offset or later; -1 wants none."""
    digests: tuple[Digest, ...] = array("Digest", "0+", most=DIGESTS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Digest(Struct):
        """The state of a state machine that has applied everything below an offset."""

        offset: int = int64("0+")
        snapshot_version: int = int32("0+")
        """States are compared only where this is equal: releases may write the same state in other bytes."""
        sha256: bytes = binary("0+", most=DIGEST_BYTES)


@message(kind="response", api_key=30_007, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class StateDigestResponse(Message):
    """The newest digests of a replica, and those that it knows of the others."""

    error_code: int = int16("0+")
    is_quarantined: bool = boolean("0+")
    differing: tuple[int, ...] = array("int32", "0+", most=DIFFERING)
    """Other replicas whose state was not that of the majority when they were compared last."""
    agreed_offset: int = int64("0+", default=-1)
    """The newest offset at which this replica has the state of a majority; -1 if there was none yet."""
    undecided_offset: int = int64("0+", default=-1)
    """The newest offset at which states differ and none has a majority; -1 if there is none."""
    digests: tuple[Digest, ...] = array("Digest", "0+", most=DIGESTS)
    snapshot_id: SnapshotId = struct("SnapshotId", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Digest(Struct):
        """As in the request."""

        offset: int = int64("0+")
        snapshot_version: int = int32("0+")
        sha256: bytes = binary("0+", most=DIGEST_BYTES)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class SnapshotId(Struct):
        """The snapshot of the leader that was asked for; -1 if there is none yet."""

        end_offset: int = int64("0+", default=-1)
        epoch: int = int32("0+", default=-1)
