"""`python -m tools.bench.holder SERVERS TTL_MS`: holds the election of `bench --hand-over` until it is killed.

It prints a line when it leads, and then the time of the last renewal of its session that was confirmed, whenever that
is a new one: in ms, by `kraftlib.recipes.session.now_ms`, which is one clock for all processes. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

import kraftlib

NAME: Final = "bench"
LOOK_S: Final = 0.002


async def hold(servers: str, ttl_ms: int) -> None:
    """Lead until stdin ends."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: None if os.read(0, 4_096) else over.set())
    async with kraftlib.connect(servers, owner="holder", ttl_ms=ttl_ms) as kraft, kraft.election(NAME):
        session = await kraft.session()
        print("leads", flush=True)
        told = -1
        while not over.is_set():
            if session.confirmed_ms != told:
                told = session.confirmed_ms
                print(told, flush=True)
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], int(sys.argv[2])))
