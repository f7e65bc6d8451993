"""The appender: in order, bounded, and after an error nothing more; whatever it says has settled is in the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    ReplicaFailedError,
)
from kraftlib.records.batch import HEADER_SIZE
from kraftlib.records.values import RECORD_OVERHEAD_MAX
from kraftlib.runtime.client.appender import Appender
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.waiters import Appended
from kraftlib.types import LeaderAndEpoch
from tests.runtime.quorum import PATIENCE_S, quorum, until

ENGINES = pytest.mark.parametrize("engine", ["inline", "thread"])


class Engine:
    """Takes chunks as an engine does, and settles them when told to. Refuses as often as `refusals` says."""

    def __init__(self) -> None:
        self.chunks: list[list[bytes]] = []
        self.offered = 0
        self.refusals: list[KraftError] = []
        self.later: list[KraftError] = []
        self.pending: asyncio.Future[Appended] | None = None

    def append(self, values: Sequence[bytes]) -> asyncio.Future[Appended]:
        assert self.pending is None, "one chunk is on its way"
        self.offered += 1
        if self.refusals:
            raise self.refusals.pop()
        future = asyncio.get_running_loop().create_future()
        if self.later:
            future.set_exception(self.later.pop())
            return future
        self.chunks.append(list(values))
        self.pending = future
        return future

    def settle(self) -> None:
        if self.pending is not None:
            future, self.pending = self.pending, None
            end = len(self.values)
            future.set_result(Appended(end - len(self.chunks[-1]), end - 1, 1))

    @property
    def values(self) -> list[bytes]:
        return [value for chunk in self.chunks for value in chunk]

    def appender(self, *, max_in_flight: int = 10, batch_max_bytes: int = 2_000, **more: Any) -> Appender[bytes]:
        more.setdefault("on_settled", None)
        return Appender(
            self.append, lambda value: value, max_in_flight=max_in_flight, batch_max_bytes=batch_max_bytes, **more
        )


@pytest.mark.parametrize("seed", range(20))
async def test_values_are_appended_in_order_within_bounds_whatever_is_refused_for_a_while(seed: int) -> None:
    chance, engine = random.Random(seed), Engine()
    told: list[Appended] = []
    appender = engine.appender(max_in_flight=chance.randint(1, 40), on_settled=told.append)
    values = [bytes([number % 251]) * chance.choice((1, 9, 700, 1_900)) for number in range(300)]

    async def settle() -> None:
        full = [BacklogFullError("full") for _ in range(10)]
        while True:
            if full and len(engine.chunks) > 50 - 5 * len(full):
                chance.choice((engine.refusals, engine.later)).append(full.pop())
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            assert appender.taken - appender.settled <= appender.max_in_flight
            engine.settle()

    settling = asyncio.create_task(settle())
    async with asyncio.timeout(PATIENCE_S):
        async with appender:
            await appender.put_many(values[:100])
            for value in values[100:]:
                await appender.put(value)
            assert appender.taken == 300
        assert await appender.flush() == appender.end_offset == 300
    settling.cancel()

    assert engine.values == values
    assert appender.settled == 300
    for chunk in engine.chunks:
        assert HEADER_SIZE + sum(map(len, chunk)) + RECORD_OVERHEAD_MAX * len(chunk) <= 2_000
    assert [number for one in told for number in range(one.base_offset, one.last_offset + 1)] == list(range(300))


@pytest.mark.parametrize("at_once", [True, False])
async def test_after_an_error_nothing_is_appended_any_more(at_once: bool) -> None:
    engine = Engine()
    appender = engine.appender(max_in_flight=3)
    await appender.put_many([b"a", b"b"])
    await asyncio.sleep(0)
    engine.settle()
    await appender.flush()
    (engine.refusals if at_once else engine.later).append(NotLeaderError("over", leader=LeaderAndEpoch(2, 5)))
    waiting = asyncio.create_task(appender.put_many([b"c"] * 10))

    with pytest.raises(NotLeaderError, match="over"):
        await waiting
    for late in (appender.put(b"d"), appender.flush()):
        with pytest.raises(NotLeaderError, match="over"):
            await late

    assert (appender.settled, appender.end_offset, engine.values) == (2, 2, [b"a", b"b"])
    assert engine.offered == 2
    assert await appender.reach(2) == 2


async def test_a_value_that_cannot_be_appended_is_refused_and_changes_nothing() -> None:
    engine = Engine()
    appender = engine.appender(batch_max_bytes=1_000)
    largest = b"x" * (1_000 - HEADER_SIZE - RECORD_OVERHEAD_MAX)
    wrong: Any = "text"
    for value, error in ((b"", ConfigError), (wrong, TypeError), (largest + b"x", RecordTooLargeError)):
        with pytest.raises(error):
            await appender.put(value)
        with pytest.raises(error):
            await appender.put_many([b"before it", value, b"behind it"])
    with pytest.raises(ConfigError, match="max_in_flight=0"):
        engine.appender(max_in_flight=0)

    await asyncio.sleep(0)
    engine.settle()
    assert await appender.flush() == 3

    await appender.put(largest)
    await asyncio.sleep(0)
    engine.settle()
    assert await appender.flush() == 4
    assert engine.values == [b"before it"] * 3 + [largest]


async def test_closing_or_a_failed_body_drops_what_was_not_sent() -> None:
    engine = Engine()
    appender = engine.appender()

    async def fail() -> None:
        async with appender:
            await appender.put(b"sent")
            await asyncio.sleep(0)
            await appender.put(b"never sent")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    engine.settle()
    await asyncio.sleep(0.02)

    assert engine.values == [b"sent"]
    assert appender.settled == 1
    with pytest.raises(ClosedError):
        await appender.put(b"late")


@pytest.mark.parametrize(
    ("error", "settled", "told"),
    [
        (None, 1, "closed before"),
        (OutcomeUnknownError("written, and then the leader died"), 0, "the leader died"),
        (ReplicaFailedError("the disk died"), 0, "the disk died"),
        (NotLeaderError("over", leader=LeaderAndEpoch(2, 5)), 0, "over"),
        (BacklogFullError("full"), 0, "closed before"),
    ],
)
async def test_who_waits_for_a_closed_appender_hears_what_became_of_the_values_on_their_way(
    error: KraftError | None, settled: int, told: str
) -> None:
    engine = Engine()
    appender = engine.appender()
    await appender.put(b"sent")
    await asyncio.sleep(0)
    await appender.put(b"never sent")
    first = asyncio.create_task(appender.reach(1))
    both = asyncio.create_task(appender.flush())
    await asyncio.sleep(0)
    appender.close()
    with pytest.raises(ClosedError):
        await appender.put(b"late")
    await asyncio.sleep(0)
    assert not first.done(), "nobody knows yet"
    assert not both.done(), "nor of the second what became of the first"
    if error is None:
        engine.settle()
        assert await first == 1
    else:
        assert engine.pending is not None
        engine.pending.set_exception(error)
        with pytest.raises(type(error) if told != "closed before" else ClosedError, match=told):
            await first
    with pytest.raises(KraftError, match=told):
        await both
    appender.close()
    with pytest.raises(KraftError, match=told):
        await appender.flush()
    assert (appender.settled, engine.values) == (settled, [b"sent"])


@ENGINES
async def test_values_that_a_closed_appender_has_sent_are_never_said_not_to_be_appended(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        appender = leader.appender()
        await appender.put(b"value")
        await asyncio.sleep(0)
        appender.close()
        end_offset = await appender.flush()
        assert end_offset is not None
        assert end_offset <= leader.log_end_offset()


async def test_a_serde_that_raises_stop_iteration_drops_nothing_without_a_word() -> None:
    engine = Engine()

    def to_bytes(value: bytes) -> bytes:
        return value if value != b"c" else next(iter(()))

    appender = Appender(engine.append, to_bytes, max_in_flight=10, batch_max_bytes=2_000, on_settled=None)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await appender.put_many([b"a", b"b", b"c", b"d"])
    await asyncio.sleep(0)
    engine.settle()
    assert await appender.flush() == 2
    assert engine.values == [b"a", b"b"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("1"), ZeroDivisionError),
        (asyncio.CancelledError(), RuntimeError),
        (SystemExit(3), RuntimeError),
        (StopIteration(), RuntimeError),
    ],
    ids=repr,
)
async def test_a_callback_that_fails_ends_its_appender(error: BaseException, told: type[Exception]) -> None:
    """Whatever it raises: a CancelledError of a future that it asks would leave all who put and flush waiting."""
    engine = Engine()

    def fail(appended: Appended) -> None:
        raise error

    appender = engine.appender(on_settled=fail)
    await appender.put(b"a")
    await asyncio.sleep(0)
    await appender.put(b"b")
    engine.settle()

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(told):
            await appender.flush()
        with pytest.raises(told):
            await appender.put(b"c")
    assert (appender.settled, engine.values) == (1, [b"a"])


class Kept(StateMachine):
    """Keeps the values."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.values.append(record.value)
        return len(self.values)


@ENGINES
async def test_a_quorum_takes_thousands_of_values_and_gives_their_results(engine: str) -> None:
    machines = {node_id: Kept() for node_id in (1, 2, 3)}
    results: list[int] = []
    async with quorum(engine=engine, make=lambda node_id: {"state_machine": machines[node_id]}) as three:
        leader = await three.leader()
        before = len(await until_values(machines[leader.node_id]))
        values = [b"%d" % number for number in range(5_000)]
        appender = leader.appender(
            wait="applied", max_in_flight=256, on_settled=lambda appended: results.extend(appended.results)
        )
        async with appender:
            await appender.put_many(values)

        assert appender.end_offset == leader.log_end_offset()
        assert machines[leader.node_id].values[before:] == values
        assert results == list(range(before + 1, before + 5_001))
        assert await leader.propose_many([b"x", b"y"]) == (before + 5_001, before + 5_002)


async def until_values(machine: Kept) -> list[bytes]:
    await until(lambda: machine.values)
    return machine.values


@ENGINES
async def test_what_has_settled_is_a_beginning_of_what_was_put_when_leadership_is_lost(engine: str) -> None:
    machines = {node_id: Kept() for node_id in (1, 2, 3)}
    async with quorum(engine=engine, make=lambda node_id: {"state_machine": machines[node_id]}) as three:
        leader = await three.leader()
        values = [b"%d" % number for number in range(100_000)]
        appender = leader.appender(max_in_flight=64)
        putting = asyncio.create_task(appender.put_many(values))
        await until(lambda: appender.settled)
        leader.resign(leader.leader_and_epoch().epoch)
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            await putting
        settled = appender.settled
        following = await three.leader()
        await following.read_barrier()

        kept = [value for value in machines[following.node_id].values if value != three.probe]
        assert kept == values[: len(kept)]
        assert settled <= len(kept) <= appender.taken
        with pytest.raises((NotLeaderError, OutcomeUnknownError)):
            await appender.flush()


@ENGINES
async def test_an_appender_of_a_closed_client_says_so(engine: str) -> None:
    async with quorum(engine=engine, voters=1) as one:
        leader = await one.leader()
        appender = leader.appender()
        await leader.shutdown(timeout_ms=0)
        await appender.put(b"late")
        with pytest.raises(ClosedError):
            await appender.flush()
        assert appender.settled == 0
        with pytest.raises(ConfigError, match="no state machine"):
            await leader.propose_many([b"x"])
