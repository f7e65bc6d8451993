"""Answers name epoch, leader and endpoint as known now."""

from __future__ import annotations

import pytest

from kraftlib.consensus import answers
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot
from kraftlib.consensus.replica import REQUESTS
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.frames import encode_response
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from tests.consensus.build import follower, partition_of, replica


def test_every_request_that_is_served_can_be_refused() -> None:
    """With a top-level error and nothing else."""
    assert set(REQUESTS) == set(answers.TOP_LEVEL)
    for kind in REQUESTS:
        response = answers.top_level(kind(), ErrorCode.INVALID_REQUEST)
        assert response.error_code == 42
        assert kind.__name__.replace("Request", "Response") == type(response).__name__


@pytest.mark.parametrize("version", [0, 1])
def test_endpoints_are_left_out_of_versions_that_have_none(version: int) -> None:
    """Else the answer could not be encoded."""
    state = follower(1, epoch=5, leader_id=3).state
    for response in (
        answers.vote(state, error=ErrorCode.NONE, version=version),
        answers.quorum_epoch(state, BeginQuorumEpochResponse, error=ErrorCode.NONE, version=version),
        answers.fetch_snapshot(state, snapshot_id=OffsetAndEpoch(epoch=1, offset=1), version=version),
    ):
        assert len(response.node_endpoints) == version
        assert encode_response(response, version=version, correlation_id=1)


def test_without_a_leader_minus_one_is_named() -> None:
    """And no endpoint."""
    response = answers.fetch(replica(1).state, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, version=18)

    assert partition_of(response).current_leader.leader_id == -1
    assert response.node_endpoints == ()


def test_a_judgement_is_named_in_its_own_field() -> None:
    """Divergence and snapshot never together."""
    state = follower(1, epoch=5, leader_id=3).state
    end = OffsetAndEpoch(epoch=2, offset=7)
    diverging = partition_of(answers.fetch(state, judgement=Diverging(end), version=18))
    snapshot = partition_of(answers.fetch(state, judgement=NeedsSnapshot(end), version=18))

    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (2, 7)
    assert diverging.snapshot_id.epoch == -1
    assert (snapshot.snapshot_id.epoch, snapshot.snapshot_id.end_offset) == (2, 7)
    assert snapshot.diverging_epoch.epoch == -1
