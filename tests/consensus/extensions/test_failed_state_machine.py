"""A replica whose state machine has failed hands over; it votes and replicates, and leads as a last resort only."""

from __future__ import annotations

import pytest

from kraftlib.consensus.actions import AcceptAppends, RefuseAppends, SendRequest
from kraftlib.consensus.events import ConnectionLost, StateMachineFailed, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Heard, Role
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from tests.consensus.build import (
    answer_vote,
    ask,
    begin_request,
    fetch_request,
    flush,
    follower,
    leader,
    partition_of,
    replica,
    requests,
    tell,
    vote_request,
    voter_set,
)


def fail(core: Replica) -> list[object]:
    return core.handle(StateMachineFailed(), core.state.now_ms)


def pass_time(core: Replica, ms: int) -> None:
    """Let every deadline of the next `ms` come."""
    end_ms = core.state.now_ms + ms
    while (due_ms := core.deadline_ms()) is not None and due_ms <= end_ms:
        core.handle(TimeoutReached(), max(due_ms, core.state.now_ms + 1))
    core.handle(TimeoutReached(), end_ms)


def test_a_leader_hands_over_as_soon_as_another_voter_has_everything() -> None:
    core = leader(1, 1, 1)
    flush(core)
    ask(core, fetch_request(replica_id=2, offset=3, last_epoch=1, epoch=2), version=17)
    core.handle(TimeoutReached(), core.state.now_ms + core.state.config.fetch_timeout_ms)  # and 2 is silent since
    assert fail(core) == []
    assert core.role is Role.LEADER, "the others need what it has, and perhaps its vote"

    ask(core, fetch_request(replica_id=3, offset=3, last_epoch=1, epoch=2), version=17)
    assert core.role is Role.LEADER
    actions = tell(core, fetch_request(replica_id=3, offset=4, last_epoch=2, epoch=2), version=17)

    assert core.role is Role.RESIGNED
    assert RefuseAppends(2) in actions
    told = requests(actions, EndQuorumEpochRequest)
    assert {request.destination for request in told} == {2, 3}
    assert partition_of(told[0].request).preferred_successors[0] == 3


def test_a_leader_waits_for_one_that_lives() -> None:
    core = leader(1, 1, 1)
    flush(core)
    for offset, last_epoch in ((3, 1), (4, 2)):
        ask(core, fetch_request(replica_id=3, offset=offset, last_epoch=last_epoch, epoch=2), version=17)
    core.handle(TimeoutReached(), core.state.now_ms + core.state.config.fetch_timeout_ms)
    fail(core)
    assert core.role is Role.LEADER

    ask(core, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    assert core.role is Role.RESIGNED


def test_a_leader_waits_for_the_slower_voter_that_lives() -> None:
    """The faster one may have a failed state machine, too; without the rest the slower one would get no vote."""
    core = leader(1, 1, 1)
    flush(core)
    ask(core, fetch_request(replica_id=3, offset=3, last_epoch=1, epoch=2), version=17)
    fail(core)
    tell(core, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    assert core.role is Role.LEADER

    tell(core, fetch_request(replica_id=3, offset=4, last_epoch=2, epoch=2), version=17)
    assert core.role is Role.RESIGNED


@pytest.mark.parametrize("heard", [True, False])
def test_a_leader_waits_for_the_slower_voter_no_longer_than_the_fetch_timeout(heard: bool) -> None:
    core = leader(1, 1, 1)
    flush(core)
    if heard:
        ask(core, fetch_request(replica_id=3, offset=3, last_epoch=1, epoch=2), version=17)
    fail(core)
    failed_ms, timeout_ms = core.state.now_ms, core.state.config.fetch_timeout_ms
    pass_time(core, timeout_ms // 2)
    tell(core, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    pass_time(core, timeout_ms // 2 - 1)
    assert core.role is Role.LEADER
    assert core.deadline_ms() == failed_ms + timeout_ms

    core.handle(TimeoutReached(), failed_ms + timeout_ms)
    assert core.role is Role.RESIGNED


def rounds_of_the_others(core: Replica) -> int:
    """Two rounds of the others, as long as they can be: each misses a leader, and holds an election."""
    config = core.state.config
    return 2 * (config.fetch_timeout_ms + 2 * config.election_timeout_ms)


def test_a_leader_that_handed_over_stands_after_two_rounds_of_the_others() -> None:
    core = leader(1, 1, 1)
    flush(core)
    fail(core)
    for replica_id in (2, 3):
        tell(core, fetch_request(replica_id=replica_id, offset=4, last_epoch=2, epoch=2), version=17)
    deadline_ms = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]
    pass_time(core, deadline_ms + rounds_of_the_others(core) - 1 - core.state.now_ms)
    assert (core.role, core.epoch) == (Role.UNATTACHED, 3)
    assert core.status().abstains == "state machine failed"
    assert core.deadline_ms() == core.state.now_ms + 1

    pass_time(core, 1)
    assert core.role is Role.PROSPECTIVE


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_follower_of_a_leader_that_is_gone_stands_after_two_rounds_of_the_others(is_dead: bool) -> None:
    core = follower(1, 1, epoch=2, leader_id=2)
    fail(core)
    for refused in (False, True) if is_dead else ():
        core.handle(ConnectionLost(2, refused), core.state.now_ms)
    deadline_ms = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]
    pass_time(core, deadline_ms + rounds_of_the_others(core) - 1 - core.state.now_ms)
    assert core.role is Role.FOLLOWER

    pass_time(core, 1)
    assert core.role is Role.PROSPECTIVE


def last_resort(*epochs: int) -> Replica:
    """A replica that was elected although its state machine has failed."""
    core = replica(*epochs)
    fail(core)
    stand_as_a_last_resort(core)
    return core


def stand_as_a_last_resort(core: Replica) -> None:
    """Let the others be gone for so long that it stands, and is elected."""
    while core.role is not Role.PROSPECTIVE:
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for pre_vote in (True, False):
        answer_vote(core, 2, granted=True, pre_vote=pre_vote)
    assert core.role is Role.LEADER
    flush(core)


def test_elected_as_a_last_resort_it_brings_all_up_to_date_and_hands_over() -> None:
    """Not to the first that has everything: that may be another one whose state machine has failed."""
    core = last_resort(1, 1, 1)
    tell(core, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    assert core.role is Role.LEADER
    assert core.high_watermark == 4

    tell(core, fetch_request(replica_id=3, offset=3, last_epoch=1, epoch=2), version=17)
    assert core.role is Role.LEADER
    actions = tell(core, fetch_request(replica_id=3, offset=4, last_epoch=2, epoch=2), version=17)
    assert core.role is Role.RESIGNED
    assert len(requests(actions, EndQuorumEpochRequest)) == 2


def test_elected_as_a_last_resort_it_waits_for_the_slower_voter_no_longer_than_the_fetch_timeout() -> None:
    core = last_resort(1, 1, 1)
    elected_ms, timeout_ms = core.state.now_ms, core.state.config.fetch_timeout_ms
    pass_time(core, timeout_ms // 2)
    tell(core, fetch_request(replica_id=2, offset=4, last_epoch=2, epoch=2), version=17)
    pass_time(core, timeout_ms // 2 - 1)
    assert core.role is Role.LEADER
    assert core.deadline_ms() == elected_ms + timeout_ms

    pass_time(core, 1)
    assert core.role is Role.RESIGNED


@pytest.mark.parametrize("lives", [True, False])
def test_elected_as_a_last_resort_again_it_waits_twice_as_long_for_those_that_live(lives: bool) -> None:
    """The slower voter may need a whole snapshot, which takes longer than that, and each leader has its own."""
    core = last_resort(1, 1, 1)
    timeout_ms = core.state.config.fetch_timeout_ms
    waited_ms = []
    for _ in range(3):
        elected_ms = core.state.now_ms
        while core.role is Role.LEADER:
            pass_time(core, timeout_ms // 4)
            end, epoch = core.state.log.end_offset, core.epoch
            tell(core, fetch_request(replica_id=2, offset=end, last_epoch=epoch, epoch=epoch), version=17)
            if lives and core.role is Role.LEADER:
                tell(core, fetch_request(replica_id=3, offset=3, last_epoch=1, epoch=epoch), version=17)
        waited_ms.append(core.state.now_ms - elected_ms)
        stand_as_a_last_resort(core)

    assert waited_ms == [timeout_ms, timeout_ms * (2 if lives else 1), timeout_ms * (4 if lives else 1)]


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_voter_in_an_election_leaves_it(pre_vote: bool) -> None:
    core = replica(1, 1)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    if not pre_vote:
        answer_vote(core, 2, granted=True, pre_vote=True)
    assert core.role is (Role.PROSPECTIVE if pre_vote else Role.CANDIDATE)
    epoch = core.epoch
    fail(core)

    assert (core.role, core.epoch) == (Role.UNATTACHED, epoch if pre_vote else epoch + 1)
    pass_time(core, rounds_of_the_others(core))
    assert core.role is Role.UNATTACHED


def test_it_votes_as_ever() -> None:
    core = follower(1, 1, epoch=2, leader_id=2)
    fail(core)
    shorter = vote_request(epoch=3, replica_id=3, last=(1, 1), pre_vote=False)
    assert not partition_of(ask(core, shorter, version=2)).vote_granted
    as_long = vote_request(epoch=4, replica_id=3, last=(2, 1), pre_vote=False)
    assert partition_of(ask(core, as_long, version=2)).vote_granted


def test_it_gives_a_silent_leader_no_preference() -> None:
    """Its vote may be needed, and it becomes prospective itself long after the others."""
    core = follower(1, 1, epoch=2, leader_id=2)
    core.state.role_state.heard = Heard.ANSWER  # type: ignore[union-attr]
    fail(core)
    asked = vote_request(epoch=2, replica_id=3, last=(2, 1), pre_vote=True)
    assert not partition_of(ask(core, asked, version=2)).vote_granted
    core.handle(TimeoutReached(), core.state.role_state.fetch_deadline_ms)  # type: ignore[union-attr]
    assert partition_of(ask(core, asked, version=2)).vote_granted


def test_the_only_voter_leads_on_for_nobody_else_can() -> None:
    core = replica(1, 1, voters=voter_set(1))
    assert core.role is Role.LEADER
    fail(core)
    pass_time(core, 60_000)
    assert core.role is Role.LEADER


def test_it_follows_the_next_leader() -> None:
    core = leader(1, 1, 1)
    flush(core)
    fail(core)
    ask(core, fetch_request(replica_id=3, offset=4, last_epoch=2, epoch=2), version=17)
    actions = tell(core, begin_request(epoch=3, leader_id=3))

    assert core.role is Role.FOLLOWER
    assert [action for action in actions if isinstance(action, SendRequest) and action.destination == 3]
    assert not [action for action in actions if isinstance(action, AcceptAppends)]
