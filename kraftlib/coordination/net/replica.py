"""`kraftlib.open`: this process is a replica, runs the machine, and serves it to clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import attrs

from kraftlib.config import RaftConfig
from kraftlib.coordination.access import LINEARIZABLE, Change, Consistency, Done, Machine
from kraftlib.coordination.arguments import check_bytes, check_consistency, check_since
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.net.server import WAIT_MAX_MS, AccessServer
from kraftlib.coordination.net.service import PULL_MAX_BYTES, Pull
from kraftlib.errors import ConfigError
from kraftlib.runtime.client.arguments import check_config, check_protocol
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.listener import StateMachine
from kraftlib.types import Offset
from kraftlib.validators import check_whole_timeout

RETRY_S: Final = 0.05

DIGEST_INTERVAL_MS: Final = 20_000
"""The default of `digest_interval_ms` for the machine of sessions, keys and locks: two equal states of it make equal
snapshots."""


def open(config: RaftConfig | str | Path, *, machine: Machine | None = None, **options: Any) -> ReplicaAccess:
    """Return the access of a replica in this process; use it in an `async with`, which starts and closes the replica.

    `config` is a configuration, or the path of a TOML file. `machine` is a `StateMachine` of your own that also is a
    `kraftlib.coordination.access.Machine`; by default sessions, keys and locks. `options` are those of `RaftClient`.

    Raises: ConfigError.
    """
    if isinstance(config, str | Path):
        config = RaftConfig.from_toml(config)
    if not check_config(config).private_apis:
        raise ConfigError("private_apis=False: a replica that serves clients needs these APIs; leave it at true")
    if machine is None and config.digest_interval_ms is None:
        config = attrs.evolve(config, digest_interval_ms=DIGEST_INTERVAL_MS)
    return ReplicaAccess(config, machine if machine is not None else ServiceMachine(), options)


class ReplicaAccess:
    """The machine of the replica in this process. It is a `kraftlib.coordination.access.Access`."""

    def __init__(self, config: RaftConfig, machine: Machine, options: dict[str, Any]) -> None:
        if not isinstance(machine, StateMachine):
            raise ConfigError(f"machine={machine!r} must be a StateMachine, too")
        check_protocol("machine", machine, Machine)
        self._server: Final = AccessServer(machine)
        self.client: Final[RaftClient[bytes]] = RaftClient(
            config, state_machine=machine, service=self._server, **options
        )
        """The replica: its status, voters and snapshots."""

    async def __aenter__(self) -> ReplicaAccess:
        await self.client.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the replica gracefully."""
        await self.client.close()

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have a command committed and applied. See `Access.call`."""
        check_bytes("command", command)
        check_whole_timeout(timeout_ms, least=1)
        return await self._server.do(self._server.service.call(command, timeout_ms=timeout_ms))

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Ask the applied state. See `Access.query`."""
        check_bytes("question", question)
        check_consistency(consistency)
        check_whole_timeout(timeout_ms, least=1)
        asked = self._server.service.query(question, consistency=consistency, timeout_ms=timeout_ms)
        return await self._server.do(asked)

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes. See `Access.watch`."""
        check_bytes("selector", selector)
        position = check_since(since)
        while True:
            try:
                (pulled,) = await self._server.do(self._pull(Pull(selector, position)))
            except TimeoutError:
                await asyncio.sleep(RETRY_S)  # no leader has said yet what is committed now
                continue
            if pulled.error is not None:
                raise pulled.error
            position = pulled.next_since
            for change in pulled.changes:
                yield change

    async def _pull(self, pull: Pull) -> Any:
        never, most = asyncio.get_running_loop().create_future(), PULL_MAX_BYTES
        return await self._server.service.pull([pull], max_wait_ms=WAIT_MAX_MS, max_bytes=most, interrupted=never)
