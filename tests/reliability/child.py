"""A quorum of one in a process of its own, to which a real kernel can refuse things. Commands come as lines of JSON.

python -m tests.reliability.child DIRECTORY PORT
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from kraftlib import RaftConfig
from kraftlib.blocking import RaftClient
from kraftlib.config import StaticVoter
from kraftlib.errors import KraftError
from kraftlib.records.serde import BytesSerde
from kraftlib.types import Endpoint


def limit(kind: str, value: int) -> None:
    """Have the kernel refuse what goes beyond; only the soft limit, so that it can be lifted again."""
    number = {"file size": resource.RLIMIT_FSIZE, "descriptors": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}
    _, hard = resource.getrlimit(number[kind])
    resource.setrlimit(number[kind], (hard if value < 0 else value, hard))


def memory_in_use() -> int:
    """Bytes of address space in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def descriptors_in_use() -> int:
    """The number that the next descriptor will have, or a little more."""
    return max(map(int, os.listdir("/proc/self/fd"))) + 1


def obey(client: RaftClient[Any], command: dict[str, Any]) -> dict[str, Any]:
    """Do what a line says; return the answer."""
    match command["do"]:
        case "append":
            try:
                for number in range(command["count"]):
                    client.append_one(b"%s %d" % (command["name"].encode(), number))
            except KraftError as error:
                return {"error": type(error).__name__, "what": str(error)}
            return {"end": client.log_end_offset()}
        case "limit":
            used = {"file size": 0, "descriptors": descriptors_in_use(), "memory": memory_in_use()}
            limit(command["kind"], -1 if command["more"] is None else used[command["kind"]] + command["more"])
            return {}
        case "closed":
            try:
                client.wait_closed()
            except KraftError as error:
                return {"error": type(error).__name__, "what": str(error)}
            return {"error": None}
        case _:
            raise ValueError(command)


def main() -> None:
    directory, port = sys.argv[1], int(sys.argv[2])
    endpoint = Endpoint("127.0.0.1", port)
    config = RaftConfig(
        node_id=1,
        cluster_id="blue",
        directory=directory,
        voters=(StaticVoter(1, endpoint),),
        listen=endpoint,
        election_timeout_ms=20,
    )
    client: RaftClient[Any] = RaftClient(config, serde=BytesSerde())
    client.start()
    client.wait_for_leader(timeout_ms=30_000)
    client.append_one(b"started")
    print(json.dumps({"end": client.log_end_offset()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(client, json.loads(line))), flush=True)
    client.close()


if __name__ == "__main__":
    main()
