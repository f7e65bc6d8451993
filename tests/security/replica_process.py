"""A child process with one replica that is its own leader, and something in its log.

`python -m tests.security.replica_process MEBIBYTES [DIRECTORY]`. With a directory it speaks TLS: `cert.pem`, `key.pem`
and `ca.pem` are there, and `OBSERVER` may read the log. It prints its port, and then for each line that it reads the
number of bytes of its memory that are resident.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.security.access import AccessConfig
from kraftlib.security.limits import TcpLimits
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint

OBSERVER = "spiffe://test/observer"
LIMITS = TcpLimits(answers_max_bytes=32 * 1024 * 1024, voter_connections_max=128, connections_per_address_max=128)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(mebibytes: int, files: Path | None) -> None:
    """Serve until the input ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = RaftConfig(
        node_id=1,
        voters=(StaticVoter(1, Endpoint("127.0.0.1", port)),),
        cluster_id="test",
        engine="inline",
        limits=LIMITS,
        tls=None if files is None else TlsConfig(cert=files / "cert.pem", key=files / "key.pem", ca=files / "ca.pem"),
        access=AccessConfig(observers=(OBSERVER,)),
    )
    async with RaftClient[bytes](config) as client:
        await client.wait_for_leader()
        for _ in range(mebibytes):
            await client.append_one(os.urandom(1024 * 1024))
        print(port, flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(resident_bytes(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None))
