"""Answers name epoch, leader and endpoint as known now."""

from __future__ import annotations

from uuid import uuid4

import pytest

from kraftlib.consensus import answers
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot
from kraftlib.consensus.replica import REQUESTS, Replica
from kraftlib.errors import LocalProtocolError
from kraftlib.runtime.api_versions import SERVED
from kraftlib.types import ZERO_UUID, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import encode_request, encode_response
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from tests.consensus.build import (
    CLUSTER,
    ask,
    fetch_request,
    flush,
    follower,
    leader,
    log_view,
    partition_of,
    place,
    replica,
    voter_set,
)
from tests.interop.questions import There, questions


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


def cores() -> dict[str, Replica]:
    """Replicas that can be asked."""
    keys = [ReplicaKey(number, uuid4()) for number in (1, 2, 3)]
    known = log_view(1, voters=voter_set(*keys))
    led = leader(1, log=known, directory_id=keys[0].directory_id)
    flush(led)
    observer = fetch_request(epoch=led.epoch, offset=0, last_epoch=0, replica_id=9)
    ask(led, observer, version=18)
    return {"leader": led, "static leader": leader(1), "follower": follower(1), "unattached": replica(1)}


@pytest.mark.parametrize("who", list(cores()))
def test_every_answer_fits_into_the_version_of_its_question(who: str) -> None:
    """Whatever is asked in whatever version we serve: an answer that cannot be written would be our own mistake."""
    fitted = set()
    names = questions(about(cores()[who]))
    for name in names:
        for version in SERVED[names[name][0].api_key]:
            core = cores()[who]
            request, _ = questions(about(core))[name]
            try:
                encode_request(request, version=version, correlation_id=1, client_id=None)
            except LocalProtocolError:
                continue  # a question that this version cannot ask
            response = ask(core, request, version=version)
            if response is not None:
                encode_response(response, version=version, correlation_id=1)
                fitted.add((request.api_key, version))

    assert {(ApiKey.DESCRIBE_QUORUM, version) for version in range(3)} <= fitted
    assert len({key for key, _ in fitted}) >= 8


def about(core: Replica) -> There:
    """Return what is true of a core that is asked."""
    return There(
        endpoint=place(1), node_id=1, directory_id=core.key.directory_id or ZERO_UUID, other_id=2,
        cluster_id=CLUSTER, epoch=core.epoch, end_offset=core.state.log.end_offset,
    )  # fmt: skip
