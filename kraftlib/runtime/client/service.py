"""The requests that an application serves on the port of its replica, beside those of the protocol.

    RaftClient(config, service=service)     service.begin(node), requests, service.end()

The network reads the requests, authenticates and authorizes their senders, and answers ApiVersions. `begin` says what
takes the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kraftlib.codec.versions import Versions

if TYPE_CHECKING:
    from kraftlib.runtime.client.node import Node


class Companion(Protocol):
    """Works for a state machine on the replica that runs it. All calls come on the loop of the engine."""

    def begin(self, node: Node) -> None:
        """Begin: the parts of the replica are there, and no record is applied yet. Raises: ConfigError."""
        ...

    def end(self) -> None:
        """Stop: the node closes, or does not start."""
        ...


class Service(Protocol):
    """Answers requests of clients beyond those of a replica. All calls come on the loop of the engine."""

    served: Mapping[int, Versions]
    """The versions that it answers, by API. An API of the replica that stands here too is the application's."""

    def begin(self, node: Node) -> None:
        """Say what takes the requests of each API in `served`, by `node.router.serve` or `node.network.serve`."""
        ...

    def end(self) -> None:
        """Stop: the node closes, or does not start."""
        ...
