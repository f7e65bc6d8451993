"""Replicas compare the states of their machines: a wrong one is found, named, quarantined and healed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, NotLeaderError
from kraftlib.records.serde import BytesSerde
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.digests import Digester
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine
from tests.runtime.fakes import ManualDisk
from tests.runtime.quorum import Quorum, quorum, until

INTERVAL_MS = 100


class Ledger(StateMachine):
    """Keeps what it was given, in order. A faulty one writes down something else for one value, and says nothing."""

    faulty = b""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, record: CommittedRecord) -> int:
        self.values.append(b"?" if record.value == self.faulty else record.value)
        return len(self.values)

    def snapshot(self) -> Iterable[bytes]:
        return list(self.values)

    def restore(self, values: Iterable[bytes]) -> None:
        self.values = list(values)


class Ledgers:
    """The machine of each replica, in its newest life."""

    def __init__(self) -> None:
        self.of: dict[int, Ledger] = {}

    def make(self, node_id: int) -> dict[str, Any]:
        self.of[node_id] = Ledger()
        return {"state_machine": self.of[node_id]}

    def are_equal(self) -> bool:
        return len({tuple(ledger.values) for ledger in self.of.values()}) == 1


async def propose(replicas: Quorum, value: bytes) -> None:
    """Have a value committed by whoever leads."""
    while True:
        try:
            await (await replicas.leader()).append_one(value)
            return
        except NotLeaderError:
            continue


async def all_agree(replicas: Quorum) -> None:
    """Wait until every replica has found its state at the end of the log to be that of the majority."""

    def agree() -> bool:
        rows = [client.status() for client in replicas.clients.values()]
        ends = {row.log_end_offset for row in rows}
        return len(ends) == 1 and all(row.agreed_offset in ends and not row.differing for row in rows)

    await until(agree)


def found(client: RaftClient[Any]) -> bool:
    return client.metrics()["state-quarantines-total"] == 1


@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize("leads", [False, True])
async def test_a_wrong_state_is_found_named_quarantined_and_healed(
    engine: str, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ledgers = Ledgers()
    async with quorum(make=ledgers.make, engine=engine, digest_interval_ms=INTERVAL_MS) as replicas:
        leader = await replicas.leader()
        await propose(replicas, b"before")
        await all_agree(replicas)
        wrong = leader.node_id if leads else next(id_ for id_ in replicas.ids if id_ != leader.node_id)
        ledgers.of[wrong].faulty = b"poison"
        with caplog.at_level(logging.WARNING, "kraftlib"):
            await propose(replicas, b"poison")
            await until(lambda: found(replicas.clients[wrong]))
            await until(lambda: replicas.clients[wrong].status().quarantined_at is None)
            await all_agree(replicas)
        # Its snapshot came from a good replica: the fault is still there, and was not met again.
        assert b"?" not in ledgers.of[wrong].values
        assert b"poison" in ledgers.of[wrong].values
        assert ledgers.are_equal()
        assert all(not found(client) for id_, client in replicas.clients.items() if id_ != wrong)
        assert "QUARANTINED" in caplog.text
        assert f"the state of replica {wrong} differs" in caplog.text
        assert "its state is replaced by that of snapshot" in caplog.text
        status = replicas.clients[wrong].status()
        assert (status.failure, status.abstains) == (None, None)
        await replicas.clients[wrong].read_barrier()
        # It can lead again, and applies what it is given.
        leader = await replicas.leader()
        if leader.node_id != wrong:
            await leader.transfer_leadership(wrong)
        await propose(replicas, b"after")
        await all_agree(replicas)
        assert ledgers.are_equal()


async def test_snapshots_restarts_and_leader_changes_quarantine_nobody() -> None:
    ledgers = Ledgers()
    settings = {"digest_interval_ms": 50, "snapshot_interval_records": 7, "retention_bytes": 0}
    async with quorum(make=ledgers.make, **settings) as replicas:
        for number in range(6):
            leader = await replicas.leader()
            for step in range(5):
                await propose(replicas, b"%d.%d" % (number, step))
            if number % 3 == 0:
                await replicas.stop(leader.node_id)
                await propose(replicas, b"without %d" % leader.node_id)
                await replicas.start(leader.node_id)
            elif number % 3 == 1:
                await leader.transfer_leadership(leader.node_id % 3 + 1)
        await all_agree(replicas)
        assert ledgers.are_equal()
        assert not any(found(client) for client in replicas.clients.values())


class Mute(StateMachine):
    """One without snapshots."""

    def apply(self, record: CommittedRecord) -> None:
        """Nothing is kept."""


class Incremental(IncrementalStateMachine):
    """One that notes its changes, and freezes without them."""

    def apply(self, record: CommittedRecord) -> None:
        """Nothing is kept."""

    def restore(self, values: Iterable[Any]) -> None:
        """Nothing was kept."""

    def key_of(self, value: Any) -> bytes:
        return bytes(value)

    def freeze(self) -> Iterable[Any]:
        return []


@pytest.mark.parametrize("machine", [None, Mute(), Incremental()])
def test_machines_whose_states_cannot_be_compared_are_refused(machine: Any) -> None:
    config = RaftConfig(node_id=1, digest_interval_ms=1_000)
    with pytest.raises(ConfigError, match=r"digest_interval_ms=1000 needs .*snapshot\(\)"):
        RaftClient(config, state_machine=machine)


@pytest.mark.parametrize("wrong", [{"digest_interval_ms": -1}, {"digest_interval_ms": 1_000, "private_apis": False}])
def test_an_impossible_interval_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="digest_interval_ms"):
        RaftConfig(node_id=1, **wrong)


class SlowLoop:
    """A loop whose clock is set by hand."""

    now = 0

    def now_ms(self) -> int:
        return self.now


class SlowBackground:
    """Takes its time for all that it is given."""

    def __init__(self, loop: SlowLoop, took_ms: int) -> None:
        self.loop, self.took_ms = loop, took_ms

    def run(self, function: Any, done: Any) -> None:
        self.loop.now += self.took_ms
        done(function(), None)


class At:
    """A batch of one record."""

    def __init__(self, offset: int, timestamp_ms: int) -> None:
        self.last_offset, self.append_timestamp_ms = offset, timestamp_ms


def test_the_hash_of_a_state_that_was_replaced_meanwhile_is_dropped() -> None:
    """It may be that of the wrong state, and the snapshot that was loaded has healed that."""
    background, hashed = ManualDisk(), []
    digester = Digester(
        100,
        Ledger(),
        serde=BytesSerde(),
        loop=SlowLoop(),  # type: ignore[arg-type]
        background=background,
        applied_offset=lambda: None,
        submit=lambda event: hashed.append(event.offset),
    )

    def apply(*batches: Any) -> None:
        digester.applied(batches)

    apply(At(1, 0), At(2, 100))
    digester.loaded()
    background.finish()
    assert hashed == []
    apply(At(6, 200), At(7, 300))
    background.finish()
    assert hashed == [8]


@pytest.mark.parametrize(("took_ms", "every"), [(9, 1), (10, 2), (20, 4), (75, 8), (10**9, 1_024)])
def test_a_state_that_takes_long_to_hash_is_hashed_less_often_where_faster_replicas_hash_too(
    took_ms: int, every: int
) -> None:
    def offsets(took_ms: int) -> list[int]:
        loop = SlowLoop()
        hashed: list[int] = []
        digester = Digester(
            100,
            Ledger(),
            serde=BytesSerde(),
            loop=loop,  # type: ignore[arg-type]
            background=SlowBackground(loop, took_ms),  # type: ignore[arg-type]
            applied_offset=lambda: None,
            submit=lambda event: hashed.append(event.offset),
        )
        batches: list[Any] = [At(number, number * 50) for number in range(10_000)]
        while batches:
            count = digester.cut(batches)
            digester.applied(batches[:count])
            batches = batches[count:]
        return hashed

    slow, fast = offsets(took_ms), offsets(0)
    assert set(slow) <= set(fast)
    assert {after - before for before, after in itertools.pairwise(slow[1:])} == {2 * every}
