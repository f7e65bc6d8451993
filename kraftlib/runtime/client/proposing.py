"""A replica as `kraftlib.proposals` sees it, and futures of the engine's own loop.

Callers' futures belong to the loop of the host, and outcomes are posted there. A future that the engine itself waits
for must be settled on its own loop, also where the host's is blocked or has ended: `EngineFirst` tells them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.consensus.events import CommitLearned, Failure
from kraftlib.errors import NotLeaderError
from kraftlib.proposals.ports import UnansweredError
from kraftlib.runtime.own_requests import PROPOSALS, NoAnswerError
from kraftlib.runtime.waiters import Post, fulfil, settle
from kraftlib.types import Endpoint, Epoch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaId

if TYPE_CHECKING:
    from kraftlib.runtime.client.node import Node

_FINAL: Final = frozenset({Failure.UNSUPPORTED_VERSION, Failure.AUTHENTICATION})


class EngineFuture(asyncio.Future[Any]):
    """A promise that the engine's loop waits for."""


class EngineFirst:
    """Posts outcomes to the loop of the callers, and settles those of EngineFutures here."""

    def __init__(self, post: Post) -> None:
        self._post: Final = post
        self._pending = 0

    def future(self) -> EngineFuture:
        """Return a promise for the engine's own use."""
        self._pending += 1
        future = EngineFuture()
        future.add_done_callback(self._done)
        return future

    def __call__(self, function: Callable[[Any], None], argument: Any) -> None:
        """Call `function` with those items of `argument` that belong to callers."""
        if self._pending and function in (settle, fulfil):
            place = 0 if function is settle else 3
            ours = [item for item in argument if type(item[place]) is EngineFuture]
            if ours:
                function(ours)
                argument = [item for item in argument if type(item[place]) is not EngineFuture]
                if not argument:
                    return
        self._post(function, argument)

    def _done(self, _: asyncio.Future[Any]) -> None:
        self._pending -= 1


def engine_future(node: Node, ask: Callable[[EngineFuture], object]) -> EngineFuture:
    """Call `ask` with a future of the engine's own, and return it. One that is cancelled is withdrawn."""
    future = node.engine_first.future()
    try:
        ask(future)
    except BaseException:
        future.cancel()
        raise
    future.add_done_callback(lambda future: node.withdraw(future) if future.cancelled() else None)
    return future


class NodeReplica:
    """A node, as `kraftlib.proposals.ports.LocalReplica`."""

    def __init__(self, node: Node) -> None:
        self._node: Final = node

    @property
    def node_id(self) -> ReplicaId:
        """Its number."""
        return self._node.core.key.id

    @property
    def cluster_id(self) -> str | None:
        """The id of its cluster."""
        return self._node.core.state.cluster_id

    @property
    def has_ended(self) -> bool:
        """Whether what is under way is cancelled."""
        return self._node.callers.have_ended

    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """Return the leader and epoch, and where the leader is reached."""
        return self._node.core.leader_and_epoch, self._node.core.state.leader_endpoint

    def follows(self, level: int) -> bool:
        """Whether an append would be refused here only because another replica leads."""
        return self._node.is_running and self._node.appends.follows(level)

    def not_leader(self) -> NotLeaderError:
        """Return the error that says who leads instead."""
        return self._node.appends.not_leader()

    def append(self, values: Sequence[bytes], level: int) -> asyncio.Future[Any]:
        """Append here."""
        self._node.ensure_running()
        return engine_future(self._node, partial(self._node.appends.append, values, None, level))

    def ask(self, leader_id: ReplicaId, endpoint: Endpoint, request: Message) -> asyncio.Future[Message]:
        """Ask another replica, over the connection of forwarded appends."""
        return asyncio.ensure_future(self._ask(leader_id, endpoint, request))

    async def _ask(self, leader_id: ReplicaId, endpoint: Endpoint, request: Message) -> Message:
        try:
            return await self._node.router.own.ask(leader_id, endpoint, request, lane=PROPOSALS)
        except NoAnswerError as error:
            failure = error.failure
            raise UnansweredError(
                failure.value, may_have_arrived=error.may_have_arrived, is_final=failure in _FINAL
            ) from None

    def applied(self, offset: Offset, epoch: Epoch) -> asyncio.Future[Any]:
        """Tell the core that the record at `offset` is committed; the future is done once it was applied here."""
        self._node.executor.submit(CommitLearned(OffsetAndEpoch(offset=offset + 1, epoch=epoch)))
        return engine_future(self._node, partial(self._node.wait_for_offset, offset))
