"""Keep what a quorum forgets: an archive follows it, and has every record although the quorum compacts its log.

`kraftlib archive follow` does the same from a terminal, for a Kafka cluster as well. Here the quorum is one voter in a
directory of its own, so that the example is complete; `follow` finds it by its address, as it would find any other.

    python examples/archive.py
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path

from kraftlib import RaftClient, RaftConfig, format_directory
from kraftlib.archive import describe, follow, open_archive, verify


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def main(home: Path) -> None:
    """Write, archive, write more while nobody archives, archive again."""
    format_directory(home / "voter", node_id=1, cluster_id="orders", static_voters=[1])
    voters = f"1@127.0.0.1:{free_port()}"
    config = RaftConfig.from_mapping({"node_id": 1, "directory": home / "voter", "voters": voters})
    archive = open_archive(home / "history", cluster_id="orders")

    voter: RaftClient[bytes] = RaftClient(config)
    async with voter:
        await voter.wait_for_leader(timeout_ms=10_000)
        for values in ([b"created", b"paid"], [b"sent"]):
            end_offset = (await voter.append(values)).last_offset + 1
            # Until there, and no further; without `until_offset` it goes on until `stop` is set.
            done = await follow(archive, [voter.endpoint], stop=asyncio.Event(), until_offset=end_offset)
            print(f"archived up to offset {done.end_offset} of epoch {done.epoch}")

    print("the archive holds", [(held.start_offset, held.end_offset) for held in describe(archive).ranges])
    print("problems:", verify(archive).problems)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
