"""ZooKeeper's rules for nodes in the plainest form: dictionaries, and every operation on a copy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import attrs
from kazoo import exceptions as errors
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData


@attrs.define
class TwinNode:
    data: bytes = b""
    version: int = 0
    created: int = 0
    """Children that were ever created."""
    deleted: int = 0
    owner: object = None


class Twin:
    def __init__(self) -> None:
        self.nodes: dict[str, TwinNode] = {"/": TwinNode()}

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        rest = [other.removeprefix(prefix) for other in self.nodes if other.startswith(prefix) and other != path]
        return sorted(name for name in rest if "/" not in name)

    def end(self, owner: object) -> None:
        for path in [path for path, node in self.nodes.items() if node.owner is owner]:
            self._remove(path)

    def commit(self, operations: Sequence[Any], owner: object) -> list[Any] | tuple[int, type]:
        """Return a result for each, or the index and the class of the error of the first that fails."""
        before = copy.copy({path: copy.copy(node) for path, node in self.nodes.items()})
        results = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._do(operation, owner))
            except errors.ZookeeperError as error:
                self.nodes = before
                return index, type(error)
        return results

    def _do(self, operation: Any, owner: object) -> Any:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(path, operation, owner)
        node = self.nodes.get(path)
        if path == "/" and isinstance(operation, Delete):
            raise errors.BadArgumentsError
        if node is None:
            raise errors.NoNodeError
        if operation.version not in (-1, node.version):
            raise errors.BadVersionError
        match operation:
            case CheckVersion():
                return True
            case SetData(data=data):
                node.data, node.version = data, node.version + 1
                return node.version
        if self.children(path):
            raise errors.NotEmptyError
        self._remove(path)
        return True

    def _create(self, path: str, operation: Any, owner: object) -> str:
        above = path.rpartition("/")[0] or "/"
        parent = self.nodes.get(above)
        if parent is None:
            raise errors.NoNodeError
        if parent.owner is not None:
            raise errors.NoChildrenForEphemeralsError
        if operation.flags & 2:
            path += f"{parent.created:010}"
        if path in self.nodes:
            raise errors.NodeExistsError
        parent.created += 1
        self.nodes[path] = TwinNode(operation.data, owner=owner if operation.flags & 1 else None)
        return path

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        parent = self.nodes.get(path.rpartition("/")[0] or "/")
        if parent is not None:
            parent.deleted += 1
