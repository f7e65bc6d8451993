"""The parts of a replica that proposals need, as protocols. All on the loop of the replica."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from kraftlib.codec.declarations import Message
from kraftlib.errors import NotLeaderError
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset, ReplicaId

APPLIED: Final = 3
"""The level at which results come along. The levels are those of `kraftlib.runtime.waiters`."""


class Proposed(NamedTuple):
    """The place of appended values. The fields are those of `kraftlib.runtime.waiters.Appended`."""

    base_offset: Offset
    last_offset: Offset
    """Inclusive."""
    epoch: Epoch
    results: tuple[Any, ...] = ()


class UnansweredError(Exception):
    """The leader gave no answer. It never leaves this package and its adapters."""

    def __init__(self, reason: str, *, may_have_arrived: bool, is_final: bool = False) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived
        """Whether the leader may have appended the values."""
        self.is_final = is_final
        """Whether this leader will never take such a request."""


class LocalReplica(Protocol):
    """This replica."""

    @property
    def node_id(self) -> ReplicaId:
        """Its number."""
        ...

    @property
    def cluster_id(self) -> str | None:
        """The id of its cluster, if it is known."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it cancels what is under way, because it closes or has failed."""
        ...

    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """Return the leader and epoch, and where the leader is reached, if that is known."""
        ...

    def follows(self, level: int) -> bool:
        """Whether an append of `level` would be refused here for no other reason than that another replica leads."""
        ...

    def not_leader(self) -> NotLeaderError:
        """Return the error that says who leads instead."""
        ...

    def append(self, values: Sequence[bytes], level: int) -> asyncio.Future[Any]:
        """Append here; the future has the `Proposed`. Raises as `RaftClient.append` does, also through the future."""
        ...

    def ask(self, leader_id: ReplicaId, endpoint: Endpoint, request: Message) -> asyncio.Future[Message]:
        """Ask another replica; the future has the answer, or UnansweredError."""
        ...

    def applied(self, offset: Offset, epoch: Epoch) -> asyncio.Future[Any]:
        """Return a future that is done once the record at `offset` was applied here.

        The leader says that it is committed; `epoch` is that of the record.
        """
        ...
