"""One replica of the chaos run: a process that embeds `RaftClient` with a store of registers, as a service would.

    python -m tests.chaos.replica -c CONFIG [--plant BUG]

It says on stdout where clients connect (JSON lines) and ends at the end of stdin, so that it never outlives the run.
`--plant` puts a bug into what the *service* does with the library; the judges must find it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraftlib import JsonSerde, RaftClient, RaftConfig, StateMachine
from kraftlib.cli.lines import LineServer
from kraftlib.errors import ConfigError, KraftError, NotLeaderError
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.types import Endpoint, ReplicaKey, parse_endpoint, parse_uuid

STALE_READ: Final = "stale-read"
EARLY_ACK: Final = "early-ack"
PLANTS: Final = (STALE_READ, EARLY_ACK)
"""Bugs that can be planted: reads without a barrier, and puts that are acknowledged when they are appended."""


class Registers(StateMachine):
    """Named registers with put and compare-and-set."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, record: CommittedRecord) -> bool:
        """Carry out one command; return whether it changed the register."""
        command = record.value
        if "old" in command and self.values.get(command["key"]) != command["old"]:
            return False
        self.values[command["key"]] = command["value"]
        return True

    def snapshot(self) -> Iterable[Any]:
        return list(self.values.items())

    def restore(self, values: Iterable[Any]) -> None:
        self.values = dict(values)


class Service:
    """Answers what the clients and the faults of a run ask for."""

    def __init__(self, client: RaftClient[Any], registers: Registers, plant: str | None) -> None:
        self._client = client
        self._registers = registers
        self._plant = plant

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; an error is an answer, too."""
        try:
            return {"ok": await self._do(request)}
        except NotLeaderError as error:
            return {"error": "NotLeaderError", "message": str(error), "leader": error.leader.leader_id}
        except (KraftError, TimeoutError) as error:
            return {"error": type(error).__name__, "message": str(error)}

    async def _do(self, request: Mapping[str, Any]) -> Any:
        client = self._client
        match request["do"]:
            case "write":
                return await self._write(request["command"])
            case "read":
                if self._plant != STALE_READ:
                    await client.read_barrier(timeout_ms=request["limit_ms"])
                return self._registers.values.get(request["key"])
            case "status":
                return client.status().to_dict()
            case "snapshot":
                snapshot_id = await client.create_snapshot()
                return [snapshot_id.offset, snapshot_id.epoch]
            case "transfer":
                return (await client.transfer_leadership(request["to"], timeout_ms=request["limit_ms"])).epoch
            case "add_voter":
                endpoint = parse_endpoint(request["endpoint"])
                return await client.add_voter(_key_of(request), endpoint, timeout_ms=request["limit_ms"])
            case "remove_voter":
                return await client.remove_voter(_key_of(request), timeout_ms=request["limit_ms"])
            case "values":
                return self._registers.values
            case unknown:
                raise ConfigError(f"do={unknown!r} is no request of this service")

    async def _write(self, command: Mapping[str, Any]) -> bool:
        if self._plant == EARLY_ACK and "old" not in command:
            await self._client.append_one(command, wait="appended")
            return True
        return bool(await self._client.propose(command))


def _key_of(request: Mapping[str, Any]) -> ReplicaKey:
    return ReplicaKey(request["voter"], parse_uuid(request["directory_id"]))


async def _serve(config: RaftConfig, plant: str | None) -> None:
    registers = Registers()
    client: RaftClient[Any] = RaftClient(config, state_machine=registers, serde=JsonSerde())
    server = LineServer(Service(client, registers, plant).answer)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4_096) else _end(loop, ended))
    async with client:
        endpoint = await server.start(Endpoint("127.0.0.1", 0))
        print(json.dumps({"clients": str(endpoint), "directory_id": client.status().directory_id}), flush=True)
        failed = asyncio.create_task(client.wait_closed())
        told = asyncio.create_task(ended.wait())
        await asyncio.wait([failed, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        await server.close()
        await client.shutdown()
        await failed


def _end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    loop.remove_reader(sys.stdin.fileno())
    ended.set()


def main() -> None:
    """Run one replica until its parent ends it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.replica", description=__doc__)
    parser.add_argument("-c", "--config", required=True)
    parser.add_argument("--plant", choices=PLANTS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(RaftConfig.from_toml(options.config), options.plant))


if __name__ == "__main__":
    main()
