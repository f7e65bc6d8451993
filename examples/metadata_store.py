"""A metadata controller inside a Python process: brokers of Apache Kafka run on it as they run on Kafka's controllers.

With a directory and an address as arguments it serves until Ctrl-C; point a broker at it with
`controller.quorum.bootstrap.servers=HOST:PORT`, and format the broker with the cluster id that is printed. Without
arguments it makes a controller in a directory of its own, says with which features its cluster begins, and ends. Three
of them, each in a process of its own, go on when one is lost: name all of them in `bootstrap_servers`.

    python examples/metadata_store.py store 127.0.0.1:9093
    python examples/metadata_store.py
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from kraftlib import Endpoint, RaftConfig
from kraftlib.controller import MetadataController, format_controller

CLUSTER_ID = "metadata-store-example"


async def serve(directory: Path, place: Endpoint, *, until_stopped: bool) -> None:
    """Run a controller here; its directory is made at the first start."""
    format_controller(directory, node_id=1, cluster_id=CLUSTER_ID, standalone=place, ignore_formatted=True)
    config = RaftConfig(node_id=1, directory=directory, listen=place, bootstrap_servers=(place,))
    async with MetadataController(config) as controller:
        await controller.wait_until_active(timeout_ms=10_000)
        features = dict(controller.state.features.levels.items())
        print(f"cluster {CLUSTER_ID} at {place}: metadata.version", features["metadata.version"], flush=True)
        if until_stopped:
            await controller.wait_closed()


async def free_place() -> Endpoint:
    """Return a place of loopback on which nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    return Endpoint(host, port)


async def main() -> None:
    """Serve where the command line says, or show that it works."""
    if len(sys.argv) > 2:
        host, _, port = sys.argv[2].rpartition(":")
        await serve(Path(sys.argv[1]), Endpoint(host, int(port)), until_stopped=True)
    else:
        with tempfile.TemporaryDirectory() as home:
            await serve(Path(home) / "controller", await free_place(), until_stopped=False)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
