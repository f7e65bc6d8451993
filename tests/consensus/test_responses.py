"""How requests are checked and responses are built."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import attrs
import pytest

from kraftlib.consensus import responses
from kraftlib.consensus.actions import SendResponse
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.replica import REQUESTS, Replica
from kraftlib.consensus.responses import cluster_error, leader_only_error, only_partition, voter_only_error
from kraftlib.consensus.state import ReplicaState
from kraftlib.errors import LocalProtocolError
from kraftlib.runtime.net.api_versions import SERVED
from kraftlib.types import ZERO_UUID, ElectionState, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import encode_request, encode_response
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.consensus.build import (
    CLUSTER,
    ask,
    begin_request,
    end_request,
    fetch_request,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    replica,
    tell,
    vote_request,
    voter_set,
)
from tests.interop.questions import There, questions


def elected(state: ReplicaState, kind: Any, error: ErrorCode, version: int, **granted: bool) -> Any:
    """Answer a request of elections."""
    return responses.election(state, RequestReceived(1, kind(), version), error, **granted).response


def test_every_request_that_is_served_can_be_refused() -> None:
    """With a top-level error and nothing else."""
    for kind in REQUESTS:
        response = responses.top_level(kind(), ErrorCode.INVALID_REQUEST)
        assert response.error_code == 42
        assert kind.__name__.replace("Request", "Response") == type(response).__name__


@pytest.mark.parametrize("version", [0, 1])
def test_endpoints_are_left_out_of_versions_that_have_none(version: int) -> None:
    """Else the answer could not be encoded."""
    state = follower(1, epoch=5, leader_id=3).state
    for response in (
        *(elected(state, kind, ErrorCode.NONE, version) for kind in (VoteRequest, BeginQuorumEpochRequest)),
        responses.fetch_snapshot(state, snapshot_id=OffsetAndEpoch(epoch=1, offset=1), version=version),
    ):
        assert len(response.node_endpoints) == version
        assert encode_response(response, version=version, correlation_id=1)


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
        (1, lambda version: elected(state, VoteRequest, error, version)),
        (1, lambda version: elected(state, BeginQuorumEpochRequest, error, version)),
        (1, lambda version: elected(state, EndQuorumEpochRequest, error, version)),
        (1, lambda version: responses.fetch_snapshot(state, error=error, snapshot_id=end, version=version)),
        (17, lambda version: responses.fetch(state, error=error, version=version)),
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


def test_the_high_watermark_is_named_where_it_is_known_and_nothing_is_wrong() -> None:
    """0 is one, too: nothing is committed, and that is known."""
    state = leader(1).state
    for high_watermark, error, named in (
        (None, ErrorCode.NONE, -1), (0, ErrorCode.NONE, 0), (2, ErrorCode.NONE, 2),
        (2, ErrorCode.FENCED_LEADER_EPOCH, -1),
    ):  # fmt: skip
        state.high_watermark = high_watermark
        partition = partition_of(responses.fetch(state, error=error, version=18))
        assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (named, -1, 0)


def test_a_slice_of_a_snapshot_says_of_which_and_where_it_begins() -> None:
    """Empty, not null: Kafka's own answer with an error fails on the null."""
    state = leader(1).state
    answer = responses.fetch_snapshot(
        state, snapshot_id=OffsetAndEpoch(epoch=2, offset=7), position=5, topic_name="some", version=1
    )
    partition = partition_of(answer)
    assert (partition.snapshot_id.epoch, partition.snapshot_id.end_offset, partition.position) == (2, 7, 5)
    assert (answer.topics[0].name, partition.unaligned_records) == ("some", b"")


def test_an_update_is_answered_with_the_leader_beside_it() -> None:
    for core, named in ((leader(1), (1, 2, "localhost", 9001)), (replica(1), (-1, 1, "", 0))):
        answer = responses.update_voter(core.state, error=ErrorCode.VOTER_NOT_FOUND)
        known = answer.current_leader
        assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
        assert (known.leader_id, known.leader_epoch, known.host, known.port) == named


def test_a_change_is_answered_in_its_own_kind_and_whoever_does_not_lead_in_the_words_that_are_understood() -> None:
    """Kafka's admin clients look for the controller at NOT_CONTROLLER, and raft clients at NOT_LEADER_OR_FOLLOWER."""
    for request in (AddRaftVoterRequest(), RemoveRaftVoterRequest()):
        answer = responses.voter_change(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "text")
        assert type(answer).__name__ == type(request).__name__.replace("Request", "Response")
        assert (answer.error_code, answer.error_message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "text")
    update = UpdateFeaturesRequest.FeatureUpdateKey
    question = UpdateFeaturesRequest(feature_updates=(update(feature="a"), update(feature="b")))
    for error, said in (
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ):
        changed: Any = responses.voter_change(question, error, "text")
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


@pytest.mark.parametrize(
    ("cluster_id", "error"), [("cluster", ErrorCode.NONE), (None, ErrorCode.NONE), ("", 104), ("other", 104)]
)
def test_another_cluster_is_refused_and_none_is_served(cluster_id: str | None, error: int) -> None:
    """As Kafka does."""
    assert cluster_error(replica().state, cluster_id) == error


def test_exactly_the_metadata_partition_is_served() -> None:
    """Not none, not two, not another."""
    topics = vote_request(epoch=1).topics

    assert only_partition(topics) is topics[0].partitions[0]
    assert only_partition(()) is None
    assert only_partition(topics * 2) is None
    assert only_partition(vote_request(epoch=1, topic_name="other").topics) is None
    (topic,) = topics
    assert only_partition((attrs.evolve(topic, partitions=()),)) is None
    assert only_partition((attrs.evolve(topic, partitions=topic.partitions * 2),)) is None
    assert (
        only_partition((attrs.evolve(topic, partitions=(attrs.evolve(topic.partitions[0], partition_index=1),)),))
        is None
    )


def test_only_a_leader_of_the_same_epoch_answers_as_leader() -> None:
    """Older, newer, no leader, leaving."""
    core = leader()
    assert leader_only_error(core.state, 0) == ErrorCode.FENCED_LEADER_EPOCH
    assert leader_only_error(core.state, 2) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader_only_error(core.state, 1) == ErrorCode.NONE
    core.state.shutdown_deadline_ms = 5
    assert leader_only_error(core.state, 1) == ErrorCode.BROKER_NOT_AVAILABLE
    assert leader_only_error(follower(1, epoch=5, leader_id=2).state, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_voters_speak_from_an_epoch_that_is_not_over() -> None:
    """And have an id."""
    state = follower(1, epoch=5, leader_id=2).state

    assert voter_only_error(state, 4, 2) == ErrorCode.FENCED_LEADER_EPOCH
    assert voter_only_error(state, 5, -1) == ErrorCode.INVALID_REQUEST
    assert voter_only_error(state, 5, 0) == ErrorCode.NONE
    assert voter_only_error(state, 5, 2) == ErrorCode.NONE


VAGUE = {
    "vote without cluster": vote_request(epoch=9, last=(9, 1), cluster_id=None),
    "vote for another": vote_request(epoch=9, last=(9, 1), voter_id=3),
    "begin for another": begin_request(epoch=9, voter_id=3, leader_id=2),
    "begin without cluster": begin_request(epoch=9, leader_id=2, cluster_id=None),
    "fetch without cluster": fetch_request(epoch=5, offset=1, last_epoch=1, cluster_id=None),
}


@pytest.mark.parametrize("request_", VAGUE.values(), ids=VAGUE)
def test_strict_mode_refuses_before_it_believes_and_closes_the_connection(request_: object) -> None:
    """Kafka serves a null cluster id, and believes the epoch of a misdirected Vote (scenario E16, M11, I17)."""
    lenient, strict = follower(1, epoch=5, leader_id=2), follower(1, epoch=5, leader_id=2, strict=True)

    assert ask(lenient, request_, version=2) is not None
    assert tell(strict, request_, version=2) == [SendResponse(77, None)]
    assert strict.epoch == 5
    assert sum(strict.state.refused.values()) == 1


def test_an_observer_that_knows_no_cluster_serves_them_all() -> None:
    """And names none itself, as Kafka's protocol allows."""
    core = replica(1, own_id=9, cluster_id=None)

    assert outstanding_to(core, pending_requests(core)[0].destination).request.cluster_id is None
    assert cluster_error(core.state, "any") is ErrorCode.NONE


def test_strict_mode_serves_whoever_says_what_it_must() -> None:
    """And what replicas do not ask each other names no cluster."""
    core = follower(1, epoch=5, leader_id=2, strict=True)

    assert partition_of(ask(core, vote_request(epoch=9, last=(9, 1), voter_id=1), version=2)).vote_granted
    assert core.epoch == 9
    assert ask(core, UpdateFeaturesRequest(), version=1).error_code == ErrorCode.NOT_CONTROLLER
    assert core.state.refused == {}


@pytest.mark.parametrize("count", [0, 2])
def test_strict_mode_leaves_to_the_others_what_is_no_question_of_identity(count: int) -> None:
    """A Vote about no partition is impossible for everybody; End and Fetch are meant for whoever they reach."""
    core = follower(1, epoch=5, leader_id=2, strict=True)
    request = vote_request(epoch=9, last=(9, 1))

    answer = ask(core, attrs.evolve(request, topics=request.topics * count), version=2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert ask(core, fetch_request(epoch=5, offset=1, last_epoch=1), version=18) is not None
    assert ask(core, end_request(epoch=4)) is not None
    assert core.state.refused == {}
