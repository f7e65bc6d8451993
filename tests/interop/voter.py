"""A replica of ours as a process of its own: `python -m tests.interop.voter CONFIG.toml`.

It prints where it takes orders, one JSON object a line (`kraftlib.cli.lines`): `status`, `append`, `load`, `leaders`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import signal
import sys
from typing import Any

from kraftlib.cli.lines import LineServer
from kraftlib.cli.run import told_to_stop, until
from kraftlib.cli.service import Service
from kraftlib.config import RaftConfig
from kraftlib.errors import KraftError, OutcomeUnknownError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.listener import Listener
from kraftlib.types import Endpoint, LeaderAndEpoch


class Orders(Listener):
    """What a test may ask of the replica; it also keeps what it has heard of leaders."""

    def __init__(self) -> None:
        self.leaders: list[tuple[int, int]] = []
        self.client: RaftClient[bytes]

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Keep it."""
        if leader.leader_id is not None:
            self.leaders.append((leader.epoch, leader.leader_id))

    async def seen_leaders(self, _: Any) -> list[tuple[int, int]]:
        """Return (epoch, leader) in the order in which they were announced."""
        return self.leaders

    async def append(self, wanted: Any) -> dict[str, int]:
        """Append texts, or bytes in hex, atomically."""
        values = [text.encode() for text in wanted.get("values", [])] + [
            bytes.fromhex(text) for text in wanted.get("hex", [])
        ]
        appended = await self.client.append(values)
        return {"base_offset": appended.base_offset, "last_offset": appended.last_offset, "epoch": appended.epoch}

    async def load(self, wanted: Any) -> dict[str, Any]:
        """Append `count` values one by one, some at a time; return those that were acknowledged with their offsets.

        Ends early when leadership is lost.
        """
        acknowledged: dict[str, int] = {}
        unknown: list[str] = []
        over = asyncio.Event()
        names = iter(range(wanted["count"]))

        async def caller() -> None:
            for number in names:
                value = f"{wanted['prefix']}-{number}"
                try:
                    acknowledged[value] = (await self.client.append_one(value.encode())).base_offset
                except OutcomeUnknownError:
                    unknown.append(value)
                    over.set()
                except KraftError:
                    over.set()
                if over.is_set():
                    return

        await asyncio.gather(*(caller() for _ in range(wanted.get("callers", 8))))
        return {"acknowledged": acknowledged, "unknown": unknown}

    async def resign(self, epoch: Any) -> bool:
        """Give up leadership."""
        self.client.resign(epoch)
        return True

    async def snapshot(self, wanted: Any) -> str:
        """Write a snapshot of the texts `values` that ends at `offset`."""
        values = [text.encode() for text in wanted["values"]]
        return str(await self.client.create_snapshot(values, offset=wanted["offset"]))


async def run(config: RaftConfig) -> None:
    """Serve until SIGTERM, then shut down gracefully."""
    stop = told_to_stop()
    orders = Orders()
    client: RaftClient[bytes] = RaftClient(config, listener=orders)
    orders.client = client
    service = Service(client)
    service.offer("append", orders.append)
    service.offer("load", orders.load)
    service.offer("leaders", orders.seen_leaders)
    service.offer("resign", orders.resign)
    service.offer("snapshot", orders.snapshot)
    server = LineServer(service.answer)
    async with client:
        endpoint = await server.start(Endpoint("127.0.0.1", 0))
        print(f"orders {json.dumps({'port': endpoint.port})}", flush=True)
        try:
            await until(stop, client.wait_closed())
        finally:
            await server.close()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a test that gets no answer asks where we are
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(run(RaftConfig.from_toml(sys.argv[1])))
