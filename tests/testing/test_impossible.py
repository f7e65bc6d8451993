"""Each impossible request is refused in its own way by a healthy quorum."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing import impossible, strangers
from kraftlib.testing.impossible import KINDS, error_of
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.vote import VoteResponse
from tests.testing.worlds import world


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_as_expected_by_leader_and_follower(kind: str) -> None:
    with world(observers=1) as made:
        made.run_for(1_000)
        for node in made.nodes.values():
            assert node.process is not None
            assert node.process.take_snapshot(1)
        asked = 0
        for seed in range(40):
            for node in made.nodes.values():
                assert node.process is not None
                case = KINDS[kind](made, node.process, random.Random(seed))
                if case is not None:
                    asked += 1
                    assert strangers.ask(made, node.process, case) is None
            made.run_for(3)

        assert asked >= 20
        assert made.violation is None


def test_a_possible_request_changes_something_and_that_is_seen() -> None:
    with world() as made:
        made.run_for(1_000)
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        told = set()
        for seed in range(20):
            made.run_for(7)
            request = impossible.fetch(made, leader.process, random.Random(seed))
            told.add(strangers.ask(made, leader.process, impossible.Impossible(request, ErrorCode.INVALID_REQUEST)))

        assert any(complaint is not None and "must change nothing" in complaint for complaint in told)


def test_the_error_of_an_answer_is_that_of_the_whole_or_of_its_partition() -> None:
    assert error_of(VoteResponse(error_code=104)) == 104
    partition = FetchResponse.PartitionData(error_code=76)
    assert error_of(FetchResponse(responses=(FetchResponse.FetchableTopicResponse(partitions=(partition,)),))) == 76
    assert error_of(FetchResponse()) == 0
