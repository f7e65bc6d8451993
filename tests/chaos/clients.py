"""The clients of a chaos run: each makes one call after the other and notes what it hears.

A call that a replica refused is left out of the history ("nothing was appended"); one whose outcome is unknown, or that
was never answered, stays in it without an end.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Any, Final

from tests.chaos.fleet import Fleet, Replica
from tests.chaos.history import Operation

REGISTERS: Final = 6
"""Registers in use at once."""
REGISTER_CALLS: Final = 160
"""Calls of one register, before a new one takes its place: the search for an order stays short."""
CALL_MS: Final = 3_000
PAUSE_S: Final = 0.02
"""Pause of a client after a call that was refused."""
UNKNOWN: Final = frozenset({"OutcomeUnknownError", "ReplicaFailedError", "TimeoutError"})
"""Errors that leave open whether the command was carried out; every other one says that nothing was appended."""


class Clients:
    """Some clients, their registers, and the history of a round."""

    def __init__(self, fleet: Fleet, *, count: int, seed: int) -> None:
        self._fleet: Final = fleet
        self._count: Final = count
        self._seed: Final = seed
        self._values = 0
        self._registers = 0
        self._in_use: list[tuple[str, int]] = []
        self.history: list[Operation] = []
        self.refused = 0
        self.acknowledged = 0
        self._leader: Replica | None = None

    async def work(self, until: asyncio.Event) -> None:
        """Call without pause until the event is set and every call is answered or given up."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(self._client(number, random.Random(f"{self._seed} {number}"), until))

    async def _client(self, number: int, chance: random.Random, until: asyncio.Event) -> None:
        known: dict[str, str | None] = {}
        while not until.is_set():
            replica = self._choose(chance)
            if replica is None:
                await asyncio.sleep(PAUSE_S)
                continue
            key = self._draw_register(chance)
            draw = chance.random()
            if draw < 0.4:
                seen = await self.read(number, key, replica)
            elif draw < 0.8:
                seen = await self._write(number, {"key": key, "value": self._new_value()}, replica)
            else:
                command = {"key": key, "value": self._new_value(), "old": known.get(key)}
                seen = await self._write(number, command, replica)
            if seen is False:
                await asyncio.sleep(PAUSE_S)
            else:
                known = {key: seen}

    def _choose(self, chance: random.Random) -> Replica | None:
        """Return the replica that was said to lead, mostly, or any other."""
        running = self._fleet.running
        if self._leader is not None and self._leader in running and chance.random() < 0.8:
            return self._leader
        return chance.choice(running) if running else None

    def _draw_register(self, chance: random.Random) -> str:
        while len(self._in_use) < REGISTERS:
            self._registers += 1
            self._in_use.append((f"r{self._registers}", 0))
        place = chance.randrange(REGISTERS)
        key, calls = self._in_use[place]
        if calls + 1 < REGISTER_CALLS:
            self._in_use[place] = key, calls + 1
        else:
            del self._in_use[place]
        return key

    def _new_value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    async def _write(self, number: int, command: dict[str, Any], replica: Replica) -> str | bool | None:
        """Carry out a put or compare-and-set; return the value of the register then if known, False if refused."""
        began = time.monotonic_ns()
        answer = await self._ask(replica, "write", command=command)
        if answer is None:
            return False
        compares = "old" in command
        ended = None if answer.get("error") in UNKNOWN else time.monotonic_ns()
        self.history.append(
            Operation(
                client=number,
                key=command["key"],
                kind="cas" if compares else "put",
                value=command["value"],
                old=command.get("old"),
                output=answer.get("ok") if compares and ended is not None else None,
                began=began,
                ended=ended,
            )
        )
        if ended is None:
            return False
        self.acknowledged += 1
        return command["value"] if answer["ok"] else None

    async def read(self, number: int, key: str, replica: Replica) -> str | bool | None:
        """Read a register; return its value, or False if that was refused or not answered."""
        began = time.monotonic_ns()
        answer = await self._ask(replica, "read", key=key, limit_ms=CALL_MS)
        if answer is None or "error" in answer:
            return False
        value: str | None = answer["ok"]
        self.history.append(
            Operation(client=number, key=key, kind="read", output=value, began=began, ended=time.monotonic_ns())
        )
        return value

    async def _ask(self, replica: Replica, do: str, **arguments: Any) -> Any:
        """Return the answer, an unknown outcome among them; None if the call was refused."""
        try:
            answer = await replica.ask(do, timeout_ms=CALL_MS, **arguments)
        except ConnectionRefusedError:
            self.refused += 1
            return None
        except (OSError, TimeoutError):
            self._forget(replica)
            return {"error": "TimeoutError"}
        error = answer.get("error")
        if error is None:
            if do == "write":
                self._leader = replica
            return answer
        if error == "NotLeaderError":
            self._leader = self._fleet.replicas.get(answer.get("leader") or 0)
        else:
            self._forget(replica)
        if error in UNKNOWN:
            return answer
        self.refused += 1
        return None

    def _forget(self, replica: Replica) -> None:
        if self._leader is replica:
            self._leader = None

    async def read_everything(self, replicas: Iterable[Replica]) -> None:
        """Read every register of this round from every one of `replicas`, each until it is answered."""
        keys = sorted({operation.key for operation in self.history})
        for number, replica in enumerate(replicas, self._count):
            await asyncio.gather(*(self._read_until_answered(number, key, replica) for key in keys))

    async def _read_until_answered(self, number: int, key: str, replica: Replica) -> None:
        while True:
            if await self.read(number, key, replica) is not False:
                return
            await asyncio.sleep(PAUSE_S)

    def end_round(self) -> list[Operation]:
        """Return the history since the last round, and begin with new registers."""
        history, self.history, self._in_use = self.history, [], []
        return history
