"""Peers raise the epoch, and cannot use the epochs up (scenario E17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.consensus.actions import PersistElection, SendRequest
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.extensions.epoch_budget import EPOCH_COST_MS
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from tests.consensus.build import answer_vote, ask, partition_of, replica, tell, vote_request

LAST = 2**31 - 1


def raise_to(core: Replica, epoch: int, now_ms: int) -> bool:
    """Ask for a vote in this epoch; return whether the epoch is believed."""
    return ask(core, vote_request(epoch=epoch, replica_id=2, last=(9, 1)), now_ms=now_ms) is not None


def test_many_small_raises_are_bounded_as_one_large_one_is() -> None:
    core = replica(1, election=ElectionState(epoch=5))
    most = core.state.config.epoch_jump_max
    step = most // 10
    raised = [raise_to(core, 5 + step * number, now_ms=number) for number in range(1, 21)]

    assert raised == [True] * 10 + [False] * 10
    assert core.epoch == 5 + step * 10
    assert core.state.refused == {"epoch jump": 10}


def test_time_gives_back_what_was_raised() -> None:
    """At once nothing is left; then one epoch each tenth of a second, which elections do with."""
    core = replica(1, election=ElectionState(epoch=5))
    top = 5 + core.state.config.epoch_jump_max
    assert raise_to(core, top, now_ms=0)

    assert not raise_to(core, top + 1, now_ms=EPOCH_COST_MS - 1)
    assert raise_to(core, top + 1, now_ms=EPOCH_COST_MS)
    assert not raise_to(core, top + 2, now_ms=EPOCH_COST_MS)


def test_a_restart_is_no_way_around_it() -> None:
    """What was spent is durable with the epoch that it was spent for."""
    core = replica(1, election=ElectionState(epoch=5))
    top = 5 + core.state.config.epoch_jump_max
    actions = tell(core, vote_request(epoch=top, replica_id=2, last=(9, 1)), version=2)
    (written, *_) = [action.election for action in actions if isinstance(action, PersistElection)]

    again = replica(1, election=written)
    assert not raise_to(again, top + 1, now_ms=0)
    assert raise_to(again, top + 1, now_ms=EPOCH_COST_MS)


def test_a_debt_that_no_peer_could_make_is_not_waited_for() -> None:
    """A file may hold any number, and a smaller epoch_jump_max makes an old debt too large."""
    core = replica(1, election=ElectionState(epoch=5, epoch_debt_ms=10**8), epoch_jump_max=1_000)
    assert not raise_to(core, 6, now_ms=EPOCH_COST_MS - 1)
    assert raise_to(core, 6, now_ms=EPOCH_COST_MS)


@given(raises=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 2_000)), max_size=40))
def test_the_sum_of_all_raises_is_bounded_at_any_time(raises: list[tuple[int, int]]) -> None:
    core = replica(1, election=ElectionState(epoch=5), epoch_jump_max=1_000)
    now_ms = 0
    for pause_ms, epochs in raises:
        now_ms += pause_ms
        raise_to(core, core.epoch + epochs, now_ms)
        assert core.epoch - 5 <= 1_000 + now_ms // EPOCH_COST_MS


@pytest.mark.parametrize("epoch", [LAST - 1, LAST])
def test_at_the_last_epochs_a_voter_lives_on_and_does_not_stand(epoch: int) -> None:
    core = replica(1, election=ElectionState(epoch=epoch))
    for now_ms in range(0, 20_000, 500):
        actions = core.handle(TimeoutReached(), now_ms)
        assert not any(isinstance(action, SendRequest) and "Vote" in str(action.request) for action in actions)

    assert (core.role, core.epoch, core.state.abstains) == (Role.UNATTACHED, epoch, "epochs used up")
    assert core.status().abstains == "epochs used up"
    answer = ask(core, vote_request(epoch=epoch, replica_id=2, last=(9, 1)), version=2)
    assert (partition_of(answer).error_code, partition_of(answer).vote_granted) == (ErrorCode.NONE, True)


def test_the_last_election_can_be_given_up() -> None:
    """Who stands takes one epoch, and who gives that up another: both must be there."""
    core = replica(1, election=ElectionState(epoch=LAST - 2))
    core.handle(TimeoutReached(), 10_000)
    answer_vote(core, 2, granted=True, pre_vote=True, now_ms=10_000)
    assert (core.role, core.epoch) == (Role.CANDIDATE, LAST - 1)
    for now_ms in range(11_000, 30_000, 500):
        core.handle(TimeoutReached(), now_ms)

    assert (core.role, core.epoch) == (Role.UNATTACHED, LAST)


def test_a_leader_of_the_last_epoch_that_starts_again_leaves_it_to_nobody() -> None:
    """It cannot resign into a next epoch, and a vote of it could make a second leader of this one."""
    core = replica(1, election=ElectionState(epoch=LAST, leader_id=1))
    core.handle(TimeoutReached(), 60_000)

    assert core.state.election == ElectionState(epoch=LAST, voted_key=ReplicaKey(1, core.key.directory_id))
    answer = ask(core, vote_request(epoch=LAST, replica_id=2, last=(9, 1)), version=2)
    assert not partition_of(answer).vote_granted
