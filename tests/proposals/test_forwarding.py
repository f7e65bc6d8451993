"""Appends on a replica that does not lead: forwarded, applied here, and refused or unknown exactly where they are."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    DiskFullError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    ReplicaFailedError,
)
from kraftlib.proposals.forwarding import Proposals
from kraftlib.proposals.ports import UnansweredError
from kraftlib.records.serde import JsonSerde, TextSerde
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.net.memory_transport import MemoryTransport
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, PROPOSED_VALUES
from kraftlib.wire.messages.propose import ProposeResponse
from tests.runtime.quorum import PATIENCE_S, TIMING, Quorum, quorum, until


class Counter(StateMachine):
    """Counts each operation once: a value that was seen before changes nothing and has the first result."""

    def __init__(self) -> None:
        self.total = 0
        self.seen: dict[str, int] = {}

    def apply(self, record: CommittedRecord) -> Any:
        value = record.value.decode()
        if value == "unspeakable":
            return object()
        if value not in self.seen:
            self.total += 1
            self.seen[value] = self.total
        return {"total": self.seen[value]}


def counting(node_id: int) -> dict[str, Any]:
    return {"state_machine": Counter()}


async def follower_of(nodes: Quorum, leader: RaftClient[Any]) -> RaftClient[Any]:
    follower = next(client for client in nodes.clients.values() if client is not leader)
    await until(lambda: follower.leader_and_epoch() == leader.leader_and_epoch())
    return follower


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_follower_proposes_and_reads_its_own_write(engine: str) -> None:
    machines = {node_id: Counter() for node_id in (1, 2, 3)}
    async with quorum(engine=engine, make=lambda node_id: {"state_machine": machines[node_id]}) as nodes:
        leader = await nodes.leader()
        follower = await follower_of(nodes, leader)

        for number in range(20):
            result = await follower.propose(f"follower {number}".encode())
            assert machines[follower.node_id].seen[f"follower {number}"] == result["total"]

        appended = await follower.append([b"a", b"b", b"c"], wait="applied")
        assert appended.last_offset == appended.base_offset + 2
        assert [result["total"] for result in appended.results] == [22, 23, 24]  # the probe of `leader` was the first
        for level in ("appended", "flushed", "committed"):
            assert (await follower.append_one(b"once", wait=level)).results == ()
        assert (await follower.propose(b"once"))["total"] == 25


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_forwarded_append_of_a_client_leaves_no_garbage_for_the_collector(engine: str) -> None:
    async with quorum(engine=engine, make=counting) as nodes:
        follower = await follower_of(nodes, await nodes.leader())

        async def append_fifty() -> None:
            await asyncio.gather(*[follower.append_one(b"x") for _ in range(50)])

        await append_fifty()
        gc.collect()
        gc.disable()
        try:
            await append_fifty()
            assert gc.collect() < 50  # of other work in these processes, if any
        finally:
            gc.enable()


async def test_an_observer_proposes_too() -> None:
    async with quorum(make=counting) as nodes:
        await nodes.leader()
        observer: RaftClient[bytes] = RaftClient(
            RaftConfig(
                node_id=9, cluster_id="test", bootstrap_servers=tuple(nodes.endpoint(n) for n in nodes.ids), **TIMING
            ),
            log=MemoryReplicatedLog(),
            elections=MemoryQuorumStateStore(),
            transport=MemoryTransport(nodes.hub, Endpoint("replica", 9)),
            state_machine=Counter(),
            random=random.Random(9),
        )
        async with observer:
            assert await observer.propose(b"of an observer") == {"total": 2}


async def test_what_was_decided_in_an_epoch_is_not_forwarded_and_no_time_means_here_alone() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        follower = await follower_of(nodes, leader)
        epoch = leader.leader_and_epoch().epoch
        end_offset = leader.log_end_offset()

        with pytest.raises(NotLeaderError, match=f"append to {leader.node_id}"):
            await follower.append_one(b"decided", epoch=epoch)
        with pytest.raises(NotLeaderError, match=f"append to {leader.node_id}"):
            await follower.append_one(b"here", timeout_ms=0)
        for timeout_ms in (-1, "5"):
            with pytest.raises(ConfigError, match="timeout_ms="):
                await follower.append_one(b"wrong", timeout_ms=timeout_ms)  # type: ignore[arg-type]
        assert leader.log_end_offset() == end_offset


async def test_refusals_of_the_leader_arrive_as_they_are_and_leave_no_doubt() -> None:
    async with quorum(make=lambda node_id: {}) as nodes:
        leader = await nodes.leader()
        follower = await follower_of(nodes, leader)
        end_offset = leader.log_end_offset()

        with pytest.raises(ConfigError, match="empty"):
            await follower.append_one(b"")
        with pytest.raises(RecordTooLargeError, match="nothing was appended"):
            await follower.append_one(bytes(PROPOSED_BYTES + 1))
        with pytest.raises(RecordTooLargeError, match=f"{PROPOSED_VALUES + 1} values"):
            await follower.append([b"x"] * (PROPOSED_VALUES + 1))
        with pytest.raises(ConfigError, match="no state machine"):
            await follower.append_one(b"x", wait="applied")
        assert leader.log_end_offset() == end_offset
        assert (await follower.append([b"x"] * PROPOSED_VALUES)).base_offset == end_offset


async def test_a_result_that_cannot_be_sent_says_so_and_a_serde_of_ones_own_carries_any() -> None:
    async with quorum(make=counting) as nodes:
        follower = await follower_of(nodes, await nodes.leader())
        with pytest.raises(OutcomeUnknownError, match="is committed, and its result did not come here: object has no"):
            await follower.propose(b"unspeakable")

    class Spoken(JsonSerde):
        def to_bytes(self, value: Any) -> bytes:
            return TextSerde().to_bytes(type(value).__name__)

        def from_bytes(self, data: bytes) -> Any:
            return TextSerde().from_bytes(data)

    async with quorum(make=lambda node_id: {**counting(node_id), "result_serde": Spoken()}) as nodes:
        follower = await follower_of(nodes, await nodes.leader())
        assert await follower.propose(b"unspeakable") == "object"


async def test_an_append_waits_for_a_leader_and_is_refused_where_none_comes() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        others = [node_id for node_id in nodes.ids if node_id != leader.node_id]
        epoch = leader.leader_and_epoch().epoch
        await nodes.stop(leader.node_id)
        survivor = nodes.clients[others[0]]

        assert (await survivor.append_one(b"outlives its leader", timeout_ms=20_000)).epoch > epoch

        await nodes.stop(others[1])
        with pytest.raises(NotLeaderError, match="nothing was appended"):
            await append_until_known(survivor)


async def append_until_known(survivor: RaftClient[Any]) -> None:
    """Until it knows that it has lost the others, a survivor that leads writes, and cannot say more."""
    while True:
        with contextlib.suppress(OutcomeUnknownError):
            await survivor.append_one(b"nobody takes it", timeout_ms=200)


async def test_without_private_apis_a_follower_refuses_as_ever() -> None:
    async with quorum(private_apis=False) as nodes:
        leader = await nodes.leader()
        follower = await follower_of(nodes, leader)
        with pytest.raises(NotLeaderError, match=f"append to {leader.node_id}"):
            await follower.append_one(b"x")


async def test_a_leader_that_does_not_know_the_request_is_no_help() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        await nodes.stop(follower_id := next(node_id for node_id in nodes.ids if node_id != leader.node_id))
        nodes._config["private_apis"] = False
        await nodes.stop(leader.node_id)
        await nodes.start(leader.node_id)
        nodes._config["private_apis"] = True
        await nodes.start(follower_id)
        third = next(client for client in nodes.clients.values() if client.node_id not in (leader.node_id, follower_id))
        await third.shutdown()
        without = nodes.clients[leader.node_id]
        follower = nodes.clients[follower_id]
        async with asyncio.timeout(PATIENCE_S):
            while without.leader_and_epoch().leader_id != without.node_id:
                known = follower.leader_and_epoch()
                if known.leader_id == follower_id:
                    follower.resign(known.epoch)
                await asyncio.sleep(0.05)
        await until(lambda: follower.leader_and_epoch().leader_id == without.node_id)

        with pytest.raises(NotLeaderError, match="nothing was appended"):
            await follower.append_one(b"x", timeout_ms=60_000)


class Replica:
    """A replica that follows, with a leader that answers as a test says."""

    node_id = 1
    cluster_id = "test"
    has_ended = False
    begins = False

    def __init__(self, *answers: ProposeResponse | Exception, then: Exception | None = None) -> None:
        self.answers = list(answers)
        self.then = then
        """What it says of its second append, in place of the leader."""
        self.asked: list[Any] = []

    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        return LeaderAndEpoch(2, 5), Endpoint("replica", 2)

    def follows(self, level: int) -> bool:
        return not self.asked or self.then is None

    def not_leader(self) -> NotLeaderError:
        return NotLeaderError("replica 1 follows, nothing was appended", leader=LeaderAndEpoch(2, 5))

    def append(self, values: Any, level: int) -> asyncio.Future[Any]:
        assert self.then is not None
        then, self.then = self.then, None
        raise then

    def ask(self, leader_id: int, endpoint: Endpoint, request: Any) -> asyncio.Future[Any]:
        self.asked.append(request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        return future

    def applied(self, offset: int, epoch: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(offset + 1)
        return future


LOST = UnansweredError("disconnected", may_have_arrived=True)
UNSENT = UnansweredError("no connection", may_have_arrived=False)
WRITTEN = ProposeResponse(
    error_code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, error_message="written", base_offset=7, epoch=5
)
REFUSED = ProposeResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="I follow, nothing was appended")
DONE = ProposeResponse(base_offset=8, last_offset=8, epoch=6, results=(b"\x01yes",))


@pytest.fixture(params=["by a task", "begun without one"])
def is_begun(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether `propose` below begins its first attempt without a task: what comes of it is the same."""
    begins = request.param == "begun without one"
    monkeypatch.setattr(Replica, "begins", begins)
    return begins


async def propose(replica: Replica, *, repeatable: bool, timeout_ms: int = 300) -> Any:
    proposals = Proposals(replica, serde=JsonSerde())
    if not replica.begins:
        return await proposals.propose([b"x"], level=3, timeout_ms=timeout_ms, repeatable=repeatable)
    begun = proposals.begin([b"x"], level=3, timeout_ms=timeout_ms, repeatable=repeatable)
    assert begun is not None
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    proposals.tell(begun, told.set_result)
    try:
        proposed = await asyncio.shield(told)
    except asyncio.CancelledError:
        begun.cancel()  # as a connection does that is lost
        proposed = await told
    return await proposals.go_on(begun) if proposed is None else proposed


both_ways = pytest.mark.usefixtures("is_begun")


@both_ways
@pytest.mark.parametrize("answer", [LOST, WRITTEN], ids=["lost connection", "written"])
async def test_a_value_without_identity_is_never_sent_again_once_it_may_be_appended(answer: Any) -> None:
    replica = Replica(answer, DONE)
    with pytest.raises(OutcomeUnknownError):
        await propose(replica, repeatable=False)
    assert len(replica.asked) == 1


@both_ways
@pytest.mark.parametrize("answer", [LOST, WRITTEN, UNSENT, REFUSED], ids=["lost", "written", "unsent", "refused"])
async def test_a_value_with_an_identity_is_sent_again_until_it_is_done(answer: Any) -> None:
    replica = Replica(answer, answer, DONE)
    assert await propose(replica, repeatable=True, timeout_ms=20_000) == (8, 8, 6, (b"yes",))
    assert [request.values for request in replica.asked] == [(b"x",)] * 3


@both_ways
@pytest.mark.parametrize("answer", [UNSENT, REFUSED], ids=["unsent", "refused"])
async def test_what_certainly_did_not_arrive_is_sent_again_by_whoever(answer: Any) -> None:
    assert (await propose(Replica(answer, DONE), repeatable=False, timeout_ms=20_000)).base_offset == 8


@both_ways
async def test_at_the_deadline_what_was_never_taken_is_refused_and_the_rest_is_unknown() -> None:
    with pytest.raises(NotLeaderError, match="nothing was appended"):
        await propose(Replica(*[REFUSED] * 1_000), repeatable=False)
    with pytest.raises(OutcomeUnknownError, match="not known after 300 ms"):
        await propose(Replica(), repeatable=False)
    with pytest.raises(OutcomeUnknownError, match="written") as unknown:
        await propose(Replica(WRITTEN, *[UNSENT] * 1_000), repeatable=True)
    assert (unknown.value.base_offset, unknown.value.epoch) == (7, 5)


@both_ways
async def test_a_refusal_after_a_doubt_does_not_pretend_that_nothing_was_appended() -> None:
    too_large = ProposeResponse(error_code=ErrorCode.MESSAGE_TOO_LARGE, error_message="too large")
    with pytest.raises(OutcomeUnknownError):
        await propose(Replica(LOST, too_large), repeatable=True)
    with pytest.raises(RecordTooLargeError):
        await propose(Replica(too_large), repeatable=True)


@both_ways
@pytest.mark.parametrize("full", [BacklogFullError("full"), DiskFullError("full")], ids=["backlog", "disk"])
async def test_a_full_replica_that_has_come_to_lead_is_asked_again_after_a_doubt(full: Exception) -> None:
    replica = Replica(LOST, DONE, then=full)
    assert (await propose(replica, repeatable=True, timeout_ms=20_000)).base_offset == 8
    with pytest.raises(OutcomeUnknownError):
        await propose(Replica(LOST, then=full), repeatable=True)


@both_ways
@pytest.mark.parametrize(
    "refusal",
    [ClosedError("closed: nothing was appended"), ReplicaFailedError("failed"), RecordTooLargeError("too large")],
    ids=["closed", "failed", "too large"],
)
async def test_what_this_replica_says_after_a_doubt_does_not_pretend_that_nothing_was_appended(
    refusal: Exception,
) -> None:
    with pytest.raises(OutcomeUnknownError, match=str(refusal)) as unknown:
        await propose(Replica(WRITTEN, then=refusal), repeatable=True, timeout_ms=20_000)
    assert (unknown.value.base_offset, unknown.value.epoch) == (7, 5)


@both_ways
async def test_a_caller_that_goes_is_cancelled_and_one_that_the_end_of_the_replica_cancels_is_in_doubt() -> None:
    for has_ended, outcome in ((False, asyncio.CancelledError), (True, OutcomeUnknownError)):
        replica = Replica()
        proposing = asyncio.create_task(propose(replica, repeatable=False, timeout_ms=20_000))
        await until(lambda replica=replica: bool(replica.asked))
        replica.has_ended = has_ended
        proposing.cancel()
        with pytest.raises(outcome):
            await proposing


class Leader(Replica):
    """A replica that leads, until it is no more: then another one does."""

    leads = True

    def follows(self, level: int) -> bool:
        return not self.leads

    def append(self, values: Any, level: int) -> asyncio.Future[Any]:
        if self.then is not None:
            raise self.then
        self.appending: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return self.appending


@both_ways
async def test_an_append_of_a_leader_that_loses_its_leadership_goes_on_through_the_next_one() -> None:
    for loss in (NotLeaderError("not written", leader=LeaderAndEpoch(2, 6)), OutcomeUnknownError("written")):
        replica = Leader(DONE)
        proposing = asyncio.create_task(propose(replica, repeatable=True, timeout_ms=20_000))
        await until(lambda replica=replica: hasattr(replica, "appending"))
        replica.leads = False
        replica.appending.set_exception(loss)
        assert await proposing == (8, 8, 6, (b"yes",))
        assert len(replica.asked) == 1


@both_ways
async def test_an_append_of_a_leader_ends_with_its_offsets_or_at_the_deadline_in_doubt() -> None:
    replica = Leader()
    proposing = asyncio.create_task(propose(replica, repeatable=False, timeout_ms=20_000))
    await until(lambda: hasattr(replica, "appending"))
    replica.appending.set_result((3, 3, 5, ("result",)))
    assert await proposing == (3, 3, 5, ("result",))

    replica = Leader()
    with pytest.raises(OutcomeUnknownError, match="not known after 50 ms"):
        await propose(replica, repeatable=True, timeout_ms=50)
    assert replica.appending.cancelled()


async def test_an_attempt_that_cannot_begin_leaves_it_to_propose_to_try_on_or_to_say_why() -> None:
    class WithoutLeader(Replica):
        def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
            return LeaderAndEpoch(None, 5), None

    for replica in (WithoutLeader(), Leader(then=BacklogFullError("full"))):
        proposals = Proposals(replica, serde=JsonSerde())
        assert proposals.begin([b"x"], level=3, timeout_ms=300) is None
        with pytest.raises((NotLeaderError, BacklogFullError)):
            await proposals.propose([b"x"], level=3, timeout_ms=50)
    assert Proposals(Replica(), serde=JsonSerde()).begin([b""], level=3, timeout_ms=300) is None


@both_ways
async def test_a_caller_that_goes_in_the_turn_of_an_error_leaves_no_error_that_nobody_has_seen() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    asking: list[asyncio.Future[Any]] = []

    class Slow(Replica):
        def ask(self, leader_id: int, endpoint: Endpoint, request: Any) -> asyncio.Future[Any]:
            asking.append(super().ask(leader_id, endpoint, request))
            return asking[-1]

    proposing = asyncio.create_task(propose(Slow(), repeatable=True, timeout_ms=20_000))
    await until(lambda: bool(asking))
    await asyncio.sleep(0)
    asking[0].set_exception(UnansweredError("no connection", may_have_arrived=False))
    proposing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await proposing
    del asking[:], proposing
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
