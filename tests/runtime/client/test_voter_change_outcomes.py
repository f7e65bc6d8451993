"""What a caller is told of a change of voters: done, refused, nothing changed, or unknown; and never another thing."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Any

import pytest

from kraftlib.consensus.events import Failure
from kraftlib.errors import ClosedError, ConfigError, KraftError, OutcomeUnknownError, UnsupportedError
from kraftlib.runtime.client.voter_changes import addition, ask_leader, change_voters, removal, upgrade
from kraftlib.runtime.own_requests import NoAnswerError
from kraftlib.types import ZERO_UUID, Endpoint, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterResponse, RemoveRaftVoterResponse
from kraftlib.wire.messages.update_features import UpdateFeaturesResponse
from tests.runtime.client.test_voter_changes import dynamic, nodes_key
from tests.runtime.quorum import Quorum, quorum, until

KEY = ReplicaKey(4, uuid.UUID(int=4))
OLD_DISK = ReplicaKey(4, uuid.UUID(int=40))
OTHERS = (ReplicaKey(1, uuid.UUID(int=1)), ReplicaKey(2, uuid.UUID(int=2)))


class Leading:
    """A core that is its own leader."""

    key = ReplicaKey(1)
    leader_and_epoch = LeaderAndEpoch(1, 1)


class Answers:
    """Own requests that end as told, and then never."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)

    def ask_here(self, message: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        elif outcome is not None:
            assert isinstance(outcome, DescribeQuorumResponse) <= isinstance(message, DescribeQuorumRequest)
            future.set_result(outcome)
        return future


def added(code: int, message: str | None = None) -> Any:
    return AddRaftVoterResponse(error_code=code, error_message=message)


def removed(code: int, message: str | None = None) -> Any:
    return RemoveRaftVoterResponse(error_code=code, error_message=message)


def raised(code: int) -> Any:
    row = UpdateFeaturesResponse.UpdatableFeatureResult(feature="kraft.version", error_code=code, error_message="why")
    return UpdateFeaturesResponse(error_code=0, error_message=None, results=(row,))


def voters(*keys: ReplicaKey) -> Any:
    state = DescribeQuorumResponse.ReplicaState
    rows = tuple(
        state(replica_id=key.id, replica_directory_id=key.directory_id or ZERO_UUID, log_end_offset=0) for key in keys
    )
    partition = DescribeQuorumResponse.PartitionData(
        partition_index=0, error_code=0, leader_id=1, leader_epoch=1, high_watermark=9, current_voters=rows
    )
    topic = DescribeQuorumResponse.TopicData(topic_name="", partitions=(partition,))
    return DescribeQuorumResponse(error_code=0, topics=(topic,))


ADD = addition(KEY, {"C": Endpoint("localhost", 1)}, cluster_id="c")
REMOVE = removal(KEY, cluster_id="c")
LOST = NoAnswerError(Failure.DISCONNECTED)
UNSENT = NoAnswerError(Failure.UNSENT)
UNKNOWN_THERE = NoAnswerError(Failure.UNSUPPORTED_VERSION)
CLOSED = ClosedError("replica 1 was closed")

LED = added(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LATE = added(ErrorCode.REQUEST_TIMED_OUT)
DUPLICATE = added(ErrorCode.DUPLICATE_VOTER)
LED_R = removed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LATE_R = removed(ErrorCode.REQUEST_TIMED_OUT)
NOT_FOUND = removed(ErrorCode.VOTER_NOT_FOUND)
NOBODY = removed(ErrorCode.BROKER_NOT_AVAILABLE, "no leader found: h:1 cannot be reached")

ALL = voters(*OTHERS, KEY)
REST = voters(*OTHERS)
REPLACED = voters(*OTHERS, OLD_DISK)
UNSAID = DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
DISKLESS = voters(*OTHERS, ReplicaKey(4))


@pytest.mark.parametrize(
    ("change", "outcomes", "error"),
    [
        (ADD, [added(0)], None),
        (ADD, [LED, added(0)], None),
        (ADD, [DUPLICATE], ConfigError),
        (ADD, [added(ErrorCode.BROKER_NOT_AVAILABLE), DUPLICATE], ConfigError),
        (ADD, [LOST, added(ErrorCode.VOTER_NOT_FOUND)], ConfigError),
        (REMOVE, [NOT_FOUND], ConfigError),
        (REMOVE, [removed(ErrorCode.UNSUPPORTED_VERSION)], UnsupportedError),
        (REMOVE, [UNKNOWN_THERE], UnsupportedError),
        (REMOVE, [LOST, UNKNOWN_THERE, NOT_FOUND, REST], None),
        (REMOVE, [LOST], OutcomeUnknownError),
        (REMOVE, [LATE_R], OutcomeUnknownError),
        (REMOVE, [], OutcomeUnknownError),
        (REMOVE, [LED_R] * 99, OutcomeUnknownError),
        (REMOVE, [removed(ErrorCode.BROKER_NOT_AVAILABLE)] * 99, TimeoutError),
        (REMOVE, [NOBODY] * 99, TimeoutError),
        (REMOVE, [LED_R, *[NOBODY] * 99], OutcomeUnknownError),
        (REMOVE, [UNSENT] * 99, TimeoutError),
        (REMOVE, [UNSENT, NOT_FOUND], ConfigError),
        (REMOVE, [LOST, *[UNSENT] * 99], OutcomeUnknownError),
        (upgrade(1), [raised(ErrorCode.INVALID_UPDATE_VERSION)], UnsupportedError),
        (upgrade(1), [raised(ErrorCode.NOT_CONTROLLER), raised(0)], None),
        (upgrade(1), [raised(ErrorCode.NOT_CONTROLLER)] * 99, OutcomeUnknownError),
        # In doubt the voters decide, by number and disk.
        (ADD, [LED, DUPLICATE, ALL], None),
        (ADD, [LATE, DUPLICATE, ALL], None),
        (ADD, [LOST, DUPLICATE, ALL], None),
        (ADD, [LED, DUPLICATE, REPLACED], ConfigError),
        (ADD, [LATE, DUPLICATE, REPLACED], ConfigError),
        (REMOVE, [LED_R, NOT_FOUND, REST], None),
        (REMOVE, [LATE_R, NOT_FOUND, REST], None),
        (REMOVE, [LOST, NOT_FOUND, REPLACED], None),
        (REMOVE, [LATE_R, NOT_FOUND, voters(KEY)], ConfigError),
        # Where they are not known, or have changed meanwhile, it is asked again.
        (ADD, [LED, DUPLICATE, LOST, DUPLICATE, ALL], None),
        (ADD, [LED, DUPLICATE, UNSAID], OutcomeUnknownError),
        (ADD, [LED, DUPLICATE, DISKLESS], OutcomeUnknownError),
        (ADD, [LED, DUPLICATE, REST, added(0)], None),
        (ADD, [LED, DUPLICATE], OutcomeUnknownError),
        (REMOVE, [LED_R, NOT_FOUND, voters()], OutcomeUnknownError),
        (REMOVE, [LED_R, NOT_FOUND, ALL, removed(0)], None),
        # The client closes.
        (REMOVE, [CLOSED], OutcomeUnknownError),
        (ADD, [LED, DUPLICATE, CLOSED], OutcomeUnknownError),
    ],
)
async def test_every_answer_ends_in_what_is_known(
    change: Any, outcomes: list[Any], error: type[Exception] | None
) -> None:
    doing = change_voters(change, ask=partial(ask_leader, Leading(), Answers(*outcomes)), timeout_ms=300)  # type: ignore[arg-type]
    if error is None:
        await doing
    else:
        with pytest.raises(error) as raised_:
            await doing
        assert isinstance(raised_.value, KraftError | TimeoutError)
        assert ("may have been done" in str(raised_.value)) is (error is OutcomeUnknownError)


async def test_while_nobody_leads_the_voters_cannot_be_asked_for() -> None:
    """The leader says DUPLICATE_VOTER and is gone: nothing was learned."""
    answers = iter([LED, DUPLICATE])

    def ask(message: Any) -> asyncio.Future[Any] | None:
        answer = next(answers, None)
        if answer is None:
            return None
        future = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        return future

    with pytest.raises(OutcomeUnknownError, match="DUPLICATE_VOTER"):
        await change_voters(ADD, ask=ask, timeout_ms=200)


@pytest.mark.parametrize(("outcomes", "error"), [([LED_R], OutcomeUnknownError), ([None], asyncio.CancelledError)])
async def test_the_end_of_the_loop_is_told_from_nothing_done(outcomes: list[Any], error: type[BaseException]) -> None:
    """A thread's loop cancels what is left when its client closes."""
    answers = Answers(*outcomes)
    ask = (lambda message: None) if outcomes == [None] else answers.ask_here
    doing = asyncio.ensure_future(change_voters(REMOVE, ask=ask, timeout_ms=10_000))
    for _ in range(5):
        await asyncio.sleep(0)
    doing.cancel()
    with pytest.raises(error):
        await doing


# --- with real replicas ----------------------------------------------------------------------------------------------


async def alone(nodes: Quorum) -> Any:
    """Return the leader of a dynamic quorum of three in which from now on nobody reaches anybody."""
    await dynamic(nodes)
    leader = await nodes.leader()
    for node_id in nodes.ids:
        nodes.hub.isolate(nodes.endpoint(node_id))
    return leader


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_removal_that_outlives_the_leadership_is_done(engine: str) -> None:
    """The leader writes it, loses its leadership, and has it committed when it leads again: VOTER_NOT_FOUND is ours."""
    async with quorum(engine=engine, request_timeout_ms=20_000) as nodes:
        leader = await alone(nodes)
        follower, gone = sorted(set(nodes.ids) - {leader.node_id})
        end = leader.log_end_offset()
        removing = asyncio.ensure_future(leader.remove_voter(nodes_key(leader, gone)))
        await until(lambda: leader.leader_and_epoch().leader_id is None)
        assert leader.log_end_offset() > end, "the record was written before leadership was lost"
        assert not removing.done()

        nodes.hub.heal(leader.endpoint, nodes.endpoint(follower))
        await removing

        assert gone not in {row.id for row in leader.status().voters}


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_removal_that_was_written_is_not_called_undone_by_who_closes(engine: str) -> None:
    async with quorum(engine=engine, request_timeout_ms=20_000) as nodes:
        leader = await alone(nodes)
        end = leader.log_end_offset()
        gone = min(set(nodes.ids) - {leader.node_id})
        removing = asyncio.ensure_future(leader.remove_voter(nodes_key(leader, gone)))
        await until(lambda: leader.log_end_offset() > end)

        await nodes.stop(leader.node_id)

        with pytest.raises(OutcomeUnknownError, match="may have been done"):
            await removing


def in_doubt_at_first(asker: Any, doubt: Any) -> Any:
    """Let `asker` ask, but give its first question the answer `doubt`."""
    node, doubts = asker._engine.node, [doubt]

    def ask(message: Any) -> asyncio.Future[Any] | None:
        if doubts:
            return Answers(doubts.pop()).ask_here(message)
        return ask_leader(node.core, node.router.own, message)

    return ask


async def test_another_disk_of_a_voter_is_refused_with_doubt_and_without() -> None:
    async with quorum(engine="inline") as nodes:
        await dynamic(nodes)
        leader = await nodes.leader()
        other = min(set(nodes.ids) - {leader.node_id})
        new, place = ReplicaKey(other, uuid.UUID(int=99)), nodes.endpoint(other)
        change = addition(new, {leader.config.listener_name: place}, cluster_id="test")

        with pytest.raises(ConfigError, match="DUPLICATE_VOTER"):
            await change_voters(change, ask=in_doubt_at_first(leader, LATE), timeout_ms=10_000)
        with pytest.raises(ConfigError, match="DUPLICATE_VOTER"):
            await leader.add_voter(new, place)


async def test_the_last_voter_stays_though_its_removal_was_in_doubt() -> None:
    async with quorum(voters=1, engine="inline") as nodes:
        await dynamic(nodes)
        leader = await nodes.leader()
        change = removal(nodes_key(leader, 1), cluster_id="test")

        with pytest.raises(ConfigError, match="the only one"):
            await change_voters(change, ask=in_doubt_at_first(leader, LATE_R), timeout_ms=10_000)
        assert len(leader.status().voters) == 1


@pytest.mark.parametrize("on_leader", [True, False])
async def test_the_voters_are_learned_from_the_leader_here_and_elsewhere(on_leader: bool) -> None:
    async with quorum(engine="inline") as nodes:
        await dynamic(nodes)
        leader = await nodes.leader()
        asker = leader if on_leader else next(client for client in nodes.clients.values() if client is not leader)
        gone = next(client.key for client in nodes.clients.values() if client not in (leader, asker))
        await asker.remove_voter(gone)

        change = removal(gone, cluster_id="test")
        await change_voters(change, ask=in_doubt_at_first(asker, LED_R), timeout_ms=10_000)
