"""Checklist section 7: what listeners hear, and graceful ends."""

from __future__ import annotations

import asyncio

import pytest

from kraftlib.consensus.actions import RefuseAppends, ShutdownComplete
from kraftlib.consensus.events import ResignRequested, ShutdownRequested, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.types import ElectionState, LeaderAndEpoch
from tests.consensus.build import follower, leader, replica, voter_set
from tests.runtime.fakes import Rig as ExecutorRig
from tests.runtime.quorum import Quorum
from tests.runtime.test_applier import NODE_ID, Recorder, Rig


@pytest.fixture
def feeds() -> Rig:
    """An applier over a log in memory."""
    return Rig()


# --- leaders ---------------------------------------------------------------------------------------------------------


def test_a_new_leader_is_told_when_the_first_record_of_its_epoch_is_committed_and_read(feeds: Rig) -> None:
    """testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffset."""
    for _ in range(3):
        feeds.append(b"1")
    feeds.append_control(epoch=2)
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.applier.announce(LeaderAndEpoch(NODE_ID, 2), epoch_start=3)
    feeds.applier.advance(3)
    feeds.run()
    assert ("leader", NODE_ID, 2) not in listener.heard, "nothing of its epoch is committed yet"
    feeds.applier.advance(4)
    feeds.run()

    assert listener.heard[-1] == ("leader", NODE_ID, 2)


def test_also_in_an_empty_log_a_leader_is_told_after_its_first_commit(feeds: Rig) -> None:
    """testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffsetOnEmptyLog."""
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.append_control()
    feeds.applier.announce(LeaderAndEpoch(NODE_ID, 1), epoch_start=0)
    feeds.run()
    assert listener.heard == []
    feeds.applier.advance(1)
    feeds.run()

    assert listener.heard == [("commit", 0, 0), ("leader", NODE_ID, 1)]


def test_a_new_listener_is_told_of_an_epoch_without_a_leader(feeds: Rig) -> None:
    """testHandleLeaderChangeFiresAfterUnattachedRegistration."""
    feeds.applier.announce(LeaderAndEpoch(None, 7), epoch_start=0)
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.run()

    assert listener.heard == [("leader", None, 7)]


def test_nobody_is_told_of_a_leadership_that_was_resigned(feeds: Rig) -> None:
    """testHandleLeaderChangeFiresAfterResignRegistration: neither a new listener nor one that had not read so far."""
    slow, late = Recorder(), Recorder()
    feeds.append_control()
    feeds.applier.register(slow)
    feeds.applier.announce(LeaderAndEpoch(NODE_ID, 1), epoch_start=0)
    feeds.run()
    feeds.applier.leadership_over()
    feeds.applier.register(late)
    feeds.applier.advance(1)
    feeds.run()
    assert (slow.heard, late.heard) == ([("commit", 0, 0)], [("commit", 0, 0)])
    feeds.applier.announce(LeaderAndEpoch(None, 2), epoch_start=0)
    feeds.run()

    assert (slow.heard[1:], late.heard[1:]) == ([("leader", None, 2)], [("leader", None, 2)])


def test_the_end_of_a_leadership_reaches_the_listeners_with_that_of_the_appends() -> None:
    """testHandleLeaderChangeFiresAfterResignRegistration, in the executor."""
    rig = ExecutorRig()
    rig.executor.start()
    rig.lead(epoch=3)
    rig.core.on(ResignRequested, RefuseAppends(3))
    rig.executor.submit(ResignRequested(3))

    assert rig.trace[-1] == "leadership over"


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_listener_that_was_replaced_hears_nothing_more(feeds: Rig) -> None:
    """testReregistrationChangesListenerContext: the one in its place starts from the beginning."""
    first, second = Recorder(), Recorder()
    feeds.applier.register(first)
    feeds.applier.advance(feeds.append(b"a"))
    feeds.run()
    feeds.applier.unregister(first)
    feeds.applier.register(second)
    feeds.applier.advance(feeds.append(b"b"))
    feeds.run()

    assert (first.records, second.records) == ([(0, b"a")], [(0, b"a"), (1, b"b")])


# --- graceful ends ---------------------------------------------------------------------------------------------------


def test_a_shutdown_without_a_successor_ends_when_its_time_is_up() -> None:
    """testLeaderGracefulShutdownTimeout: an error in Kafka; ours closes all the same, and warns."""
    core = leader(1)
    now_ms = core.state.now_ms
    core.handle(ShutdownRequested(5_000), now_ms)
    assert ShutdownComplete() not in core.handle(TimeoutReached(), now_ms + 4_999)

    assert ShutdownComplete() in core.handle(TimeoutReached(), now_ms + 5_000)


@pytest.mark.parametrize(
    "core",
    [
        follower(1, epoch=5, leader_id=2),
        replica(1, own_id=9, election=ElectionState(epoch=5)),
        replica(1, voters=voter_set(1)),
    ],
    ids=["testFollowerGracefulShutdown", "testObserverGracefulShutdown", "testGracefulShutdownSingleMemberQuorum"],
)
def test_who_hands_nothing_over_is_done_at_once(core: Replica) -> None:
    """testFollowerGracefulShutdown, testObserverGracefulShutdown, testGracefulShutdownSingleMemberQuorum."""
    assert ShutdownComplete() in core.handle(ShutdownRequested(5_000), core.state.now_ms)


async def test_a_sole_voter_ends_without_waiting_for_others() -> None:
    """testGracefulShutdownSingleMemberQuorum, through a whole client."""
    alone = Quorum(voters=1)
    await alone.start()
    leading = await alone.leader()
    async with asyncio.timeout(5):
        await leading.shutdown(timeout_ms=60_000)

    assert alone._elections[1].read() == ElectionState(epoch=1, leader_id=1)
