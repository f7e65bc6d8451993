"""Digests of states are exchanged with the voters, and each replica judges by itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kraftlib.consensus.actions import QuarantineState, SendRequest, SendResponse
from kraftlib.consensus.events import (
    Failure,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    StateHashed,
    TimeoutReached,
)
from kraftlib.consensus.extensions.state_digests import NAMED_MAX, OBSERVERS_MAX, lane_to
from kraftlib.consensus.replica import Replica
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import DIGESTS
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse
from tests.consensus.build import CLUSTER, follower, outstanding_to, voter_set

RIGHT, WRONG, OTHER = bytes(32), b"w" * 32, b"o" * 32
INTERVAL_MS = 8_000


def hashed(core: Replica, sha256: bytes = RIGHT, offset: int = 2, version: int = 0, now_ms: int = 0) -> list[Any]:
    """The state of this replica was hashed."""
    return core.handle(StateHashed(offset=offset, snapshot_version=version, sha256=sha256), now_ms)


def told(core: Replica, replica_id: int, sha256: bytes, offset: int = 2, version: int = 0, **more: Any) -> Any:
    """Another replica tells its digest; return all actions and the answer."""
    digest = StateDigestRequest.Digest(offset=offset, snapshot_version=version, sha256=sha256)
    fields = {"cluster_id": CLUSTER, "digests": (digest,), **more}
    request = StateDigestRequest(replica_id=replica_id, **fields)
    actions = core.handle(RequestReceived(70, request, 0), core.state.now_ms)
    (answer,) = [action.response for action in actions if isinstance(action, SendResponse) and action.request_id == 70]
    return actions, answer


def questions(actions: list[Any]) -> dict[int, StateDigestRequest]:
    """What is asked, by destination."""
    sent = [action for action in actions if isinstance(action, SendRequest)]
    return {action.destination: action.request for action in sent if isinstance(action.request, StateDigestRequest)}


def is_quarantined(core: Replica) -> bool:
    return core.status().quarantined_at is not None


def test_a_new_digest_is_told_to_every_other_voter_until_each_has_told_its_own() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    asked = questions(hashed(core))

    assert set(asked) == {lane_to(2), lane_to(3)}
    assert [row.sha256 for row in asked[lane_to(2)].digests] == [RIGHT]
    rows = (StateDigestResponse.Digest(offset=2, snapshot_version=0, sha256=RIGHT),)
    two, three = (outstanding_to(core, lane_to(voter)).correlation_id for voter in (2, 3))
    core.handle(ResponseReceived(two, StateDigestResponse(error_code=0, digests=rows)), 10)
    core.handle(ResponseReceived(three, StateDigestResponse(error_code=0)), 10)  # it is not there yet
    assert core.status().agreed_offset == 2
    deadline = core.deadline_ms()
    assert deadline is not None
    assert deadline <= INTERVAL_MS // 8
    assert set(questions(woken(core, INTERVAL_MS // 8))) == {lane_to(3)}


def woken(core: Replica, now_ms: int) -> list[Any]:
    """Nothing happens until then."""
    return core.handle(TimeoutReached(), now_ms)


def test_a_voter_that_knows_no_such_question_is_left_alone_until_the_next_digest() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    for voter in (2, 3):
        correlation_id = outstanding_to(core, lane_to(voter)).correlation_id
        core.handle(RequestFailed(correlation_id, Failure.UNSUPPORTED_VERSION), 0)

    assert questions(woken(core, 60_000)) == {}
    assert set(questions(hashed(core, offset=3, now_ms=60_000))) == {lane_to(2), lane_to(3)}


def test_a_majority_with_another_state_quarantines_this_replica_and_one_voter_does_not() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core, WRONG)
    told(core, 2, RIGHT)
    assert not is_quarantined(core)

    actions, answer = told(core, 3, RIGHT)

    assert QuarantineState(2) in actions
    assert core.status().quarantined_at == 2
    assert core.status().abstains == "quarantined: state differs"
    assert core.state.reluctance_ms > 0
    assert [row.sha256 for row in answer.digests] == [WRONG]


def test_a_state_that_agrees_is_right_whatever_is_told_later_of_an_older_one() -> None:
    """It would wait for ever for a snapshot: the leader's newest may be one that it has, and trusts."""
    core = follower(1, 1, 1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core, WRONG, offset=2)
    told(core, 2, RIGHT, offset=2)
    hashed(core, offset=4)
    told(core, 2, RIGHT, offset=4)
    told(core, 3, RIGHT, offset=2)

    assert not is_quarantined(core)
    assert core.status().agreed_offset == 4
    hashed(core, WRONG, offset=3)
    told(core, 2, RIGHT, offset=3)
    assert not is_quarantined(core)


def test_a_replica_that_differs_is_named_by_the_others_until_it_does_not(caplog: pytest.LogCaptureFixture) -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    told(core, 2, RIGHT)
    with caplog.at_level(logging.WARNING):
        told(core, 3, WRONG)
        told(core, 9, WRONG)  # an observer
        told(core, 3, WRONG)
        _, answer = told(core, 2, RIGHT)

    assert core.status().differing == (3, 9)
    assert tuple(answer.differing) == (3, 9)
    assert caplog.text.count("the state of replica 3 differs") == 1
    assert not is_quarantined(core)
    told(core, 3, RIGHT)
    assert core.status().differing == (9,)


def test_an_observer_with_many_ids_and_another_digest_each_time_has_few_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    told(core, 2, RIGHT)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            told(core, 9, WRONG)
            told(core, 9, RIGHT)
        for replica_id in range(10, 200):
            told(core, replica_id, WRONG)
        assert len(caplog.records) == NAMED_MAX
        told(core, 3, WRONG)
        assert "the state of replica 3 differs" in caplog.text, "a voter has its line all the same"
        hashed(core, offset=3)
        told(core, 2, RIGHT, offset=3)
        told(core, 9, WRONG, offset=3)
    assert "the state of replica 9 differs from that of the majority at offset 3" in caplog.text


def test_two_of_two_that_differ_both_stay_at_work_and_the_operator_is_told(caplog: pytest.LogCaptureFixture) -> None:
    core = follower(1, 1, voters=voter_set(1, 2), digest_interval_ms=INTERVAL_MS)
    with caplog.at_level(logging.ERROR):
        hashed(core)
        told(core, 2, WRONG)
        told(core, 2, WRONG)

    assert not is_quarantined(core)
    assert core.status().undecided_offset == 2
    assert caplog.text.count("none is that of a majority") == 1
    hashed(core, offset=3)
    told(core, 2, RIGHT, offset=3)
    assert core.status().undecided_offset == -1


def test_three_different_states_quarantine_nobody() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    told(core, 2, WRONG)
    assert core.status().undecided_offset == -1  # the third may decide
    told(core, 3, OTHER)

    assert core.status().undecided_offset == 2
    assert not is_quarantined(core)


@pytest.mark.parametrize(
    "more",
    [{"version": 1}, {"offset": 3}, {"cluster_id": "another"}, {"sha256": b"short"}],
    ids=["another form of snapshots", "another offset", "another cluster", "no digest"],
)
def test_what_cannot_be_compared_quarantines_nobody(more: dict[str, Any]) -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    for voter in (2, 3):
        told(core, voter, **{"sha256": WRONG, **more})

    assert not is_quarantined(core)
    assert core.status().undecided_offset == -1
    assert core.status().differing == ()


def test_only_voters_have_a_say() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    for stranger in (-1, 1, 7, 8, 9):  # a tool, ourselves by somebody else, observers
        told(core, stranger, WRONG)

    assert not is_quarantined(core)
    assert core.state.digests.undecided_offset == -1


def test_an_observer_judges_itself_by_the_voters() -> None:
    core = follower(1, 1, own_id=9, digest_interval_ms=INTERVAL_MS)
    assert set(questions(hashed(core, WRONG))) == {lane_to(1), lane_to(2), lane_to(3)}
    told(core, 1, RIGHT)
    told(core, 2, RIGHT)

    assert is_quarantined(core)


def test_what_others_tell_takes_a_bounded_place() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    for replica_id in range(10, 10 + 2 * OBSERVERS_MAX):
        told(core, replica_id, RIGHT)
    for offset in range(3 * DIGESTS):
        told(core, 2, RIGHT, offset=offset)

    assert len(core.state.digests.told) == OBSERVERS_MAX + 1
    assert len(core.state.digests.told[2]) == DIGESTS


def test_another_cluster_is_told_nothing() -> None:
    core = follower(1, 1, digest_interval_ms=INTERVAL_MS)
    hashed(core)
    _, answer = told(core, 2, RIGHT, cluster_id="another")

    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not answer.digests
