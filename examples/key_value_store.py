"""A replicated dictionary: three replicas, a leader that goes away, and nothing lost.

The whole application is `KeyValueStore`. Every replica calls `apply` with the same records in the same order, so every
replica comes to the same dictionary; a record reaches `apply` only when a majority has it on disk. `propose` sends one
record on that way and returns what `apply` returned for it.

Here all three replicas live in one process, each with a directory and a TCP port of its own, to keep the example short.
In a service each lives in a process of its own, and `members` stands in the configuration.

    python examples/key_value_store.py
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kraftlib import (
    CommittedRecord,
    JsonSerde,
    NotLeaderError,
    RaftClient,
    RaftConfig,
    StateMachine,
    format_directory,
)


class KeyValueStore(StateMachine):
    """Keys and values in a dict. Nothing in here knows of networks, disks or leaders."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}

    def apply(self, record: CommittedRecord) -> str | None:
        """Set a key; return what was there before. It may look at nothing but the record and `items`."""
        key, value = record.value["key"], record.value["value"]
        previous = self.items.get(key)
        self.items[key] = value
        return previous

    def snapshot(self) -> Iterable[Any]:
        """Return all items, as they are now: a list, so that later changes leave it alone."""
        return list(self.items.items())

    def restore(self, values: Iterable[Any]) -> None:
        """Take over a snapshot, here or on a replica that was away for too long."""
        self.items = dict(values)


class Member:
    """One replica with its store."""

    def __init__(self, number: int, voters: str, directory: Path) -> None:
        self.store = KeyValueStore()
        config = RaftConfig.from_mapping({"node_id": number, "voters": voters, "directory": directory})
        self.client: RaftClient[Any] = RaftClient(config, state_machine=self.store, serde=JsonSerde())


async def put(members: dict[int, Member], key: str, value: str) -> str | None:
    """Write through whoever leads; ask again while a new leader is being elected."""
    while True:
        for member in members.values():
            leader = (await member.client.wait_for_leader(timeout_ms=10_000)).leader_id
            if leader not in members:
                continue
            try:
                previous: str | None = await members[leader].client.propose({"key": key, "value": value})
                return previous
            except NotLeaderError:
                pass  # nothing was written, and somebody else leads by now
        await asyncio.sleep(0.01)


async def main() -> None:
    """Write, read on every replica, lose the leader, go on."""
    with tempfile.TemporaryDirectory() as home:
        voters = ",".join(f"{number}@127.0.0.1:{free_port()}" for number in (1, 2, 3))
        members = {}
        for number in (1, 2, 3):
            directory = Path(home) / f"replica-{number}"
            format_directory(directory, node_id=number, cluster_id="example")
            members[number] = Member(number, voters, directory)
        await asyncio.gather(*(member.client.start() for member in members.values()))

        print("first value of 'colour':", await put(members, "colour", "red"))
        print("before it became blue:  ", await put(members, "colour", "blue"))

        some = next(iter(members.values())).client
        leader = (await some.wait_for_leader()).leader_id
        assert leader is not None
        print(f"replica {leader} leads; it leaves")
        await members.pop(leader).client.close()

        print("before it became green: ", await put(members, "colour", "green"))
        end = max(member.client.high_watermark() or 0 for member in members.values())
        for number, member in members.items():
            await member.client.wait_for_offset(end - 1, timeout_ms=10_000)
            print(f"replica {number} has      ", member.store.items)
            assert member.store.items == {"colour": "green"}

        for member in members.values():
            await member.client.shutdown()  # the last one has nobody to hand over to


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    asyncio.run(main())
