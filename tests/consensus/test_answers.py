"""Answers name epoch, leader and endpoint as known now."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from kraftlib.consensus import answers
from kraftlib.consensus.log_view import Diverging, NeedsSnapshot
from kraftlib.consensus.replica import REQUESTS, Replica
from kraftlib.errors import LocalProtocolError
from kraftlib.runtime.net.api_versions import SERVED
from kraftlib.types import ZERO_UUID, ElectionState, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import encode_request, encode_response
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
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


NOBODY, SOMEBODY, OURSELVES = (-1, 5, None), (3, 5, 9003), (1, 2, 9001)
"""Leader, epoch and port that an answer names."""


@pytest.mark.parametrize(
    ("core", "named"),
    [
        (replica(1, election=ElectionState(epoch=5)), NOBODY),
        (follower(1, epoch=5, leader_id=3), SOMEBODY),
        (leader(1), OURSELVES),
    ],
    ids=["nobody", "somebody", "ourselves"],
)
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH])
def test_every_answer_names_error_epoch_leader_and_where_that_is(
    core: Replica, named: tuple[int, int, int | None], error: ErrorCode
) -> None:
    """From the version on that has a place for it; a Fetch later than its schema, as Kafka does."""
    state, end = core.state, OffsetAndEpoch(epoch=1, offset=1)
    leader_id, epoch, port = named
    makers: list[tuple[int, Any]] = [
        (1, lambda version: answers.vote(state, error=error, version=version)),
        (1, lambda version: answers.quorum_epoch(state, BeginQuorumEpochResponse, error=error, version=version)),
        (1, lambda version: answers.quorum_epoch(state, EndQuorumEpochResponse, error=error, version=version)),
        (1, lambda version: answers.fetch_snapshot(state, error=error, snapshot_id=end, version=version)),
        (17, lambda version: answers.fetch(state, error=error, version=version)),
    ]
    for first_with_places, make in makers:
        for version in (first_with_places - 1, first_with_places):
            answer = make(version)
            partition = partition_of(answer)
            known = getattr(partition, "current_leader", partition)
            assert (partition.error_code, known.leader_id, known.leader_epoch) == (error, leader_id, epoch)
            places = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
            is_told = port is not None and version >= first_with_places
            assert places == ([(leader_id, "localhost", port)] if is_told else [])


@pytest.mark.parametrize("kind", [BeginQuorumEpochResponse, EndQuorumEpochResponse])
def test_an_answer_is_of_the_kind_of_its_question(kind: Any) -> None:
    assert type(answers.quorum_epoch(replica(1).state, kind, error=ErrorCode.NONE, version=1)) is kind


def test_a_vote_is_granted_only_where_it_says_so() -> None:
    state = replica(1).state
    assert not partition_of(answers.vote(state, error=ErrorCode.NONE, version=1)).vote_granted
    assert partition_of(answers.vote(state, error=ErrorCode.NONE, granted=True, version=1)).vote_granted


def test_the_high_watermark_is_named_where_it_is_known_and_nothing_is_wrong() -> None:
    """0 is one, too: nothing is committed, and that is known."""
    state = leader(1).state
    for high_watermark, error, named in (
        (None, ErrorCode.NONE, -1), (0, ErrorCode.NONE, 0), (2, ErrorCode.NONE, 2),
        (2, ErrorCode.FENCED_LEADER_EPOCH, -1),
    ):  # fmt: skip
        state.high_watermark = high_watermark
        partition = partition_of(answers.fetch(state, error=error, version=18))
        assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (named, -1, 0)


def test_the_start_of_the_log_is_named() -> None:
    state = replica(log=log_view(1, 1, start=4, voters=voter_set(1, 2, 3))).state
    assert partition_of(answers.fetch(state, version=18)).log_start_offset == 4


def test_a_slice_of_a_snapshot_says_of_which_and_where_it_begins() -> None:
    """Empty, not null: Kafka's own answer with an error fails on the null."""
    state = leader(1).state
    answer = answers.fetch_snapshot(
        state, snapshot_id=OffsetAndEpoch(epoch=2, offset=7), position=5, topic_name="some", version=1
    )
    partition = partition_of(answer)
    assert (partition.snapshot_id.epoch, partition.snapshot_id.end_offset, partition.position) == (2, 7, 5)
    assert (answer.topics[0].name, partition.unaligned_records) == ("some", b"")


def test_an_update_is_answered_with_the_leader_beside_it() -> None:
    for core, named in ((leader(1), (1, 2, "localhost", 9001)), (replica(1), (-1, 1, "", 0))):
        answer = answers.update_voter(core.state, error=ErrorCode.VOTER_NOT_FOUND)
        known = answer.current_leader
        assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
        assert (known.leader_id, known.leader_epoch, known.host, known.port) == named


def test_a_change_is_answered_in_its_own_kind_and_whoever_does_not_lead_in_the_words_that_are_understood() -> None:
    """Kafka's admin clients look for the controller at NOT_CONTROLLER, and raft clients at NOT_LEADER_OR_FOLLOWER."""
    for request in (AddRaftVoterRequest(), RemoveRaftVoterRequest()):
        answer = answers.voter_change(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "text")
        assert type(answer).__name__ == type(request).__name__.replace("Request", "Response")
        assert (answer.error_code, answer.error_message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "text")
    update = UpdateFeaturesRequest.FeatureUpdateKey
    question = UpdateFeaturesRequest(feature_updates=(update(feature="a"), update(feature="b")))
    for error, said in (
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ):
        changed: Any = answers.voter_change(question, error, "text")
        assert (changed.error_code, changed.error_message) == (said, "text")
        assert [(row.feature, row.error_code) for row in changed.results] == [("a", said), ("b", said)]


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
