"""`connect` over real sockets: calls count once, through leaders and replicas that are killed; and refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.coordination.access import BEFORE_ALL, STALE, AtLeast
from kraftlib.coordination.net.client import PAUSE_MAX_S, connect
from kraftlib.errors import ClosedError, ConfigError, OutcomeUnknownError, RefusedError, TimedOutError, UnavailableError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.api_versions import ASKED
from kraftlib.runtime.net.framing import FrameReader, framed
from kraftlib.security.access import AccessConfig
from kraftlib.security.limits import TcpLimits
from kraftlib.types import Endpoint, parse_endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, QUESTION_BYTES
from kraftlib.wire.frames import decode_request, encode_response
from kraftlib.wire.messages.call import CallRequest, CallResponse
from tests.coordination.net.test_arrivals import Frail
from tests.coordination.net.test_connection import versions
from tests.coordination.net.ways import CALL_MS, EVERYTHING, Caller, addition, putting, question, replicas, value
from tests.ports import free_ports
from tests.runtime.quorum import until


async def test_a_client_of_any_replica_calls_and_asks() -> None:
    async with replicas() as quorum:
        for node_id in quorum.ids:
            async with connect([quorum.endpoint(node_id)]) as access:
                caller = await Caller(access).begin()
                done = await caller.put("key", b"of %d" % node_id)
                assert await value(access, "key") == b"of %d" % node_id
                assert await value(access, "key", consistency=AtLeast(done.offset)) == b"of %d" % node_id
                assert await value(access, "key", consistency=STALE) == b"of %d" % node_id


async def test_increments_through_changes_of_leader_sum_to_the_calls() -> None:
    """Each of them is retried by the client with its identity, and none of the callers notices but in latency."""
    async with replicas() as quorum, connect(quorum.servers) as access:
        await Caller(access).begin()
        done, calls = asyncio.Event(), 0
        progress = asyncio.Event()

        async def increment() -> None:
            nonlocal calls
            caller = await Caller(access).begin()
            while not done.is_set():
                await caller.add("sum")
                calls += 1
                progress.set()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(increment())
            for number in range(12):
                await quorum.change_leader(kill=number % 2 == 0)
                progress.clear()
                async with asyncio.timeout(CALL_MS / 1_000):
                    await progress.wait()
            done.set()
        assert await value(access, "sum") == b"%d" % calls


async def test_the_replica_that_a_client_has_is_killed() -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        for number in range(1, 7):
            await caller.add("sum")
            connected = await access.connection()
            victim = next(node_id for node_id in quorum.ids if quorum.endpoint(node_id) == connected.endpoint)
            await quorum.kill(victim)
            assert (await value(access, "sum")) == b"%d" % number
            await quorum.start(victim)


async def test_other_replicas_are_named_while_it_is_connected() -> None:
    async with replicas(3) as quorum:
        first, *_ = servers = quorum.servers.split(",")
        async with connect(first) as access:
            caller = await Caller(access).begin()
            await caller.add("sum")
            access.use([parse_endpoint(server) for server in servers])
            await quorum.kill(1)
            await caller.add("sum")
            assert await value(access, "sum") == b"2"


async def test_the_same_bytes_are_applied_once_whoever_repeats_them() -> None:
    async with replicas() as quorum, connect(quorum.servers) as one, connect(quorum.servers) as other:
        caller = await Caller(one).begin()
        first = await caller.add("sum")
        command = caller.command(addition("sum"), 1)
        again = [await access.call(command, timeout_ms=CALL_MS) for access in (one, other, *quorum.running.values())]
        assert {done.result for done in again} == {first.result}
        assert await value(one, "sum") == b"1"


async def test_what_cannot_be_is_refused_and_a_quorum_without_a_majority_in_time() -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        with pytest.raises(RefusedError, match="this is no command") as refused:
            await access.call(b"garbage", timeout_ms=CALL_MS)
        assert not isinstance(refused.value, UnavailableError), "another attempt is no better"
        with pytest.raises(ConfigError, match="this is no question"):
            await access.query(b"garbage", timeout_ms=CALL_MS)
        large = bytes(PROPOSED_BYTES + 1)
        with pytest.raises(RefusedError, match=f"a command of {len(large)} bytes"):
            await access.call(large, timeout_ms=CALL_MS)
        for too_large in (bytes(QUESTION_BYTES + 1), large):
            with pytest.raises(ConfigError, match=f"a question of {len(too_large)} bytes"):
                await access.query(too_large, timeout_ms=CALL_MS)
            with pytest.raises(ConfigError, match=f"a selector of {len(too_large)} bytes"):
                await anext(access.watch(too_large, None))
        largest = [asyncio.ensure_future(anext(access.watch(bytes(QUESTION_BYTES), None))) for _ in range(16)]
        with pytest.raises(ConfigError, match=f"selectors of one client are {16 * QUESTION_BYTES} bytes"):
            await largest.pop()
        for each in largest:
            with pytest.raises(ConfigError, match="this is no selector"):
                await each
        with pytest.raises(ConfigError, match="timeout_ms=0"):
            await access.call(b"garbage", timeout_ms=0)
        caller = await Caller(access).begin()
        for node_id in (1, 2):
            await quorum.kill(node_id)
        with pytest.raises((UnavailableError, OutcomeUnknownError), match="700 ms"):
            await access.call(caller.command(addition("sum"), 1), timeout_ms=700)
        with pytest.raises(TimedOutError, match="700 ms"):
            await access.query(question("sum"), timeout_ms=700)
        assert await value(access, "sum", consistency=STALE) is None
    with pytest.raises(ClosedError):
        await access.call(b"x", timeout_ms=1)


async def test_a_task_that_is_cancelled_while_the_client_closes_is_cancelled() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
        access = connect([Endpoint(*silent.sockets[0].getsockname())])
        asking = asyncio.create_task(access.query(b"x", timeout_ms=CALL_MS))
        await asyncio.sleep(0)
        closing = asyncio.create_task(access.close())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await closing


async def test_replicas_that_all_answer_with_errors_are_asked_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(shortest_s: float, longest_s: float) -> float:
        pauses.append(longest_s)
        return 0.0

    async with replicas(machine=lambda node_id: Frail()) as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        with pytest.raises((RefusedError, OutcomeUnknownError)):
            await access.call(caller.command(putting("key", b"poison"), 1), timeout_ms=1_000)
        monkeypatch.setattr("kraftlib.coordination.net.client.random.uniform", pause)
        watching = asyncio.create_task(anext(access.watch(EVERYTHING, BEFORE_ALL)))
        await until(lambda: PAUSE_MAX_S in pauses)
        watching.cancel()


@contextlib.asynccontextmanager
async def server(error_code: int, asked: list[int]) -> AsyncIterator[Endpoint]:
    """A server that answers every Call with `error_code`; `asked` has the times that the requests gave."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1_000_000)
        while data := await reader.read(10_000):
            frames.feed(data)
            while (frame := frames.next_frame()) is not None:
                request = decode_request(frame)
                if isinstance(request.message, CallRequest):
                    asked.append(request.message.timeout_ms)
                    answer = CallResponse(offset=7, error_code=error_code)
                    writer.write(framed(encode_response(answer, version=0, correlation_id=request.correlation_id)))
                else:
                    writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1])


async def test_a_replica_without_a_leader_is_given_less_time_than_there_is_so_another_one_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers at the end of the time that it is given: the caller would have gone, and asked it again and again."""
    monkeypatch.setattr("kraftlib.coordination.net.client.random.shuffle", lambda servers: None)
    asked: list[int] = []
    alone, well = server(ErrorCode.NOT_LEADER_OR_FOLLOWER, asked), server(0, [])
    async with alone as first, well as second, connect([first, second]) as access:
        assert (await access.call(b"x", timeout_ms=1_500)).offset == 7
    assert 0 < asked[0] <= 1_000


async def test_an_error_that_is_not_known_leaves_the_outcome_open() -> None:
    async with server(999, []) as place, connect([place]) as access:
        with pytest.raises(OutcomeUnknownError, match="is not known"):
            await access.call(b"x", timeout_ms=300)


async def test_where_nobody_listens_nothing_was_appended() -> None:
    async with connect("127.0.0.1:1,127.0.0.1:2") as access:
        with pytest.raises(UnavailableError, match=r"within 300 ms: 127\.0\.0\.1:\d cannot be reached"):
            await access.call(b"x", timeout_ms=300)


async def test_who_is_no_client_of_the_replica_is_refused() -> None:
    async with replicas(1, access=AccessConfig(anonymous="nothing")) as quorum, connect(quorum.servers) as access:
        with pytest.raises(RefusedError, match=r"needs the role writer"):
            await access.call(b"x", timeout_ms=CALL_MS)
        with pytest.raises(RefusedError, match=r"needs the role client"):
            await anext(access.watch(b"x", None))


async def test_a_replica_without_a_machine_refuses_them_like_any_unknown_request() -> None:
    place = Endpoint("127.0.0.1", free_ports(1)[0])
    plain: RaftClient[bytes] = RaftClient(
        RaftConfig(node_id=1, voters=(StaticVoter(1, place),), cluster_id="plain", listen=place)
    )
    async with plain, connect([place]) as access:
        with pytest.raises(RefusedError, match=r"serves no clients: open that replica with kraftlib\.open"):
            await access.call(b"x", timeout_ms=300)


@pytest.mark.parametrize("servers", ["", " , ", "nonsense", [], ["127.0.0.1:1"]])
def test_servers_that_are_none_are_refused_before_anything_happens(servers: object) -> None:
    with pytest.raises(ConfigError):
        connect(servers)  # type: ignore[arg-type]


async def test_two_hundred_clients_on_one_replica() -> None:
    async with replicas(1, limits=TcpLimits(connections_max=300, connections_per_address_max=300)) as quorum:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(200):
                tasks.create_task(_one_client(quorum.servers))
        async with connect(quorum.servers) as access:
            assert await value(access, "sum") == b"1000"


async def _one_client(servers: str) -> None:
    async with connect(servers) as access:
        caller = await Caller(access).begin()
        for _ in range(5):
            await caller.add("sum")
