"""Nodes of a real ZooKeeper, as an import reads them: `Source` from a running server, through kazoo's own client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kraftlib.compat.kazoo.nodes import ROOT, split
from kraftlib.errors import ConfigError, TimedOutError

AT_ONCE: Final = 200
"""Requests that are under way together."""

ANSWER_S: Final = 30.0

SERVERS_OWN: Final = "/zookeeper"
"""ZooKeeper keeps its quotas and its configuration there."""

CONTAINER: Final = -(1 << 63)
WITH_TTL: Final = 0xFF
"""Of a node that is not ephemeral the owner says its kind: this number, or this highest byte."""


@attrs.frozen(kw_only=True)
class SourceNode:
    """The part of a node that is copied."""

    data: bytes | None = None
    version: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0
    creations: int = 0
    """Children that were ever created: the next sequence number."""


@attrs.define(kw_only=True)
class Source:
    """A tree, as it was read. Nodes that changed meanwhile may be of different moments."""

    nodes: dict[str, SourceNode] = attrs.Factory(dict)
    ephemeral_paths: set[str] = attrs.Factory(set)
    """Nodes that are left out: their sessions stay with ZooKeeper."""
    special: int = 0
    """Containers and nodes with a time to live, which become ordinary nodes."""

    def children(self) -> dict[str, list[str]]:
        """Return the names of the children of each node, in order."""
        found: dict[str, list[str]] = {path: [] for path in self.nodes}
        for path in self.nodes:
            parent, name = split(path)
            if path != ROOT and parent in found:
                found[parent].append(name)
        return {path: sorted(names) for path, names in found.items()}

    @property
    def ephemeral(self) -> int:
        """The number of nodes that are left out."""
        return len(self.ephemeral_paths)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(node.data or b"") for node in self.nodes.values())

    def note(self, path: str, node: SourceNode, owner: int) -> None:
        """Take a node; `owner` is its ephemeralOwner."""
        if owner and not is_special(owner):
            self.ephemeral_paths.add(path)
            return
        self.special += owner != 0
        self.nodes[path] = node


def is_special(owner: int) -> bool:
    """Whether the owner of a node is no session but says that it is a container, or has a time to live."""
    return owner == CONTAINER or (owner >> 56) & 0xFF == WITH_TTL


def read_source(client: Any, top: str) -> Source:
    """Read the node `top` and all below it through a client of kazoo, as far as it was committed when this began.

    Raises: ConfigError, if there is no such node or it may not be read; TimedOutError.
    """
    source = Source()
    try:
        client.sync(top)
        level = [top]
        while level:
            below: list[str] = []
            for start in range(0, len(level), AT_ONCE):
                below += _read(client, level[start : start + AT_ONCE], source)
            level = below
    except (KazooException, KazooTimeoutError) as error:
        raise TimedOutError(f"ZooKeeper does not answer: {error!r}") from error
    if top not in source.nodes:
        raise ConfigError(f"ZooKeeper has no node {top!r} that is to stay: name one that is neither gone nor ephemeral")
    return source


def _read(client: Any, paths: Sequence[str], source: Source) -> Iterable[str]:
    """Read these nodes; return the paths of their children."""
    parents = []
    for path, answer in [(path, client.get_async(path)) for path in paths]:
        try:
            data, stat = answer.get(timeout=ANSWER_S)
        except NoNodeError:
            continue  # deleted meanwhile
        except NoAuthError:
            raise ConfigError(
                f"ZooKeeper does not let us read {path!r}: give --auth-file with a user who may"
            ) from None
        node = SourceNode(
            data=data,
            version=stat.version,
            ctime_ms=stat.ctime,
            mtime_ms=stat.mtime,
            creations=(stat.cversion + stat.numChildren) // 2,
        )
        source.note(path, node, stat.ephemeralOwner)
        if stat.numChildren:
            parents.append(path)
    found = []
    for path, answer in [(path, client.get_children_async(path)) for path in parents]:
        try:
            names = answer.get(timeout=ANSWER_S)
        except NoNodeError:
            continue
        found += [f"{path.rstrip('/')}/{name}" for name in names]
    return [path for path in found if path != SERVERS_OWN]
