"""Who asks in vain is slowed down, and nobody else."""

from __future__ import annotations

import pytest

from kraftlib.runtime.net.hot_loops import _REMEMBERED, ANSWERS_AT_ONCE, ANSWERS_PER_SECOND, HotLoops, is_in_vain
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftlib.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterResponse
from tests.clocks import Clock
from tests.runtime.wired import fetch_answer, vote_answer

ROW = ListPartitionReassignmentsResponse.OngoingPartitionReassignment(replicas=(1, 2), adding_replicas=(2,))
MOVES = ListPartitionReassignmentsResponse(
    topics=(ListPartitionReassignmentsResponse.OngoingTopicReassignment(name="a", partitions=(ROW,)),)
)
"""Rows that have no error code."""


def test_a_hot_loop_ends_up_at_the_rate() -> None:
    clock = Clock(50.0)
    loops = HotLoops(clock)
    assert {loops.pause_s("peer") for _ in range(ANSWERS_AT_ONCE)} == {0.0}

    began = clock.now
    for _ in range(1_000):
        clock.now += loops.pause_s("peer") + 0.000_1  # the peer asks again as soon as it has the answer
    assert clock.now - began == pytest.approx(1_000 / ANSWERS_PER_SECOND, rel=0.05)


def test_connections_are_slowed_down_one_by_one() -> None:
    loops = HotLoops(Clock(50.0))
    for _ in range(ANSWERS_AT_ONCE + 1):
        last = loops.pause_s("hot")
    assert last > 0
    assert loops.pause_s("cool") == 0


def test_after_a_quiet_time_all_is_forgiven() -> None:
    clock = Clock(50.0)
    loops = HotLoops(clock)
    for _ in range(2 * ANSWERS_AT_ONCE):
        loops.pause_s("peer")
    clock.now += 100 * ANSWERS_AT_ONCE / ANSWERS_PER_SECOND
    assert {loops.pause_s("peer") for _ in range(ANSWERS_AT_ONCE)} == {0.0}
    assert loops.pause_s("peer") > 0  # and no more than all


def test_only_those_are_remembered_who_asked_lately() -> None:
    clock = Clock(50.0)
    loops = HotLoops(clock)
    for number in range(10 * _REMEMBERED):
        clock.now += 0.001
        loops.pause_s(number)
    assert len(loops._full_at) <= _REMEMBERED + 1


@pytest.mark.parametrize(
    ("response", "in_vain"),
    [
        (fetch_answer(), False),
        (fetch_answer(b"records"), False),
        (fetch_answer(error_code=6), True),
        (vote_answer(), False),
        (vote_answer(granted=False), True),
        (vote_answer(error_code=104), True),
        (vote_answer(partition_error=74), True),
        (BeginQuorumEpochResponse(), False),
        (AddRaftVoterResponse(error_code=7), True),
        (AddRaftVoterResponse(), False),
        (MOVES, False),
    ],
)
def test_errors_and_denied_votes_are_in_vain(response: object, in_vain: bool) -> None:
    assert is_in_vain(response) == in_vain
