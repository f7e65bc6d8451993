"""Three replicas as services open them, with directories and sockets; the machine of one goes wrong once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.coordination.access import STALE
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.net.replica import DIGEST_INTERVAL_MS, ReplicaAccess, open
from kraftlib.errors import ReplicaFailedError
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint
from tests.coordination.net.ways import Caller, value
from tests.ports import free_ports, local_voters
from tests.runtime.quorum import PATIENCE_S, TIMING, until

WRONG = 2
CLUSTER = "wrong-state"


class Machine(ServiceMachine):
    """Where it is faulty, it writes another value than it is given."""

    faulty = False

    def apply(self, record: CommittedRecord) -> bytes:
        if self.faulty:
            record = record._replace(value=record.value.replace(b"right", b"wrong"))
        return super().apply(record)


class Three:
    """The replicas, each with its directory."""

    def __init__(self, path: Path, **options: int) -> None:
        self.machines: dict[int, Machine] = {}
        self.running: dict[int, ReplicaAccess] = {}
        self._path = path
        self._options = options
        self._voters = local_voters()
        for voter in self._voters:
            format_directory(path / str(voter.id), node_id=voter.id, cluster_id=CLUSTER, static_voters=[1, 2, 3])

    async def start(self, node_id: int) -> None:
        config = RaftConfig(
            node_id=node_id,
            voters=self._voters,
            listen=self._voters[node_id - 1].endpoint,
            directory=self._path / str(node_id),
            **TIMING,
            **self._options,
        )
        self.machines[node_id] = Machine()
        self.running[node_id] = open(config, machine=self.machines[node_id])
        await self.running[node_id].__aenter__()

    async def close(self) -> None:
        for access in self.running.values():
            await access.client.shutdown(timeout_ms=0)

    def quarantined(self) -> list[int]:
        """The replicas that were quarantined in this life."""
        return [id_ for id_, access in self.running.items() if access.client.metrics()["state-quarantines-total"]]


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_machine_of_one_replica_goes_wrong_and_is_healed(tmp_path: Path, restarts: bool) -> None:
    """With a restart, its log begins at a snapshot of the wrong state, and that is all that is left of it."""
    three = Three(tmp_path, digest_interval_ms=3_000 if restarts else 200, retention_bytes=0)
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            for node_id in (1, 2, 3):
                await three.start(node_id)
            caller = await Caller(three.running[1]).begin()
            client = three.running[WRONG].client
            await caller.put("key", b"before")
            if restarts:
                await client.read_barrier()
                await client.create_snapshot()
            three.machines[WRONG].faulty = True
            done = await caller.put("key", b"right")
            if restarts:
                await client.wait_for_offset(done.offset)
                await client.create_snapshot()
                await until(lambda: client.status().log_start_offset > done.offset)
                await client.shutdown(timeout_ms=0)
                await three.start(WRONG)
                access = three.running[WRONG]
                await until(lambda: three.machines[WRONG].applied >= done.offset)
                assert await value(access, "key", consistency=STALE) == b"wrong"
            await until(lambda: three.quarantined() == [WRONG])
            await until(lambda: three.running[WRONG].client.status().quarantined_at is None)
            assert await value(three.running[WRONG], "key") == b"right"
            assert three.quarantined() == [WRONG]
            assert len({tuple(machine.snapshot()) for machine in three.machines.values()}) == 1
    finally:
        await three.close()


async def test_a_query_of_whatever_age_is_refused_in_quarantine(tmp_path: Path) -> None:
    three = Three(tmp_path, digest_interval_ms=400)
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            for node_id in (1, 2, 3):
                await three.start(node_id)
            caller = await Caller(three.running[1]).begin()
            three.machines[WRONG].faulty = True
            await caller.put("key", b"right")
            access, refused = three.running[WRONG], set()
            while not (refused and access.client.status().quarantined_at is None):
                try:
                    await value(access, "key", consistency=STALE)
                except ReplicaFailedError as error:
                    refused.add(str(error))
                await asyncio.sleep(0.001)
            assert await value(access, "key", consistency=STALE) == b"right"
            assert all("differs from that of the majority" in text for text in refused)
    finally:
        await three.close()


def test_replicas_of_the_coordination_machine_compare_their_states_by_default() -> None:
    (port,) = free_ports(1)
    place = Endpoint("127.0.0.1", port)
    for given, expected in ((None, DIGEST_INTERVAL_MS), (0, 0), (500, 500)):
        config = RaftConfig(node_id=1, voters=(StaticVoter(1, place),), listen=place, digest_interval_ms=given)
        assert open(config).client.config.digest_interval_ms == expected
