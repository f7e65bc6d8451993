"""`kraftlib.open` and `kraftlib.connect`: the recipes on a replica in this process, or on replicas elsewhere.

    async with kraftlib.open("replica-1.toml") as kraft:
        async with kraft.election("scheduler") as term: ...

Both have one face, and `kraftlib.blocking` has it for threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.coordination.access import LINEARIZABLE, Change, Consistency, Done, Machine
from kraftlib.coordination.net import client, replica
from kraftlib.errors import ConfigError
from kraftlib.recipes.face import TIMEOUT_MS, TTL_MS, Recipes
from kraftlib.recipes.signals import ExitAtSigterm
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint, Offset


class Kraft(Recipes):
    """The recipes, and the way in that they use, which is entered and left with them.

    The session is opened when a recipe first needs it: until then a replica waits for no leader. With a machine of your
    own there are `call`, `query` and `watch`, and no recipes: those need the machine of kraftlib.
    """

    def __init__(
        self, access: replica.ReplicaAccess | client.ClientAccess, *, owner: str, ttl_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(access, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms)
        self._access = access
        self._exit = ExitAtSigterm()

    @property
    def replica(self) -> RaftClient[bytes]:
        """The replica in this process: its status, voters and snapshots. Raises: ConfigError, where there is none."""
        if not isinstance(self._access, replica.ReplicaAccess):
            raise ConfigError("this is a client of replicas elsewhere: use kraftlib.open for one in this process")
        return self._access.client

    async def __aenter__(self) -> Kraft:
        await self._access.__aenter__()
        self._exit.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            self._exit.__exit__(kind, error, trace)

    async def close(self) -> None:
        """End the session, and with it all that it holds; then close the replica, or the connection."""
        try:
            await super().close()
        finally:
            await self._access.close()

    # --- the way in: `kraftlib.coordination.access.Access` -----------------------------------------------------------

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have a command committed and applied. See `Access.call`."""
        return await self._access.call(command, timeout_ms=timeout_ms)

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Ask the applied state. See `Access.query`."""
        return await self._access.query(question, consistency=consistency, timeout_ms=timeout_ms)

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes. See `Access.watch`."""
        async for change in self._access.watch(selector, since):
            yield change


def open(
    config: RaftConfig | str | Path,
    *,
    machine: Machine | None = None,
    owner: str = "",
    ttl_ms: int = TTL_MS,
    timeout_ms: int = TIMEOUT_MS,
    **options: Any,
) -> Kraft:
    """Return what runs a replica in this process; use it in an `async with`, which starts and closes the replica.

    `config` is a configuration, or the path of a TOML file. `machine` is a `StateMachine` of your own that also is a
    `kraftlib.coordination.access.Machine`; by default sessions, keys and locks. `owner` names this process to others;
    its locks and ephemeral keys are free `ttl_ms` after it was last heard of; a call looks for a leader for
    `timeout_ms`. `options` are those of `RaftClient`. Raises: ConfigError.
    """
    access = replica.open(config, machine=machine, **options)
    return Kraft(access, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms)


def connect(
    servers: str | Iterable[Endpoint],
    *,
    tls: TlsConfig | None = None,
    sasl: SaslConfig | None = None,
    owner: str = "",
    ttl_ms: int = TTL_MS,
    timeout_ms: int = TIMEOUT_MS,
) -> Kraft:
    """Return a client of replicas elsewhere; use it in an `async with`. It connects when it is first asked.

    `servers` are replicas that were opened with `kraftlib.open`: `host:port` or `unix:/path`, separated by commas.
    `tls` and `sasl` are the tables `[tls]` and `[sasl]` of a configuration; the rest is as of `open`.
    Raises: ConfigError.
    """
    access = client.connect(servers, tls=tls, sasl=sasl)
    return Kraft(access, owner=owner, ttl_ms=ttl_ms, timeout_ms=timeout_ms)
