"""Watches through leaders that are killed, snapshots, and logs that are cut: no change is lost, none comes twice.

Writers put keys in transactions and note the offset of each. Watchers of a prefix and of single keys, on clients of
their own, must see exactly what was written, in order. One begins to read when all is written: history is gone then,
and a full state must stand for what is not kept. The writers wait for the disturbances, so that each of them meets
writes, and for the watchers, which could otherwise fall behind what is kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import attrs

from kraftlib.cli.cluster import Cluster, RefusedError, Voter
from kraftlib.recipes.kraft import Kraft
from kraftlib.recipes.map import MapChange, MapState, Put
from tests.chaos.killing import STUCK_S, Killer, Progress, Tell, Violation, clients

WRITERS: Final = 16
KEYS: Final = 50
PUTS_MAX: Final = 6
"""Keys of one transaction."""
VALUE_BYTES: Final = 1_000
LAP: Final = 1_000
"""Changes after which the writers wait until the watchers have had those of the lap before."""
PAUSE_S: Final = 0.1
NAME: Final = "proof"

Row = tuple[int, str, bytes]
"""Offset, key and value of one change."""


@attrs.define(eq=False)
class Seen:
    """A watch, and all that it has delivered."""

    name: str
    prefix: str = ""
    key: str | None = None
    keeps_up: bool = True
    """It must get every change by itself, and no full state."""
    events: list[MapChange | MapState] = attrs.Factory(list)
    delivered: Progress = attrs.Factory(Progress)
    due: int = 0
    """Changes that were acknowledged and that it must deliver."""

    def watches(self, key: str) -> bool:
        """Whether it is for this key."""
        return key == self.key if self.key is not None else key.startswith(self.prefix)

    async def read(self, kraft: Kraft, since: int) -> None:
        """Take what the watch delivers until cancelled. Raises: Violation."""
        async for event in kraft.map(NAME).watch(self.key, prefix=self.prefix, since=since):
            if self.keeps_up and isinstance(event, MapState):
                raise Violation(f"the watch of {self.name} kept up, and got a full state at offset {event.offset}")
            self.events.append(event)
            await self.delivered.add()


class Writers:
    """Write until `changes` are acknowledged."""

    def __init__(self, kraft: Kraft, changes: int, watches: Sequence[Seen]) -> None:
        self.rows: Final[list[Row]] = []
        self.progress: Final = Progress()
        self.allowed: Final = Progress()
        """The number of changes beyond which they wait for a disturbance."""
        self._map: Final = kraft.map(NAME)
        self._changes: Final = changes
        self._watches: Final = watches
        self._laps: Final = [[0] * len(watches)] * 2
        """For each lap, the changes that each watch must have delivered at its end."""

    async def write(self, chance: random.Random) -> None:
        """Put a few keys at once, again and again."""
        while self.progress.count < self._changes:
            await self.allowed.reached(self.progress.count + 1)
            for seen, due in zip(self._watches, self._laps[-2], strict=True):
                await seen.delivered.reached(due)
            await self.put([f"k{key}" for key in chance.sample(range(KEYS), chance.randint(1, PUTS_MAX))])

    async def put(self, keys: Sequence[str]) -> None:
        """Put keys in one transaction."""
        puts = [Put(key, b"%d" % (len(self.rows) + at) + bytes(VALUE_BYTES)) for at, key in enumerate(keys)]
        offset = (await self._map.transaction(puts)).offset
        self.rows.extend((offset, put.key, put.value) for put in puts)
        for seen in self._watches:
            seen.due += sum(map(seen.watches, keys))
        if len(self.rows) // LAP > len(self._laps) - 2:
            self._laps.append([seen.due for seen in self._watches])
        await self.progress.add(len(puts))


async def prove_watches(cluster: Cluster, *, changes: int, kills: int, snapshots: int, tell: Tell) -> dict[str, Any]:
    """Watch so many changes through so many kills and snapshots; return the figures. Raises: Violation."""
    began = time.monotonic()
    killer, late = Killer(cluster, tell), Seen("all keys, late", keeps_up=False)
    live = [Seen("all keys"), Seen("keys with k1", prefix="k1"), Seen("one key", key="k7"), Seen("all keys again")]
    async with clients(cluster, len(live) + 1) as (writer, *readers), asyncio.TaskGroup() as tasks:
        writers = Writers(writer, changes, live)
        _, since = await writer.map(NAME).peek("k0")  # nothing is written yet
        reading = [tasks.create_task(seen.read(kraft, since)) for seen, kraft in zip(live, readers, strict=True)]
        writing = [tasks.create_task(writers.write(random.Random(number))) for number in range(WRITERS)]
        await _disturb(cluster, killer, writers, changes, kills, snapshots, tell)
        await asyncio.gather(*writing)
        for keys in (["k7"], ["k1"]):  # each watch ends with a record of one key, so that a part of it cannot lack
            await writers.put(keys)
        reading.append(tasks.create_task(late.read(readers[0], since)))
        await _until_read([*live, late], sorted(writers.rows, key=itemgetter(0)))
        for task in reading:
            task.cancel()
    starts = [int(status["log_start_offset"]) for _, status in await cluster.statuses()]
    if max(starts) <= since:
        raise Violation(f"no log was cut beyond offset {since}: the proof has not shown what it should")
    return {
        "changes": len(writers.rows),
        "delivered": sum(isinstance(event, MapChange) for seen in (*live, late) for event in seen.events),
        "full_states_of_the_late_watch": sum(isinstance(event, MapState) for event in late.events),
        "kills": killer.kills,
        "snapshots_of_each_replica": snapshots,
        "log_start_offsets": starts,
        "seconds": round(time.monotonic() - began, 1),
    }


async def _disturb(
    cluster: Cluster, killer: Killer, writers: Writers, changes: int, kills: int, snapshots: int, tell: Tell
) -> None:
    """Kill leaders and write snapshots, spread evenly over the changes. Each meets writes up to the next one."""
    moments = [(changes * (at + 1) // (kills + 1), True) for at in range(kills)]
    moments += [(changes * (at + 1) // (snapshots + 1), False) for at in range(snapshots)]
    moments.sort()
    await writers.allowed.add(moments[0][0])
    for (moment, is_kill), (until, _) in pairwise([*moments, (changes, False)]):
        await writers.progress.reached(moment)
        await writers.allowed.add(until - moment)
        if is_kill:
            await killer.kill_leader()
        else:
            offsets = await asyncio.gather(*map(_snapshot, cluster.voters.values()))
            tell(f"every replica has written a snapshot: of the records below {offsets}")


async def _snapshot(voter: Voter) -> int:
    """Have a replica write a snapshot; one that has just been started has to catch up first."""
    async with asyncio.timeout(STUCK_S):
        while True:
            try:
                return int(await voter.ask("snapshot", timeout_ms=int(STUCK_S * 1_000)))
            except RefusedError:
                await asyncio.sleep(PAUSE_S)


async def _until_read(watches: Sequence[Seen], rows: Sequence[Row]) -> None:
    """Wait until every watch has come to the end, and check what it has delivered. Raises: Violation."""
    for seen in watches:
        due = [row for row in rows if seen.watches(row[1])]
        while not seen.events or seen.events[-1].offset < due[-1][0]:
            await seen.delivered.reached(seen.delivered.count + 1)
        check_events(seen.name, seen.events, due)


def check_events(name: str, events: Sequence[MapChange | MapState], due: Sequence[Row]) -> None:
    """Check that a watch has delivered what is due, in order, each change once. Raises: Violation.

    A full state stands for all changes up to its offset, and must be what they make.
    """
    at = 0
    for event in events:
        if isinstance(event, MapChange):
            if at == len(due) or (event.offset, event.key, event.value) != due[at]:
                expected = due[at][:2] if at < len(due) else "nothing"
                raise Violation(f"the watch of {name}: {expected} was due, and {event.offset}, {event.key} came")
            at += 1
            continue
        end = bisect_right(due, event.offset, key=itemgetter(0))
        if end < at:
            raise Violation(f"the watch of {name}: a full state of offset {event.offset} came after {due[at - 1][0]}")
        entries = {key: (entry.value, entry.revision) for key, entry in event.entries.items()}
        if entries != {key: (value, offset) for offset, key, value in due[:end]}:
            raise Violation(f"the watch of {name}: the full state of offset {event.offset} is wrong")
        at = end
    if at < len(due):
        raise Violation(f"the watch of {name}: {len(due) - at} changes were lost, the first at offset {due[at][0]}")
