"""Exactly one of several processes does a job: leader election, and the epoch that makes it safe.

`Listener.handle_leader_change` tells every replica who leads, and in which epoch. The one that leads does the job. A
process may be paused and not know that it was replaced, so knowing "I lead" is never enough: whatever the job changes
must be told the epoch, and refuse an older one than it has seen. That is what `PrintShop` does here; a database does it
with a column, `UPDATE … WHERE epoch <= ?`. The epoch is a fencing token: it only grows, and no two leaders share one.

    python examples/leader_election.py
"""

from __future__ import annotations

import asyncio

from kraftlib import Endpoint, Listener, MemoryQuorumStateStore, MemoryReplicatedLog, RaftClient, RaftConfig
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.types import LeaderAndEpoch


class PrintShop:
    """The thing that must have one writer at a time: it refuses whoever comes with an epoch of the past."""

    def __init__(self) -> None:
        self.epoch = -1
        self.pages: list[str] = []

    def print_page(self, text: str, *, epoch: int) -> bool:
        """Print a page, unless a newer leader has been here."""
        if epoch < self.epoch:
            return False
        self.epoch = epoch
        self.pages.append(text)
        return True


class Worker(Listener):
    """One replica: works while it leads."""

    def __init__(self, number: int, voters: str, hub: MemoryHub) -> None:
        self.number = number
        self.endpoint = Endpoint("worker", number)
        self.leads_epoch: int | None = None
        self.elected = asyncio.Event()
        config = RaftConfig.from_mapping({"node_id": number, "voters": voters, "engine": "inline"})
        self.client: RaftClient[bytes] = RaftClient(
            config,
            listener=self,
            # In memory, so that this example is all there is to see. A real service names a directory in its
            # configuration and leaves these away: then they are files and TCP.
            log=MemoryReplicatedLog(),
            elections=MemoryQuorumStateStore(),
            transport=MemoryTransport(hub, self.endpoint),
        )

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Hear who leads from now on."""
        if leader.leader_id == self.number:
            self.leads_epoch = leader.epoch
            self.elected.set()
        else:
            self.leads_epoch = None

    async def has_won(self) -> Worker:
        """Wait until this one leads."""
        await self.elected.wait()
        return self


async def elected(workers: list[Worker]) -> Worker:
    """Return the first of these workers that leads."""
    waiting = [asyncio.create_task(worker.has_won()) for worker in workers]
    done, pending = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return done.pop().result()


async def main() -> None:
    """Elect, cut the leader off without its knowledge, and see that it can do no harm."""
    hub, shop = MemoryHub(), PrintShop()
    voters = ",".join(f"{number}@worker:{number}" for number in (1, 2, 3))
    workers = [Worker(number, voters, hub) for number in (1, 2, 3)]
    await asyncio.gather(*(worker.client.start() for worker in workers))

    first = await elected(workers)
    old_epoch = first.leads_epoch
    assert old_epoch is not None
    print(f"worker {first.number} leads epoch {old_epoch} and prints:", shop.print_page("page 1", epoch=old_epoch))

    print(f"worker {first.number} is cut off, and does not know yet")
    hub.isolate(first.endpoint)
    second = await elected([worker for worker in workers if worker is not first])
    assert second.leads_epoch is not None
    print(f"worker {second.number} leads epoch {second.leads_epoch}", end=" ")
    print("and prints:", shop.print_page("page 2", epoch=second.leads_epoch))
    print(f"worker {first.number} still believes in itself and tries:", shop.print_page("page X", epoch=old_epoch))
    assert shop.pages == ["page 1", "page 2"]

    await asyncio.gather(*(worker.client.shutdown() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main())
