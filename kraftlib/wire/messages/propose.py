"""Propose (30003): one replica asks the leader to append. Private, not Kafka's.

The response tells the outcome of the values, or the leader. Only kraftlib replicas use this API; see
docs/reference/client-protocol.md.
"""

from __future__ import annotations

from kraftlib.codec.declared import Message, Struct, array, int8, int16, int32, int64, message, string, struct
from kraftlib.frozen import frozen
from kraftlib.wire.bounds import PROPOSED_VALUES


@message(kind="request", api_key=30_003, versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class ProposeRequest(Message):
    """Values to append in one batch."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    timeout_ms: int = int32("0+")
    """The leader answers within this time."""
    level: int = int8("0+")
    """When to answer: once the values are 0 written, 1 flushed, 2 committed, 3 applied by the leader."""
    values: tuple[bytes, ...] = array("bytes", "0+", most=PROPOSED_VALUES)


@message(kind="response", api_key=30_003, versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class ProposeResponse(Message):
    """The place of the values in the log, or the reason why they have none."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "0+")
    base_offset: int = int64("0+", default=-1)
    last_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)
    results: tuple[bytes, ...] = array("bytes", "0+", most=PROPOSED_VALUES)
    """One result for each value at level 3, otherwise none; a byte says how to read it."""

    @frozen(kw_only=True, eq=False, repr=False)
    class LeaderIdAndEpoch(Struct):
        """The leader as the replica that answers knows it, and where it is reached."""

        leader_id: int = int32("0+", default=-1)
        leader_epoch: int = int32("0+", default=-1)
        host: str = string("0+")
        port: int = int32("0+")
