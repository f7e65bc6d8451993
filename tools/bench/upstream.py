"""`python -m tools.bench.upstream HOST:PORT --node-id N`: an observer for `dev.py bench --tree`, in its own process.

It fetches from the leader at that address, keeps its log in memory, and serves other observers. A line says where it
listens, once it has what is committed. When stdin ends, another one says how much CPU it has used since then, in s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Final

from kraftlib.config import ENGINES, RaftConfig
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.security.limits import TcpLimits
from kraftlib.types import parse_endpoint
from tools.bench.machine import free_port

CONNECTIONS_MAX: Final = 10_000
START_MS: Final = 30_000


async def serve(leader: str, node_id: int, engine: str) -> None:
    """Follow the leader and serve observers until stdin ends."""
    place = f"127.0.0.1:{free_port()}"
    config = RaftConfig(
        node_id=node_id,
        cluster_id="bench",
        bootstrap_servers=(parse_endpoint(leader),),
        listen=parse_endpoint(place),
        engine=engine,
        limits=TcpLimits(connections_max=CONNECTIONS_MAX, connections_per_address_max=CONNECTIONS_MAX),
    )
    async with RaftClient[bytes](config) as client:
        await client.read_barrier(timeout_ms=START_MS)
        began = time.process_time()
        print(json.dumps({"place": place}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps({"cpu_s": time.process_time() - began}), flush=True)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", help="host:port of the leader")
    parser.add_argument("--node-id", type=int, required=True)
    parser.add_argument("--engine", choices=ENGINES, default="thread")
    options = parser.parse_args()
    asyncio.run(serve(options.place, options.node_id, options.engine))


if __name__ == "__main__":
    main()
