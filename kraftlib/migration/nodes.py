"""The nodes of Kafka in ZooKeeper, as JSON. Errors name the path of a node that is not as Kafka writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kraftlib.compat.kazoo.source import Source
from kraftlib.errors import ConfigError

SHOWN_MAX: Final = 80
DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""Python raises these where a node is not as it should be. A ConfigError is a ValueError."""


class Nodes:
    """The nodes below one path, which is Kafka's chroot."""

    def __init__(self, source: Source, top: str, progress: Callable[[int], object] = lambda count: None) -> None:
        """`progress` is told of each node that is read."""
        self._top: Final = top.rstrip("/")
        self._source: Final = source
        self._children: Final = source.children()
        self._progress: Final = progress

    def children(self, path: str) -> list[str]:
        """Return the names of the children, in order; none, if there is no such node."""
        return self._children.get(self._top + path, [])

    def version(self, path: str) -> int:
        """Return how often the data of a node was changed."""
        return self._source.nodes[self._top + path].version

    def sessions(self, path: str) -> list[str]:
        """Return the names of the ephemeral children: those whose sessions last."""
        prefix = f"{self._top}{path}/"
        return sorted(one.removeprefix(prefix) for one in self._source.ephemeral_paths if one.startswith(prefix))

    def is_empty(self, path: str) -> bool:
        """Whether a node has no data, or is not there."""
        node = self._source.nodes.get(self._top + path)
        return node is None or not node.data

    @contextmanager
    def reading(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the JSON object of a node.

        Raises: ConfigError with its path, also for an error within the block that comes from what the node holds.
        """
        data = self._source.nodes[self._top + path].data or b""
        self._progress(1)
        try:
            found = json.loads(data)
            if not isinstance(found, dict):
                raise TypeError("it is no object")
            yield found
        except DAMAGE as error:
            told = f"{data[:SHOWN_MAX]!r} ({error!r})"
            raise ConfigError(f"{self._top}{path} is not as Kafka writes it: {told}") from error
