"""Three replicas are upgraded one after the other: no replica meets a command that its release cannot apply."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from kraftlib.errors import ConfigError, ReplicaFailedError, UnsupportedError
from kraftlib.machines import Machines
from kraftlib.machines.messages import Command, encode
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryTransport
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from tests.machines.shop import OldOrders, Orders, Stock, shop
from tests.runtime.quorum import Quorum, quorum, until

OBSERVER = 9
TEA = {"item": "tea", "pieces": 10}


class Shops:
    """The machines of each replica, of the release that is installed there."""

    def __init__(self) -> None:
        self.release: dict[int, type[Orders]] = {}
        self.of: dict[int, Machines] = {}
        self.replicas = Quorum()

    def make(self, node_id: int) -> dict[str, Any]:
        release = self.release.setdefault(node_id, OldOrders)
        self.of[node_id] = shop(release) if release is OldOrders else shop(release, stock=Stock())
        return {"state_machine": self.of[node_id]}

    async def install(self, node_id: int, release: type[Orders]) -> None:
        """Start a replica again, with another release."""
        await self.replicas.stop(node_id)
        self.release[node_id] = release
        await self.replicas.start(node_id)

    async def order(self, node_id: int, value: dict[str, Any], version: int = 1) -> Any:
        """Have a value ordered through a replica, whoever leads."""
        data = self.of[node_id].command("orders", value, version=version)
        return await self.replicas.clients[node_id].propose(data, timeout_ms=20_000)

    async def want(self, node_id: int, machine: str, level: int) -> None:
        data = self.of[node_id].want_level(machine, level)
        assert await self.replicas.clients[node_id].propose(data, timeout_ms=20_000) == b""

    def levels(self) -> set[int]:
        return {machines.levels.of("orders") for machines in self.of.values()}

    def have_announced(self, *node_ids: int) -> bool:
        announced = self.of[1].levels.announced
        return all(announced.get(node_id) == self.of[node_id].supported for node_id in node_ids)

    async def are_equal(self) -> None:
        """Wait until all machines have the same state, down to the bytes of their snapshots."""
        await until(lambda: len({tuple(machines.snapshot()) for machines in self.of.values()}) == 1)


@asynccontextmanager
async def shops(**config: Any) -> AsyncIterator[Shops]:
    """Run three replicas of the old release."""
    together = Shops()
    async with quorum(make=together.make, **config) as replicas:
        together.replicas = replicas
        yield together


@asynccontextmanager
async def observer(together: Shops, release: type[Orders]) -> AsyncIterator[RaftClient[Any]]:
    """Run one more replica, which has no vote."""
    together.release[OBSERVER] = release
    replicas = together.replicas
    async with RaftClient(
        attrs.evolve(
            replicas.config(1),
            node_id=OBSERVER,
            voters=(),
            bootstrap_servers=tuple(map(replicas.endpoint, replicas.ids)),
        ),
        log=MemoryReplicatedLog(),
        elections=MemoryQuorumStateStore(),
        transport=MemoryTransport(replicas.hub, replicas.endpoint(OBSERVER)),
        random=random.Random(OBSERVER),
        **together.make(OBSERVER),
    ) as client:
        yield client


async def test_a_new_command_waits_until_every_voter_and_observer_is_upgraded(caplog: pytest.LogCaptureFixture) -> None:
    async with shops(digest_interval_ms=100) as together:
        async with observer(together, OldOrders):
            assert await together.order(2, {"item": "tea"}) == 1
            with pytest.raises(ConfigError, match="this release supports 1 to 1"):
                together.of[1].want_level("orders", 2)
            for node_id in (1, 2, 3):
                await together.install(node_id, Orders)
            await until(lambda: together.have_announced(1, 2, 3, OBSERVER))

            # The observer is still the old one. It holds up the level, and the log of the leader names it.
            await together.want(1, "orders", 2)
            await until(lambda: "replicas [9] have not announced level 2" in caplog.text)
            # So it does where another voter leads, which hears of the observer only when that has found it.
            leader = await together.replicas.leader()
            leader.resign(leader.leader_and_epoch().epoch)
            await together.replicas.leader(not_id=leader.node_id)
            await until(lambda: caplog.text.count("replicas [9] have not announced level 2") > 1)
            assert together.levels() == {1}
            with pytest.raises(UnsupportedError, match="the level is 1"):
                await together.order(1, TEA, version=2)
            by_hand = encode(Command(machine="orders", version=2, value=b'{"item":"tea","pieces":10}'))
            leader = await together.replicas.leader()
            assert b"not applied" in await leader.propose(by_hand)
            assert await together.order(3, {"item": "tea"}) == 2
            await together.are_equal()
        async with observer(together, Orders) as client:
            await until(lambda: together.levels() == {2})
            total = 2
            for node_id in together.replicas.ids:
                total += 10
                assert await together.order(node_id, TEA, version=2) == total
            assert await client.propose(together.of[OBSERVER].command("orders", TEA, version=2)) == total + 10
            # A machine that the old release did not have, too.
            await together.want(2, "stock", 1)
            await until(lambda: together.of[3].levels.of("stock") == 1)
            assert await together.replicas.clients[3].propose(together.of[3].command("stock", b"cup")) == 1
            await together.are_equal()
    assert not any("QUARANTINED" in record.message for record in caplog.records)


async def test_an_observer_that_has_left_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlib.machines.keeper.OBSERVER_SESSION_MS", 50)  # five minutes
    async with shops() as together:
        for node_id in (1, 2, 3):
            await together.install(node_id, Orders)
        async with observer(together, OldOrders):
            await until(lambda: together.have_announced(1, 2, 3, OBSERVER))
        del together.of[OBSERVER]
        await together.want(1, "orders", 2)
        await until(lambda: together.levels() == {2})


@pytest.mark.parametrize("in_a_snapshot", [False, True])
async def test_an_old_replica_that_meets_a_level_stops_says_so_and_goes_on_after_its_upgrade(
    in_a_snapshot: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with shops() as together:
        for node_id in (1, 2, 3):
            await together.install(node_id, Orders)
        await together.want(3, "orders", 2)
        await until(lambda: together.levels() == {2})
        assert await together.order(1, TEA, version=2) == 10
        if in_a_snapshot:
            await together.replicas.clients[3].read_barrier()
            await together.replicas.clients[3].create_snapshot()

        await together.install(3, OldOrders)  # by mistake
        old = together.replicas.clients[3]
        await until(lambda: old.status().failure is not None)
        failure = old.status().failure or ""
        assert "this release supports 1: upgrade this replica and start it again" in failure
        assert old.metrics()["state-machine-failed"] == 1
        with pytest.raises(ReplicaFailedError):
            await together.order(3, {"item": "tea"})
        errors = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
        assert any("raised at offset" in record.message for record in errors)
        assert not any("skip-record" in note for record in errors for note in notes(record))

        # It votes and replicates: with it, the others need not both be there.
        await together.replicas.stop(2)
        await (await together.replicas.leader(not_id=3)).append_one(together.of[1].command("orders", TEA, version=2))
        await together.replicas.start(2)

        await together.install(3, Orders)
        await together.replicas.clients[3].read_barrier()
        assert together.replicas.clients[3].status().failure is None
        assert await together.order(3, TEA, version=2) == 30
        await together.are_equal()


def notes(record: logging.LogRecord) -> list[str]:
    error = record.exc_info[1] if record.exc_info else None
    return getattr(error, "__notes__", [])


async def test_machines_are_of_one_replica_that_can_reach_the_leader() -> None:
    machines = shop()
    replicas = Quorum(voters=1, make=lambda node_id: {"state_machine": machines}, private_apis=False)
    with pytest.raises(ConfigError, match=r"private_apis=False.*leave it at true"):
        await replicas.start()
    async with quorum(voters=1, make=lambda node_id: {"state_machine": machines}):
        with pytest.raises(ConfigError, match="make one for each"):
            await Quorum(voters=1, make=lambda node_id: {"state_machine": machines}).start()
