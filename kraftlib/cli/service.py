"""Answers the requests on the line port of a process: one method per kind of request, and errors as answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kraftlib.errors import ConfigError, KraftError, NotLeaderError
from kraftlib.runtime.client.raft_client import RaftClient

Method = Callable[[Any], Awaitable[Any]]


class Service:
    """Answers requests, each an object with the name of one method: `{"get": "a"}` -> `{"get": ...}`.

    `{"status": true}` is always there: the replica's own status.
    A failure is an answer, too: `{"error": "NotLeaderError", "message": "...", "leader": 2}`.
    """

    def __init__(self, client: RaftClient[Any]) -> None:
        self.client = client
        self._methods: dict[str, Method] = {}
        self.offer("status", self._status)

    def offer(self, name: str, method: Method) -> None:
        """Answer requests of this name."""
        self._methods[name] = method

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one request."""
        name = next((name for name in self._methods if name in request), None)
        try:
            if name is None:
                raise ConfigError(f"a request has one of {', '.join(sorted(self._methods))}")
            return {name: await self._methods[name](request[name])}
        except (KraftError, TimeoutError) as error:
            leader = {"leader": error.leader.leader_id} if isinstance(error, NotLeaderError) else {}
            return {"error": type(error).__name__, "message": str(error), **leader}

    async def _status(self, _: Any) -> dict[str, Any]:
        return self.client.status().to_dict()
