"""kraft.version 0 -> 1 on a running quorum (KIP-853, UpdateFeatures)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import SendResponse, SubmitControl
from kraftlib.consensus.events import ResignRequested, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.types import ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.consensus.build import (
    LISTENER,
    as_leader,
    ask,
    flush,
    follower,
    leader,
    park,
    place,
    submit_controls,
    tell,
)

DISKS = {number: UUID(int=1_000 + number) for number in (1, 2, 3)}


def upgrade(level: int = 1, feature: str = "kraft.version", **more: Any) -> UpdateFeaturesRequest:
    """Ask for a level."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)
    return UpdateFeaturesRequest(feature_updates=(update,), **more)


def fetch(core: Replica, replica_id: int) -> list[Any]:
    """A Fetch of a voter that has everything."""
    return park(core, replica_id, 100 + replica_id, replica_directory_id=DISKS[replica_id])


def introduce(core: Replica, replica_id: int, *, newest: int = 1) -> None:
    """Let a voter say who it is."""
    where = place(replica_id)
    kind = UpdateRaftVoterRequest
    request = kind(
        cluster_id="cluster",
        current_leader_epoch=core.epoch,
        voter_id=replica_id,
        voter_directory_id=DISKS[replica_id],
        listeners=(kind.Listener(name=LISTENER, host=where.host, port=where.port),),
        kraft_version_feature=kind.KRaftVersionFeature(min_supported_version=0, max_supported_version=newest),
    )
    assert ask(core, request, version=0).error_code == ErrorCode.NONE


def static_leader(*introduced: int) -> Replica:
    """A leader of a static quorum that has committed in its epoch."""
    core = leader(1, directory_id=DISKS[1])
    flush(core)
    fetch(core, 2)
    for replica_id in introduced:
        introduce(core, replica_id)
    return core


def append_submitted(core: Replica, actions: list[Any]) -> None:
    """Do what the executor does with SubmitControl."""
    submitted = next(action for action in actions if isinstance(action, SubmitControl))
    submit_controls(core, *submitted.records)
    flush(core)


def answers(actions: list[Any]) -> list[UpdateFeaturesResponse]:
    """The answers to UpdateFeatures among actions."""
    found = [action.response for action in actions if isinstance(action, SendResponse)]
    return [response for response in found if isinstance(response, UpdateFeaturesResponse)]


def test_one_batch_makes_the_quorum_dynamic_and_its_commit_is_the_answer() -> None:
    """From its append on, voters are known by their disks."""
    core = static_leader(2, 3)
    actions = tell(core, upgrade(), version=2)
    assert answers(actions) == []
    append_submitted(core, actions)
    assert (core.kraft_version, {voter.key for voter in core.voters}) == (
        1,
        {ReplicaKey(number, disk) for number, disk in DISKS.items()},
    )

    (answer,) = answers(fetch(core, 3))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert core.high_watermark == core.state.log.end_offset


def test_a_voter_of_whom_nothing_is_known_stands_in_the_way() -> None:
    """It may be one that cannot follow (a 3.9 or 4.0 node, or one just started)."""
    answer = ask(static_leader(2), upgrade(), version=2)

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "not all of the voters support it" in answer.error_message
    assert "[3]" in answer.error_message


def test_a_voter_that_cannot_follow_stands_in_the_way() -> None:
    core = static_leader(2)
    introduce(core, 3, newest=0)

    assert ask(core, upgrade(), version=2).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (upgrade(2), "newest"),
        (upgrade(-1), "downgrade"),
        (upgrade(1, "metadata.version"), "no feature but kraft.version"),
    ],
)
def test_what_cannot_be_is_refused(request_: UpdateFeaturesRequest, said: str) -> None:
    answer = ask(static_leader(2, 3), request_, version=2)

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in answer.error_message
    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_UPDATE_VERSION]


def test_what_is_there_already_is_granted_and_nothing_written() -> None:
    core = static_leader(2, 3)

    assert ask(core, upgrade(0), version=2).error_code == ErrorCode.NONE
    assert ask(core, UpdateFeaturesRequest(), version=2).error_code == ErrorCode.NONE
    assert core.kraft_version == 0


def test_what_is_there_and_not_committed_yet_is_not_granted() -> None:
    """A second request while the first one waits: the record may still be cut off."""
    core = static_leader(2, 3)
    append_submitted(core, tell(core, upgrade(), request_id=77))
    assert core.state.log.kraft_version.latest == 1
    assert ask(core, upgrade(), request_id=78).error_code == ErrorCode.REQUEST_TIMED_OUT

    fetch(core, 2)
    assert ask(core, upgrade(), request_id=79).error_code == ErrorCode.NONE


def test_a_mere_question_changes_nothing() -> None:
    core = static_leader(2, 3)

    assert ask(core, upgrade(validate_only=True), version=2).error_code == ErrorCode.NONE
    assert core.state.role_state.change is None  # type: ignore[union-attr]


def test_only_a_leader_that_has_committed_does_it_and_once_at_a_time() -> None:
    """Another leader, or the same one a moment later, is asked again by the client."""
    assert ask(follower(1, epoch=5), upgrade(), version=2).error_code == ErrorCode.NOT_CONTROLLER
    new = leader(1, directory_id=DISKS[1])
    assert ask(new, upgrade(), version=2).error_code == ErrorCode.REQUEST_TIMED_OUT
    core = static_leader(2, 3)
    tell(core, upgrade(), version=2)
    assert ask(core, upgrade(), version=2, request_id=78).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_lost_leadership_and_a_lost_majority_are_told() -> None:
    """The record may still be committed by the next leader."""
    core = static_leader(2, 3)
    tell(core, upgrade(), version=2)
    (answer,) = answers(core.handle(ResignRequested(core.epoch), core.state.now_ms))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER

    slow = static_leader(2, 3)
    tell(slow, upgrade(), version=2)
    later = slow.state.now_ms + slow.state.config.request_timeout_ms
    (answer,) = answers(slow.handle(TimeoutReached(), later))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_request_with_very_many_features_is_refused() -> None:
    core = static_leader(2, 3)
    request = upgrade()
    many = UpdateFeaturesRequest(feature_updates=request.feature_updates * 17)

    assert ask(core, many, version=1).error_code == ErrorCode.INVALID_REQUEST
    assert core.kraft_version == 0


def test_as_many_features_as_are_read_are_answered() -> None:
    """One more is not."""
    core = static_leader(2, 3)
    update = upgrade().feature_updates[0]
    for count, error in ((16, ErrorCode.NONE), (17, ErrorCode.INVALID_REQUEST)):
        request = UpdateFeaturesRequest(feature_updates=(update,) * count, validate_only=True)
        assert ask(core, request, version=1).error_code == error


def test_a_leader_that_shuts_down_sends_elsewhere() -> None:
    core = static_leader(2, 3)
    core.state.shutdown_deadline_ms = core.state.now_ms + 1_000

    assert ask(core, upgrade(validate_only=True), version=1).error_code == ErrorCode.NOT_CONTROLLER


def test_a_voter_whose_disk_is_not_known_cannot_be_written_down() -> None:
    """Whatever it supports: without a directory id it could not be told from its successor."""
    core = static_leader(2)
    role = as_leader(core)
    role.reported[3] = attrs.evolve(role.reported[2], key=ReplicaKey(3))

    assert ask(core, upgrade(), version=1).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_level_from_an_earlier_epoch_is_not_granted_before_anything_of_this_one_is_committed() -> None:
    """It stands below what was committed then, for all this leader knows; only its own epoch proves it."""
    core = static_leader(2, 3)
    core.state.log.kraft_version.add(core.state.log.end_offset, 1)
    core.state.committed_offset = core.state.log.end_offset + 1
    core.state.high_watermark = None

    assert ask(core, upgrade(), version=1).error_code == ErrorCode.REQUEST_TIMED_OUT
