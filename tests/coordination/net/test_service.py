"""Expiry: the leader ends sessions that are not renewed, and a new leader grants each its full time."""

from __future__ import annotations

import asyncio

from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.messages import Do, Transact
from kraftlib.coordination.net.client import connect
from tests.coordination.net.test_watching import rows
from tests.coordination.net.ways import EVERYTHING, Caller, replicas, value


async def test_a_session_that_is_not_renewed_loses_its_ephemeral_keys_through_a_change_of_leader() -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        lasting, leaving = await Caller(access).begin(), await Caller(access).begin(ttl_ms=1_500)
        key = Transact.Operation(do=Do.PUT, key="mine", value=b"x", ephemeral=True)
        await leaving.transact(Transact(then=(key,)))
        await quorum.change_leader(kill=True)
        assert await value(access, "mine") == b"x", "a new leader grants it the full time"

        deleted = asyncio.Event()

        async def watch() -> None:
            async for change in access.watch(EVERYTHING, BEFORE_ALL):
                if [name for name, _ in rows(change)] == ["mine"] and await value(access, "mine") is None:
                    deleted.set()

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            await deleted.wait()
        watching.cancel()
        await lasting.add("sum")
