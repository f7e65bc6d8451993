"""What befalls the replicas of a chaos run, each fault with its end. The seed of the run draws them.

A fault takes what it needs (`replicas`, the voters) for itself, so that two that go on at once do not undo each other.
Safety must hold under all of them. None of them takes away a disk that a majority of the voters depends on: a replica
is given a new disk only when its removal from the voters is committed.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from kraftlib.types import ReplicaId
from tests.chaos.fleet import Fleet, Replica

CHANGE_MS: Final = 6_000
"""Time limit of a change of the voters, a transfer or a snapshot."""
VOTERS_MIN: Final = 3
CLOCK_JUMP_S: Final = 7_200
NEEDS_DISK: Final = "full-disk"
NEEDS_CLOCK: Final = "clock-jump"

Fault = Callable[[], Awaitable[str | None]]
"""Does its harm and repairs it; returns what it did, None if there was nothing to harm."""


class Faults:
    """All faults, and the order in which they come."""

    def __init__(self, fleet: Fleet, *, seed: int, tell: Callable[[str], None], without: Collection[str] = ()) -> None:
        self._fleet: Final = fleet
        self._chance: Final = random.Random(f"{seed} faults")
        self._tell: Final = tell
        self._busy: set[ReplicaId] = set()
        self._membership: Final = asyncio.Lock()
        self.counts: dict[str, int] = {}
        self._faults: Final[dict[str, tuple[int, Fault]]] = {
            "kill-leader": (4, self._kill_leader),
            "kill": (3, self._kill_one),
            "kill-majority": (2, self._kill_majority),
            "kill-all": (1, self._kill_all),
            "restart": (2, self._restart),
            "pause": (3, self._pause),
            "isolate": (3, self._isolate),
            "one-way": (4, self._one_way),
            "partition": (3, self._partition),
            "slow-link": (2, self._slow),
            "reset": (2, self._reset),
            NEEDS_CLOCK: (2, self._jump),
            NEEDS_DISK: (2, self._fill),
            "transfer": (2, self._transfer),
            "snapshot": (2, self._snapshot),
            "add-voter": (4, self._add_voter),
            "remove-voter": (2, self._remove_voter),
            "new-disk": (2, self._replace_disk),
        }
        impossible = {NEEDS_DISK} if not fleet.own_disks else set()
        impossible |= {NEEDS_CLOCK} if not fleet.own_clocks else set()
        for name in impossible.union(without):
            self._faults.pop(name, None)

    async def go_on(self, until: asyncio.Event, *, lanes: int = 2) -> None:
        """Do one fault after the other in each lane, until the event is set; every fault comes to its end."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(lanes):
                tasks.create_task(self._lane(until))

    async def _lane(self, until: asyncio.Event) -> None:
        names = list(self._faults)
        weights = [weight for weight, _ in self._faults.values()]
        while not until.is_set():
            name = self._chance.choices(names, weights)[0]
            done = await self._faults[name][1]()
            if done is not None:
                self.counts[name] = self.counts.get(name, 0) + 1
                self._tell(f"{name}: {done}")
            await self._rest(0.05, 0.6)

    async def _rest(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(least_s, most_s))

    # --- who is harmed ------------------------------------------------------------------------------------------------

    def _take(self, count: int = 1) -> list[Replica]:
        """Take some running replicas that no other fault has; an empty list if there are too few."""
        free = [replica for replica in self._fleet.running if replica.number not in self._busy]
        taken = self._chance.sample(free, count) if len(free) >= count else []
        self._busy.update(replica.number for replica in taken)
        return taken

    def _take_this(self, replica: Replica) -> bool:
        if replica.number in self._busy or not replica.running:
            return False
        self._busy.add(replica.number)
        return True

    def _give_back(self, *replicas: Replica) -> None:
        self._busy.difference_update(replica.number for replica in replicas)

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _kill_leader(self) -> str | None:
        found = await self._fleet.leader()
        if found is None or not self._take_this(found[0]):
            return None
        return await self._kill([found[0]])

    async def _kill_one(self) -> str | None:
        return await self._kill(self._take())

    async def _kill_majority(self) -> str | None:
        return await self._kill(self._take(len(self._fleet.replicas) // 2 + 1))

    async def _kill_all(self) -> str | None:
        return await self._kill(self._take(len(self._fleet.replicas)))

    async def _kill(self, replicas: list[Replica]) -> str | None:
        if not replicas:
            return None
        await asyncio.gather(*(replica.kill() for replica in replicas))
        await self._rest(0.0, 2.0)
        for replica in replicas:
            await replica.start()
        self._give_back(*replicas)
        return _names(replicas)

    async def _restart(self) -> str | None:
        for replica in (taken := self._take()):
            await replica.stop()
            await self._rest(0.0, 1.0)
            await replica.start()
            self._give_back(replica)
        return _names(taken)

    async def _pause(self) -> str | None:
        for replica in (taken := self._take()):
            replica.signal(signal.SIGSTOP)
            await self._rest(0.2, 4.0)
            replica.signal(signal.SIGCONT)
            self._give_back(replica)
        return _names(taken)

    # --- the network --------------------------------------------------------------------------------------------------

    async def _isolate(self) -> str | None:
        replica = self._any()
        network = self._fleet.network
        links = [*network.outgoing(replica.number), *network.incoming(replica.number)]
        return f"{replica.number} for {await self._hold(links)}"

    async def _one_way(self) -> str | None:
        replica = self._any()
        sends = self._chance.random() < 0.5
        network = self._fleet.network
        links = list(network.outgoing(replica.number) if sends else network.incoming(replica.number))
        return f"nothing {'from' if sends else 'to'} {replica.number} for {await self._hold(links)}"

    async def _partition(self) -> str | None:
        ids = list(self._fleet.network.ids)
        self._chance.shuffle(ids)
        cut = self._chance.randint(1, len(ids) - 1)
        links = [self._fleet.network.link(a, b) for a in ids[:cut] for b in ids[cut:]]
        links += [self._fleet.network.link(b, a) for a in ids[:cut] for b in ids[cut:]]
        return f"{sorted(ids[:cut])} | {sorted(ids[cut:])} for {await self._hold(links)}"

    async def _hold(self, links: list[Any]) -> str:
        """Hold links for a while, then deliver late what they held; half of the time connections are reset first."""
        for link in links:
            link.hold()
        seconds = self._chance.uniform(0.3, 5.0)
        await asyncio.sleep(seconds)
        if self._chance.random() < 0.5:
            for a in self._fleet.network.ids:
                for b in self._fleet.network.ids:
                    if a != b and self._fleet.network.link(a, b) in links:
                        self._fleet.network.reset(a, b)
        for link in links:
            link.release()
        return f"{seconds:.1f} s"

    async def _slow(self) -> str | None:
        replica = self._any()
        delay_s = self._chance.choice([0.005, 0.03, 0.15, 0.6])
        links = [link for link in self._fleet.network.outgoing(replica.number) if self._chance.random() < 0.7]
        for link in links:
            link.delay_s = delay_s
        await self._rest(1.0, 5.0)
        for link in links:
            link.delay_s = 0.0
        return f"{len(links)} links from {replica.number} by {delay_s * 1_000:.0f} ms"

    async def _reset(self) -> str | None:
        a, b = self._chance.sample(self._fleet.network.ids, 2)
        self._fleet.network.reset(a, b)
        return f"{a} and {b}"

    def _any(self) -> Replica:
        return self._chance.choice(list(self._fleet.replicas.values()))

    # --- clocks and disks ---------------------------------------------------------------------------------------------

    async def _jump(self) -> str | None:
        replica = self._any()
        seconds = self._chance.randint(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        replica.move_clock(seconds)
        return f"the wall clock of {replica.number} is off by {seconds:+d} s"

    async def _fill(self) -> str | None:
        for replica in (taken := self._take()):
            if not replica.has_reserve:  # nobody can start on a disk that has no byte left, and rightly says so
                self._give_back(replica)
                return None
            await asyncio.to_thread(replica.fill_disk)
            await self._rest(0.5, 4.0)
            if killed := self._chance.random() < 0.5:
                await replica.kill()
                await replica.start()
            await self._rest(0.0, 2.0)
            replica.free_disk()
            self._give_back(replica)
            return f"{replica.number}{', killed and started on it' if killed else ''}"
        return _names(taken)

    # --- what an operator does ----------------------------------------------------------------------------------------

    async def _transfer(self) -> str | None:
        found = await self._fleet.leader()
        if found is None:
            return None
        leader, status = found
        others = [voter["id"] for voter in status["voters"] if voter["id"] != leader.number]
        if not others:
            return None
        target = self._chance.choice(others)
        return f"{leader.number} to {target}: {await self._ask(leader, 'transfer', to=target)}"

    async def _snapshot(self) -> str | None:
        replica = self._any()
        return f"of {replica.number}: {await self._ask(replica, 'snapshot')}"

    async def _ask(self, replica: Replica, do: str, **arguments: Any) -> str:
        """Return what came of a request, as text: "done" or the name of the error."""
        try:
            answer = await replica.ask(do, timeout_ms=2 * CHANGE_MS, limit_ms=CHANGE_MS, **arguments)
        except (OSError, TimeoutError) as error:
            return type(error).__name__
        return str(answer.get("error", "done"))

    async def _add_voter(self) -> str | None:
        async with self._membership:
            found = await self._fleet.leader()
            if found is None:
                return None
            leader, status = found
            voters = {voter["id"]: voter["directory_id"] for voter in status["voters"]}
            # A voter whose disk was replaced is still there by its old id, if its removal was undone by a lost leader.
            dead = [n for n, directory_id in voters.items() if self._fleet.replicas[n].directory_id != directory_id]
            if dead:
                return await self._remove(leader, dead[0], voters[dead[0]])
            others = [r for n, r in self._fleet.replicas.items() if n not in voters and r.running]
            if not others:
                return None
            new = self._chance.choice(others)
            done = await self._ask(
                leader,
                "add_voter",
                voter=new.number,
                directory_id=new.directory_id,
                endpoint=str(self._fleet.network.endpoint(new.number)),
            )
            return f"{new.number}: {done}"

    async def _remove_voter(self) -> str | None:
        async with self._membership:
            found = await self._fleet.leader()
            if found is None or len(found[1]["voters"]) <= VOTERS_MIN:
                return None
            voter = self._chance.choice(found[1]["voters"])
            return await self._remove(found[0], voter["id"], voter["directory_id"])

    async def _remove(self, leader: Replica, number: ReplicaId, directory_id: str) -> str:
        done = await self._ask(leader, "remove_voter", voter=number, directory_id=directory_id)
        return f"remove {number}: {done}"

    async def _replace_disk(self) -> str | None:
        """Remove a voter for good, give it a new disk, and let it come back as an observer."""
        async with self._membership:
            found = await self._fleet.leader()
            if found is None or len(found[1]["voters"]) <= VOTERS_MIN:
                return None
            leader, status = found
            voter = self._chance.choice(status["voters"])
            replica = self._fleet.replicas[voter["id"]]
            if not self._take_this(replica):
                return None
            try:
                removed = await self._remove(leader, voter["id"], voter["directory_id"])
                if not removed.endswith("done"):
                    return f"not replaced, {removed}"
                await replica.kill()
                self._fleet.format(replica)
                await replica.start()
                return f"{replica.number}"
            finally:
                self._give_back(replica)


def _names(replicas: list[Replica]) -> str | None:
    return ", ".join(str(replica.number) for replica in replicas) or None
