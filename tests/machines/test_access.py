"""Several machines behind `kraftlib.open`: recipes on one of them, calls and watches of another, both ways in."""

from __future__ import annotations

import asyncio

import pytest

from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import Answer, Ask, Question
from kraftlib.coordination.net.client import connect
from kraftlib.errors import ConfigError, RefusedError
from kraftlib.machines import MachineAccess, ServedMachines
from kraftlib.machines.messages import Command, Want
from kraftlib.machines.messages import encode as record
from kraftlib.recipes.face import Recipes
from tests.coordination.net.ways import EVERYTHING, Caller, question, replicas
from tests.machines.shop import Stock


def served() -> ServedMachines:
    return ServedMachines(
        {"locks": ServiceMachine(), "orders": ServiceMachine(), "late": ServiceMachine()}, added=["late"]
    )


@pytest.mark.parametrize("way", ["client", "replica"])
async def test_recipes_and_calls_of_each_machine_see_nothing_of_the_other(way: str) -> None:
    async with replicas(machine=lambda node_id: served(), digest_interval_ms=100) as quorum:
        access = connect(quorum.servers) if way == "client" else quorum.running[1]
        locks, orders = MachineAccess(access, "locks"), MachineAccess(access, "orders")
        watch = orders.watch(EVERYTHING, -1)
        async with Recipes(locks, owner="one", ttl_ms=60_000) as one:
            async with one.election("scheduler") as term:
                await (await Caller(orders).begin()).put("color", b"blue")
                if way == "client":
                    await quorum.change_leader(kill=True)
                assert term.is_valid()
                await one.map("settings").put("color", b"red", fence=term)
            assert await one.map("settings").get("color") is not None
        async for change in watch:
            rows = decode(Answer, change.data).rows
            if rows:
                assert [(row.name, row.value) for row in rows] == [("color", b"blue")]
                break
        await watch.aclose()  # type: ignore[attr-defined]
        _, answer = await orders.query(question("color"), timeout_ms=20_000)
        assert [row.value for row in decode(Answer, answer).rows] == [b"blue"]
        if way == "client":
            await access.close()


async def test_what_a_lost_client_held_in_one_machine_expires() -> None:
    async with replicas(1, machine=lambda node_id: served()) as quorum:
        locks = MachineAccess(quorum.running[1], "locks")
        gone = await Caller(locks).begin(ttl_ms=200)  # it renews nothing
        ttl_ms = 200
        while ttl_ms:
            await asyncio.sleep(0.05)
            asked = encode(Question(ask=Ask.SESSION, session=gone.id, most=1))
            ttl_ms = decode(Answer, (await locks.query(asked, timeout_ms=20_000))[1]).ttl_ms


async def test_clients_cannot_call_what_is_not_there_or_above_the_level() -> None:
    async with replicas(1, machine=lambda node_id: served()) as quorum:
        access = quorum.running[1]
        for data, words in (
            (record(Command(machine="toys", version=1)), "there is no machine 'toys'"),
            (record(Command(machine="locks", version=2)), "supports 1 to 1"),
            (record(Command(machine="late", version=1)), "needs level 1 of machine 'late'"),
            (record(Command(machine="locks", version=1, value=b"?")), "this is no command"),
            (record(Want(machine="late", level=1)), "levels are a matter of the replicas"),
            (b"?", "this is no command"),
        ):
            with pytest.raises(RefusedError, match=words):
                await access.call(data, timeout_ms=20_000)
        for asked, words in (
            (b"\4toys?", "there is no machine 'toys': there are 'late', 'locks'"),
            (b"", "names no machine: ask by MachineAccess"),
            (b"\x09locks", "names no machine"),
            (b"\1\xff", "is no name of a machine"),
        ):
            with pytest.raises(ConfigError, match=words):
                await access.query(asked, timeout_ms=20_000)


def test_what_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'stock' has no \['check', 'query', 'changes', 'due'\]"):
        ServedMachines({"stock": Stock()})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="'' is no name of a machine"):
        MachineAccess(connect("127.0.0.1:1"), "")
