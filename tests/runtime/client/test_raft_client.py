"""The client on a real quorum of three: what is acknowledged, what is refused, and what is said about it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Coroutine, Iterable
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    ReplicaFailedError,
    StorageError,
)
from kraftlib.records.serde import BytesSerde, JsonSerde
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import BatchReader, CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Peer
from kraftlib.runtime.waiters import Appended
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ApiKey
from tests.runtime.quorum import PATIENCE_S, PLACE, Quorum, alone, quorum, until

ENGINES = pytest.mark.parametrize("engine", ["inline", "thread"])


class Counter(StateMachine):
    """Adds up numbers."""

    def __init__(self) -> None:
        self.total = 0
        self.offsets: list[int] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.total += record.value
        self.offsets.append(record.offset)
        return self.total

    def snapshot(self) -> Iterable[Any]:
        return [self.total]

    def restore(self, values: Iterable[Any]) -> None:
        (self.total,) = values


class Journal(Listener):
    """Remembers every value with its offset."""

    def __init__(self) -> None:
        self.records: list[tuple[int, Any]] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.shut_down = False

    def handle_commit(self, reader: BatchReader) -> None:
        for batch in reader:
            self.records += [(record.offset, record.value) for record in batch.records]

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def begin_shutdown(self) -> None:
        self.shut_down = True


# Appending ------------------------------------------------------------------------------------------------------------


class Making(BytesSerde):
    """A serde that makes `made` of everything but a probe."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def to_bytes(self, value: Any) -> Any:
        return self.made if value != b"probe" else value


@ENGINES
@pytest.mark.parametrize("made", [[b"a", b"b"], bytearray(b"ab"), "ab", None])
async def test_a_serde_that_makes_no_bytes_appends_nothing(engine: str, made: Any) -> None:
    async with quorum(engine=engine, make=lambda node_id: {"serde": Making(made)}) as three:
        leader = await three.leader()
        end = leader.log_end_offset()
        for client in three.clients.values():
            for call in (client.append_one(b"value"), client.append([b"value"])):
                with pytest.raises(TypeError, match=f"a value is bytes, not {type(made).__name__}"):
                    await call
        assert leader.log_end_offset() == end


class Backwards(BytesSerde):
    """Stores the bytes the other way round, as one that encrypts them would."""

    def to_bytes(self, value: Any) -> bytes:
        return super().to_bytes(value)[::-1]

    def from_bytes(self, data: bytes) -> bytes:
        return data[::-1]


@ENGINES
async def test_a_serde_that_is_derived_from_that_of_bytes_is_asked(engine: str) -> None:
    journal = Journal()
    async with quorum(
        voters=1, engine=engine, make=lambda node_id: {"serde": Backwards(), "listener": journal}
    ) as alone:
        leader = await alone.leader()
        await leader.append_one(b"abc")
        last = (await leader.append([b"def", b"ghi"], wait="applied")).last_offset
        await leader.wait_for_offset(last)
    assert [value for _, value in journal.records if value != b"probe"] == [b"abc", b"def", b"ghi"]


class Special(bytes):
    """Bytes of a class of the application."""


@ENGINES
async def test_bytes_of_a_class_of_the_application_are_appended(engine: str) -> None:
    async with quorum(voters=1, engine=engine, make=lambda node_id: {"serde": Making(Special(b"ab"))}) as alone:
        leader = await alone.leader()
        one = await leader.append_one(b"value")
        assert (await leader.append([b"value"])).base_offset == one.last_offset + 1


@ENGINES
@pytest.mark.parametrize("wait", ["appended", "flushed", "committed", "applied"])
async def test_every_level_can_be_waited_for(engine: str, wait: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        one = await leader.append_one(b"value", wait=wait)
        more = await leader.append([b"value"] * 3, wait=wait)
        assert more.base_offset == one.last_offset + 1


@ENGINES
async def test_a_proposal_returns_what_the_state_machine_made_of_it(engine: str) -> None:
    machines = {node_id: Counter() for node_id in (1, 2, 3)}

    def make(node_id: int) -> dict[str, Any]:
        return {"state_machine": machines[node_id], "serde": JsonSerde()}

    async with quorum(engine=engine, make=make) as three:
        three.probe = 0
        leader = await three.leader()
        assert [await leader.propose(number) for number in (1, 2, 3)] == [1, 3, 6]
        appended = await leader.append([10, 20], wait="applied")
        assert appended.results == (16, 36)
        for client in three.clients.values():
            await client.wait_for_offset(appended.last_offset, timeout_ms=10_000)
    assert {machine.total for machine in machines.values()} == {36}


@ENGINES
async def test_a_thousand_concurrent_appends_get_a_thousand_places(engine: str) -> None:
    async with quorum(engine=engine, fetch_timeout_ms=10_000, request_timeout_ms=10_000) as three:
        leader = await three.leader()
        appended = await asyncio.gather(*(leader.append_one(b"%d" % number) for number in range(1_000)))
        offsets = sorted(one.base_offset for one in appended)
        assert offsets == list(range(offsets[0], offsets[0] + 1_000))
        await leader.wait_for_offset(offsets[-1], timeout_ms=10_000)
        assert leader.high_watermark() == offsets[-1] + 1


@ENGINES
async def test_a_cancelled_append_disturbs_nobody(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        tasks = [asyncio.create_task(leader.append_one(b"%d" % number)) for number in range(60)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes[::3]] == [asyncio.CancelledError] * 20
        assert sum(isinstance(outcome, Appended) for outcome in outcomes) == 40
        assert isinstance(await leader.append_one(b"after"), Appended)


@ENGINES
async def test_prepared_records_are_written_when_they_are_scheduled(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        epoch = leader.leader_and_epoch().epoch
        end = leader.log_end_offset()
        assert leader.prepare_append(epoch, [b"a", b"b"]) == end + 1
        assert leader.prepare_append(epoch, [b"c"]) == end + 2
        with pytest.raises(TimeoutError, match=f"waited 20 ms for the record at offset {end} in vain"):
            await leader.wait_for_offset(end, timeout_ms=20)
        assert leader.log_end_offset() == end
        leader.schedule_prepared_append()
        await leader.wait_for_offset(end + 2, timeout_ms=10_000)


# Refusals -------------------------------------------------------------------------------------------------------------


@ENGINES
async def test_a_refused_append_names_value_and_remedy_and_takes_nothing(engine: str) -> None:
    async with quorum(engine=engine, batch_max_bytes=2_000) as three:
        leader = await three.leader()
        follower = next(client for client in three.clients.values() if client is not leader)
        known = leader.leader_and_epoch()
        await until(lambda: follower.leader_and_epoch() == known)
        end = leader.log_end_offset()

        with pytest.raises(NotLeaderError, match=f"does not lead epoch .*append to {leader.node_id}") as refused:
            await follower.append_one(b"value", timeout_ms=0)
        assert refused.value.leader == known
        with pytest.raises(NotLeaderError, match="is over"):
            await leader.append_one(b"value", epoch=known.epoch - 1)
        with pytest.raises(ConfigError, match=f"epoch={known.epoch + 1} is newer than {known.epoch}"):
            await leader.append_one(b"value", epoch=known.epoch + 1)
        with pytest.raises(RecordTooLargeError):
            await leader.append_one(b"x" * 2_001)
        with pytest.raises(ConfigError):
            await leader.append([])
        with pytest.raises(ConfigError):
            await leader.append([b"value", b""])
        with pytest.raises(ConfigError, match="is not bytes"):
            await leader.append_one("text")
        with pytest.raises(ConfigError, match="wait='sometime' must be one of"):
            await leader.append_one(b"value", wait="sometime")
        with pytest.raises(ConfigError, match="this client has none"):
            await leader.propose(b"value")

        appended = await leader.append_one(b"value", epoch=known.epoch)
        assert appended.base_offset == end, "none of them left a trace"


@ENGINES
async def test_a_full_backlog_refuses_and_takes_again_later(engine: str) -> None:
    async with quorum(engine=engine, backlog_max_bytes=4_096, batch_max_bytes=4_096) as three:
        leader = await three.leader()
        outcomes = await asyncio.gather(*(leader.append_one(b"x" * 200) for _ in range(100)), return_exceptions=True)
        kinds = {type(outcome) for outcome in outcomes}
        assert kinds == {Appended, BacklogFullError}
        assert isinstance(await leader.append_one(b"x" * 200), Appended)


@ENGINES
async def test_nothing_is_taken_before_the_start_and_after_the_end(engine: str) -> None:
    three = Quorum(engine=engine)
    early: RaftClient[bytes] = RaftClient(three.config(1), transport=MemoryTransport(three.hub, three.endpoint(1)))
    with pytest.raises(ClosedError, match="not started"):
        await early.append_one(b"value")
    with pytest.raises(ClosedError, match="not started"):
        await early.append([b"value"])
    await three.start()
    leader = await three.leader()
    await three.close()
    for append in (leader.append_one(b"value"), leader.append([b"value"]), leader.wait_for_leader()):
        with pytest.raises(ClosedError):
            await append
    assert leader.status().role in ("leader", "resigned", "unattached", "follower"), "a closed client still tells"
    with pytest.raises(ConfigError, match="started once"):
        await leader.start()


# Leaders come and go --------------------------------------------------------------------------------------------------


@ENGINES
async def test_a_cut_off_leader_says_that_the_outcome_is_unknown(engine: str) -> None:
    async with quorum(engine=engine) as three:
        old = await three.leader()
        epoch = old.leader_and_epoch().epoch
        three.hub.isolate(old.endpoint)
        pending = asyncio.create_task(old.append_one(b"lost or not"))
        new = await three.leader(not_id=old.node_id)
        assert new.leader_and_epoch().epoch > epoch
        with pytest.raises(OutcomeUnknownError, match=f"of epoch {epoch} were written") as unknown:
            await pending
        assert unknown.value.epoch == epoch
        assert unknown.value.base_offset >= 0

        three.hub.heal_all()
        after = await new.append_one(b"after")
        await old.wait_for_offset(after.last_offset, timeout_ms=10_000)
        with pytest.raises(NotLeaderError):
            await old.append_one(b"value", timeout_ms=0)


@ENGINES
async def test_acknowledged_records_survive_every_change_of_leader(engine: str) -> None:
    journal: dict[int, Journal] = {}

    def make(node_id: int) -> dict[str, Any]:
        journal[node_id] = Journal()
        return {"listener": journal[node_id]}

    acknowledged: list[tuple[int, bytes]] = []
    async with quorum(engine=engine, make=make) as three:
        for number in range(4):
            leader = await three.leader()
            for index in range(5):
                value = b"%d-%d" % (number, index)
                acknowledged.append(((await leader.append_one(value)).base_offset, value))
            node_id = leader.node_id
            await three.stop(node_id)
            await three.leader(not_id=node_id)
            await three.start(node_id)
        leader = await three.leader()
        last = (await leader.append_one(b"last")).last_offset
        for client in three.clients.values():
            await client.wait_for_offset(last, timeout_ms=10_000)

    for told in journal.values():
        assert [offset for offset, _ in told.records] == sorted({offset for offset, _ in told.records}), (
            "once, in order"
        )
        assert set(acknowledged) <= set(told.records)


@ENGINES
async def test_a_leader_that_resigns_is_replaced_and_its_appends_fail(engine: str) -> None:
    async with quorum(engine=engine) as three:
        old = await three.leader()
        epoch = old.leader_and_epoch().epoch
        with pytest.raises(ConfigError, match="cannot be resigned"):
            old.resign(epoch + 1)
        old.resign(epoch)
        await until(lambda: old.leader_and_epoch() != LeaderAndEpoch(old.node_id, epoch))
        with pytest.raises(NotLeaderError):
            await old.append_one(b"value", epoch=epoch)
        new = await three.leader()
        assert new.leader_and_epoch().epoch > epoch
        old.resign(epoch)  # over already: nothing happens
        follower = next(client for client in three.clients.values() if client is not new)
        await until(lambda: follower.leader_and_epoch() == new.leader_and_epoch())
        with pytest.raises(NotLeaderError, match="cannot resign"):
            follower.resign(follower.leader_and_epoch().epoch)


@ENGINES
async def test_leadership_goes_to_the_voter_that_is_named(engine: str) -> None:
    """Under load, and nothing acknowledged is lost; who is no other voter, or asked of a follower, is refused."""
    async with quorum(engine=engine) as trio:
        leader = await trio.leader()
        target = next(client for client in trio.clients.values() if client is not leader)
        load = [asyncio.create_task(leader.append([b"%d" % n])) for n in range(50)]
        await asyncio.sleep(0)
        after = await leader.transfer_leadership(target.node_id, timeout_ms=10_000)
        assert after.leader_id == target.node_id

        outcomes = await asyncio.gather(*load, return_exceptions=True)
        assert all(isinstance(outcome, Appended | NotLeaderError | OutcomeUnknownError) for outcome in outcomes)
        with pytest.raises(NotLeaderError, match="hand over"):
            await leader.transfer_leadership(target.node_id)
        for nobody in (target.node_id, 99):
            with pytest.raises(ConfigError, match="another one of the voters"):
                await target.transfer_leadership(nobody)


@ENGINES
async def test_listeners_hear_of_leaders_and_of_the_end(engine: str) -> None:
    journals = {node_id: Journal() for node_id in (1, 2, 3)}
    async with quorum(engine=engine, make=lambda node_id: {"listener": journals[node_id]}) as three:
        leader = await three.leader()
        known = leader.leader_and_epoch()
        await until(lambda: all(journal.leaders[-1:] == [known] for journal in journals.values()))
        late = Journal()
        leader.register(late)
        await until(lambda: late.leaders == [known] and late.records)
        leader.unregister(late)
        seen = len(late.records)
        appended = await leader.append_one(b"value", wait="applied")
        assert appended.base_offset not in {offset for offset, _ in late.records[seen:]}
        await three.stop(leader.node_id, timeout_ms=5_000)
        assert journals[leader.node_id].shut_down


# The end --------------------------------------------------------------------------------------------------------------


@ENGINES
async def test_a_graceful_shutdown_finishes_what_was_appended_and_hands_over(engine: str) -> None:
    async with quorum(engine=engine, fetch_timeout_ms=10_000) as three:
        leader = await three.leader()
        pending = [asyncio.create_task(leader.append_one(b"%d" % number)) for number in range(50)]
        await asyncio.sleep(0)
        await three.stop(leader.node_id, timeout_ms=20_000)
        assert all(isinstance(outcome, Appended) for outcome in await asyncio.gather(*pending))
        # With a fetch timeout of ten seconds only a leader that says good-bye is replaced at once.
        async with asyncio.timeout(8):
            await three.leader()


@ENGINES
async def test_an_abrupt_shutdown_tells_every_waiter(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        for node_id in three.ids:
            if node_id != leader.node_id:
                three.hub.cut(leader.endpoint, three.endpoint(node_id))
        pending = [asyncio.create_task(leader.append_one(b"%d" % number)) for number in range(5)]
        waiting = asyncio.create_task(leader.wait_for_offset(10_000))
        await until(lambda: leader.status().waiting == 5)
        await leader.shutdown(timeout_ms=0)
        await leader.shutdown(timeout_ms=0)  # twice is once
        outcomes = await asyncio.gather(*pending, waiting, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes[:-1]} <= {OutcomeUnknownError, ClosedError}
        assert isinstance(outcomes[-1], ClosedError)


@ENGINES
async def test_a_cancelled_shutdown_still_closes(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        for node_id in three.ids:
            if node_id != leader.node_id:
                await three.stop(node_id)
        stopping = asyncio.create_task(leader.shutdown(timeout_ms=300))
        await until(lambda: leader.status().role == "resigned")
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await leader.shutdown()
        with pytest.raises(ClosedError):
            await leader.append_one(b"value")


@ENGINES
async def test_who_has_waited_in_vain_is_forgotten(engine: str) -> None:
    """A poll with a timeout, for as long as there is no leader, must not grow."""

    def futures() -> int:
        return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())

    async def wait_in_vain(waiting: Coroutine[Any, Any, object]) -> None:
        with contextlib.suppress(TimeoutError):
            await waiting

    voters = tuple(StaticVoter(voter_id, Endpoint("replica", voter_id)) for voter_id in (1, 2))
    async with asyncio.timeout(PATIENCE_S), alone(engine=engine, voters=voters) as client:  # the other one is away
        before = futures()
        for _ in range(5):
            waits = [client.wait_for_offset(5, timeout_ms=1) for _ in range(100)]
            leaders = [client.wait_for_leader(timeout_ms=1) for _ in range(100)]
            await asyncio.gather(*map(wait_in_vain, [*waits, *leaders]))
        del waits, leaders
        await until(lambda: gc.collect() >= 0 and futures() < before + 300)


@ENGINES
async def test_a_failed_disk_stops_the_replica_and_everybody_is_told(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingLog(MemoryReplicatedLog):
        fail = False

        def flush(self) -> int:
            if self.fail:
                raise StorageError("fdatasync failed: Input/output error")
            return super().flush()

    log = FailingLog()
    client = alone({"log": log}, engine=engine)
    async with asyncio.timeout(PATIENCE_S):
        async with client:
            await client.wait_for_leader()
            await client.append_one(b"good")
            log.fail = True
            with pytest.raises(ReplicaFailedError, match="fdatasync failed") as failed:
                await client.append_one(b"bad")
            assert isinstance(failed.value.__cause__, StorageError)
            with pytest.raises(ReplicaFailedError, match="stopped itself"):
                await client.wait_closed()
            with pytest.raises(ReplicaFailedError):
                await client.append_one(b"after")
            with pytest.raises(ReplicaFailedError):
                await client.wait_for_leader()
            assert "fdatasync failed" in (client.status().failure or "")
            log.fail = False
    assert "replica 1 stopped itself" in caplog.text


@ENGINES
async def test_a_replica_that_fails_at_once_does_not_start(engine: str) -> None:
    class Broken(MemoryReplicatedLog):
        def begin_epoch(self, epoch: int, start_offset: int) -> None:
            raise StorageError("the disk is gone")

    hub = MemoryHub()
    client = alone({"log": Broken(), "transport": MemoryTransport(hub, PLACE)}, engine=engine, flush="inline")
    with pytest.raises(ReplicaFailedError, match="the disk is gone"):
        await client.start()
    async with alone({"transport": MemoryTransport(hub, PLACE)}, engine=engine) as again:
        await again.wait_for_leader(timeout_ms=10_000)


# Start ----------------------------------------------------------------------------------------------------------------


async def test_two_voters_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with quorum(voters=2, engine="inline") as two:
            await two.leader()
    assert "survives no failure" in caplog.text


async def test_without_a_directory_the_log_says_what_that_means(caplog: pytest.LogCaptureFixture) -> None:
    client = alone(engine="inline")
    async with client:
        await client.wait_for_leader(timeout_ms=10_000)
        await client.append_one(b"value")
        assert client.node_id == client.config.node_id == 1
        assert client.endpoint == PLACE
        assert client.kraft_version() == 0
        assert client.latest_snapshot_id() is None
    assert "in memory: the records and votes that it acknowledges are lost with the process" in caplog.text
    await client.wait_closed()


@ENGINES
async def test_a_snapshot_of_the_state_machine_is_where_the_next_start_begins(engine: str) -> None:
    machines: list[Counter] = []

    def make(node_id: int) -> dict[str, Any]:
        machines.append(Counter())
        return {"state_machine": machines[-1], "serde": JsonSerde()}

    async with quorum(voters=1, engine=engine, make=make) as alone:
        alone.probe = 0
        leader = await alone.leader()
        for number in (1, 2, 3):
            await leader.propose(number)
        snapshot_id = await leader.create_snapshot()
        assert snapshot_id.offset == leader.high_watermark()
        assert leader.latest_snapshot_id() == snapshot_id
        with pytest.raises(ConfigError, match="cannot end at offset"):
            await leader.create_snapshot([], offset=snapshot_id.offset + 1)
        await leader.propose(4)
        await alone.stop(1)
        await alone.start(1)
        leader = await alone.leader()
        assert await leader.propose(0) == 10
    assert min(machines[-1].offsets) >= snapshot_id.offset


@ENGINES
async def test_an_empty_follower_is_given_the_snapshot_and_then_the_log(engine: str) -> None:
    machines: dict[int, Counter] = {}

    def make(node_id: int) -> dict[str, Any]:
        machines[node_id] = Counter()
        return {"state_machine": machines[node_id], "serde": JsonSerde()}

    three = Quorum(engine=engine, make=make, snapshot_max_bytes=64)
    three.probe = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            await three.start(1, 2)
            leader = await three.leader()
            for number in range(10):
                await leader.propose(number)
            snapshot_id = await leader.create_snapshot()
            last = await leader.append_one(100)
            await three.start(3)
            await three.clients[3].wait_for_offset(last.last_offset)
            assert machines[3].total == 145
            assert min(machines[3].offsets) >= snapshot_id.offset, "what the snapshot covers was not sent"
            assert three.clients[3].latest_snapshot_id() == snapshot_id
            assert three.clients[3].status().log_start_offset == snapshot_id.offset
    finally:
        await three.close()


class Slow(Counter):
    """Restores only when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.restoring = threading.Event()
        self.may_restore = threading.Event()

    def restore(self, values: Iterable[Any]) -> None:
        self.restoring.set()
        if not self.may_restore.wait(PATIENCE_S):
            raise TimeoutError("nobody allowed it")
        super().restore(values)


@ENGINES
async def test_a_long_restore_holds_up_nobody_but_its_own_results(engine: str) -> None:
    machines: dict[int, Counter] = {}

    def make(node_id: int) -> dict[str, Any]:
        machines[node_id] = Slow() if node_id == 3 else Counter()
        return {"state_machine": machines[node_id], "serde": JsonSerde()}

    three = Quorum(engine=engine, make=make)
    three.probe = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            await three.start(1, 2)
            leader = await three.leader()
            await leader.propose(5)
            snapshot_id = await leader.create_snapshot()
            await three.start(3)
            slow = machines[3]
            assert isinstance(slow, Slow)
            await until(slow.restoring.is_set)
            last = await leader.append_one(7)
            # It fetches and acknowledges all the while, and says where its state machine really is.
            await until(lambda: (three.clients[3].high_watermark() or 0) > last.last_offset)
            assert three.clients[3].status().applied_offset < snapshot_id.offset
            slow.may_restore.set()
            await three.clients[3].wait_for_offset(last.last_offset)
            assert slow.total == 12
    finally:
        for machine in machines.values():
            if isinstance(machine, Slow):
                machine.may_restore.set()
        await three.close()


async def test_a_snapshot_that_cannot_be_restored_stops_the_state_machine(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Counter):
        def restore(self, values: Iterable[Any]) -> None:
            raise ValueError("not mine")

    async with quorum(voters=1, make=lambda node_id: {"state_machine": Broken(), "serde": JsonSerde()}) as alone:
        alone.probe = 0
        leader = await alone.leader()
        await leader.propose(1)
        await leader.create_snapshot()
        await alone.stop(1)
        await alone.start(1)
        leader = alone.clients[1]
        await until(lambda: "raised at offset" in caplog.text)  # before, the outcome would be unknown
        assert "not mine" in (leader.status().failure or "")
        with pytest.raises(ReplicaFailedError, match="not mine"):
            await leader.propose(1)


@ENGINES
async def test_a_bare_next_in_the_application_costs_no_value_in_silence(engine: str) -> None:
    """It raises StopIteration, which ends whatever iterates by calling that function."""

    class Careless(JsonSerde):
        def to_bytes(self, value: Any) -> bytes:
            return next(iter(())) if value == "bad" else super().to_bytes(value)

    class Machine(Counter):
        frozen: Any = ()

        def freeze(self) -> Iterable[Any]:
            return next(iter(())) if self.frozen is None else self.frozen

    machine = Machine()
    made = {"state_machine": machine, "serde": Careless()}
    async with quorum(voters=1, make=lambda node_id: made, engine=engine) as alone, asyncio.timeout(PATIENCE_S):
        alone.probe = 0
        leader = await alone.leader()
        end_offset = leader.log_end_offset()
        with pytest.raises(RuntimeError, match="StopIteration"):
            await leader.append([1, "bad", 2])
        assert leader.log_end_offset() == end_offset
        for values in ([1, "bad", 2], None):
            machine.frozen = values
            with pytest.raises(RuntimeError, match="StopIteration"):
                await leader.create_snapshot()
        with pytest.raises(RuntimeError, match="StopIteration"):
            await leader.create_snapshot([1, "bad", 2], offset=end_offset)
        with pytest.raises(RuntimeError, match="StopIteration"), leader.begin_snapshot() as snapshot:
            snapshot.append([1, "bad", 2])
        assert leader.latest_snapshot_id() is None


async def test_the_voter_that_is_wanted_leads_whenever_it_can() -> None:
    """It takes over from whoever was elected, is replaced when it is gone, and takes over again when it is back."""
    wanted = {3: {"election_priority": 60}, 2: {"election_priority": 30}}

    class Wanting(Quorum):
        def config(self, node_id: int) -> RaftConfig:
            return attrs.evolve(super().config(node_id), priority_takeover_ms=200, **wanted.get(node_id, {}))

    nodes = Wanting()
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await nodes.start()
            await until(lambda: nodes.clients[1].leader_and_epoch().leader_id == 3)
            await nodes.stop(3)
            await until(lambda: nodes.clients[1].leader_and_epoch().leader_id == 2)
            await nodes.start(3)
            await until(lambda: nodes.clients[1].leader_and_epoch().leader_id == 3)
            assert (await (await nodes.leader()).append_one(b"still there")).epoch > 2
    finally:
        await nodes.close()


async def test_who_may_ask_is_up_to_the_application() -> None:
    """Two voters that may not be asked to vote elect nobody, and say whom they denied what."""
    denied: list[int] = []

    def nobody_votes(peer: Peer, api_key: int) -> bool:
        if api_key == ApiKey.VOTE:
            denied.append(api_key)
        return api_key != ApiKey.VOTE

    async with quorum(voters=2, make=lambda node_id: {"authorize": nobody_votes}) as together:
        await until(lambda: len(denied) >= 2)
        assert all(client.leader_and_epoch().leader_id is None for client in together.clients.values())
