"""The requests of kazoo's client on a tree: each with the result that its caller expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError, UnimplementedError
from kazoo.protocol.serialization import (
    Auth,
    Create,
    Create2,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    SetACL,
    SetData,
    Sync,
    Transaction,
)
from kazoo.security import OPEN_ACL_UNSAFE

from kraftlib.compat.kazoo.nodes import Node
from kraftlib.compat.kazoo.tree import FailedOperation, Tree, as_results
from kraftlib.compat.kazoo.watches import Place, Watches
from kraftlib.recipes.session import Session
from kraftlib.types import Offset


class Requests:
    """Carries out the requests of one session."""

    def __init__(self, client: Any, session: Session, watches: Watches) -> None:
        self._client = client
        self._tree = Tree(session)
        self._watches = watches
        self._has_warned = False
        self.seen: Offset = 0
        """The highest offset that an answer was as of."""

    async def carry_out(self, request: Any) -> Any:
        """Return the result as kazoo's client expects it. Raises: KazooException, and errors of a session."""
        self._warn_of_access(request)
        match request:
            case Create() | Create2() | SetData() | Delete():
                try:
                    (result,) = await self._tree.commit([request])
                except FailedOperation as failed:
                    raise failed.error from failed
                return result
            case Transaction(operations=operations):
                return await self._transact(operations)
            case Exists() | GetData() | GetChildren() | GetChildren2():
                return await self._read(request)
            case GetACL(path=path) | SetACL(path=path):
                stat = _needed((await self._tree.read(path))[1]).stat
                return stat if isinstance(request, SetACL) else (OPEN_ACL_UNSAFE, stat)
            case Sync(path=path):
                return path  # every read is linearizable
            case Auth():
                return True
        raise UnimplementedError(f"{type(request).__name__} has no meaning for a quorum of kraftlib")

    def _warn_of_access(self, request: Any) -> None:
        """Say once that what the program asks for does not protect its nodes."""
        operations = request.operations if isinstance(request, Transaction) else [request]
        asks = any(isinstance(one, Auth | SetACL) or _acl(one) != OPEN_ACL_UNSAFE for one in operations)
        if asks and not self._has_warned:
            self._has_warned = True
            self._client.logger.warning(
                "ACLs and add_auth have no effect: kraftlib authorizes connections, by their role, and not nodes"
            )

    async def _transact(self, operations: Sequence[Any]) -> list[Any]:
        try:
            results = await self._tree.commit(operations)
        except FailedOperation as failed:
            results = list(as_results(failed, len(operations)))
        return list(Transaction.unchroot(self._client, results))

    async def _read(self, request: Any) -> Any:
        of_children = isinstance(request, GetChildren | GetChildren2)
        offset, node = await self._tree.read(request.path)
        self.seen = max(self.seen, offset)
        if request.watcher and (node is not None or isinstance(request, Exists)):
            place = Place(request.path, of_children)
            await self._watches.add(place, request.watcher, since=offset, exists=node is not None)
        if isinstance(request, Exists):
            return None if node is None else node.stat
        node = _needed(node)
        if isinstance(request, GetData):
            return node.record.data, node.stat
        children = list(node.children)
        return (children, node.stat) if isinstance(request, GetChildren2) else children


def _acl(request: Any) -> list[Any]:
    return list(getattr(request, "acl", OPEN_ACL_UNSAFE))


def _needed(node: Node | None) -> Node:
    if node is None:
        raise NoNodeError
    return node
