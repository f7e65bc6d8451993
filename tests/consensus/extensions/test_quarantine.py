"""A quarantined replica gets a snapshot of the leader, and lets its log begin there."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import (
    AdoptSnapshot,
    InstallSnapshot,
    QuarantineState,
    ReloadState,
    SendRequest,
    SetSnapshotAside,
    TakeSnapshot,
)
from kraftlib.consensus.events import (
    ResponseReceived,
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotLost,
    StateHashed,
    StateHealed,
    TimeoutReached,
)
from kraftlib.consensus.extensions.state_digests import lane_to
from kraftlib.consensus.replica import Replica
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse
from tests.consensus.build import (
    as_follower,
    batch,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    pending_requests,
    voter_set,
)
from tests.consensus.extensions.test_state_digests import RIGHT, WRONG, hashed, told

SNAPSHOT = OffsetAndEpoch(offset=4, epoch=1)
OLD, BAD = OffsetAndEpoch(offset=1, epoch=1), OffsetAndEpoch(offset=3, epoch=1)


def quarantined(**more: Any) -> tuple[Replica, list[Any]]:
    """A follower of 2 with four records, which agreed at offset 2 and is wrong at 4; and what it did then."""
    log = log_view(1, 1, 1, 1, snapshots=(OLD, BAD), voters=voter_set(1, 2, 3))
    core = follower(log=log, digest_interval_ms=8_000, **more)
    hashed(core, RIGHT, offset=2)
    told(core, 2, RIGHT, offset=2)
    hashed(core, WRONG, offset=4)
    told(core, 2, RIGHT, offset=4)
    actions, _ = told(core, 3, RIGHT, offset=4)
    assert QuarantineState(4) in actions
    return core, actions


def offered(core: Replica, snapshot_id: OffsetAndEpoch, *, wanted_from: int = 4) -> list[Any]:
    """The leader offers a snapshot, the next time that it is asked; its Fetch is answered by then."""
    waiting = [one for one in pending_requests(core) if one.destination in (2, lane_to(2))]
    for one in waiting:
        core.state.connections.take(one.correlation_id)
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)
    asked = outstanding_to(core, lane_to(2))
    assert isinstance(asked.request, StateDigestRequest)
    assert asked.request.snapshot_from == wanted_from
    place = StateDigestResponse.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    response = StateDigestResponse(error_code=0, snapshot_id=place)
    return core.handle(ResponseReceived(asked.correlation_id, response), core.state.now_ms)


def test_another_snapshot_is_asked_for_when_the_one_that_was_to_heal_the_state_is_lost() -> None:
    core, _ = quarantined()
    offered(core, SNAPSHOT)
    adopted = SnapshotAdopted(snapshot_id=SNAPSHOT, controls=(), holes=(), control_batches=())
    assert ReloadState(SNAPSHOT) in core.handle(adopted, core.state.now_ms)
    lost = SnapshotLost(snapshot_id=SNAPSHOT, start_offset=4, epoch_starts=(), holes=())
    core.handle(lost, core.state.now_ms)

    offered(core, OffsetAndEpoch(offset=5, epoch=1), wanted_from=5)
    assert core.state.role_state.download is not None  # type: ignore[union-attr]


def test_snapshots_from_after_the_last_agreement_are_set_aside_and_older_ones_kept() -> None:
    core, actions = quarantined()

    assert [action.snapshot_id for action in actions if isinstance(action, SetSnapshotAside)] == [BAD]
    assert core.state.log.snapshots == [OLD]


def test_a_snapshot_that_was_being_written_is_set_aside_too() -> None:
    core, _ = quarantined()
    late = OffsetAndEpoch(offset=4, epoch=1)
    actions = core.handle(SnapshotCreated(late), core.state.now_ms)

    assert [action.snapshot_id for action in actions if isinstance(action, SetSnapshotAside)] == [late]
    assert late not in core.state.log.snapshots


def test_a_snapshot_that_was_being_written_does_not_cost_the_one_of_the_leader() -> None:
    """The storage keeps the file that is there, and the log begins at it."""
    core, _ = quarantined()
    offered(core, SNAPSHOT)
    adopted = SnapshotAdopted(snapshot_id=SNAPSHOT, controls=(), holes=(), control_batches=())
    assert ReloadState(SNAPSHOT) in core.handle(adopted, core.state.now_ms)

    assert core.handle(SnapshotCreated(SNAPSHOT), core.state.now_ms) == []
    assert core.state.log.snapshots == [SNAPSHOT]


def test_the_snapshot_of_the_leader_takes_the_place_of_the_log_up_to_its_end_and_heals() -> None:
    core, _ = quarantined()
    offered(core, SNAPSHOT)
    download = as_follower(core).download
    assert download is not None
    assert (download.snapshot_id, download.fills) == (SNAPSHOT, True)
    fetch = outstanding_to(core, 2)
    if not isinstance(fetch.request, FetchSnapshotRequest):  # the Fetch that was under way comes first
        core.state.connections.take(fetch.correlation_id)
        sent = core.handle(TimeoutReached(), core.state.now_ms)
        assert any(isinstance(a, SendRequest) and isinstance(a.request, FetchSnapshotRequest) for a in sent)
    download.size = 6
    actions = core.handle(SnapshotChunkWritten(SNAPSHOT, 6), core.state.now_ms)
    assert AdoptSnapshot(SNAPSHOT) in actions
    adopted = SnapshotAdopted(snapshot_id=SNAPSHOT, controls=(), holes=(), control_batches=())
    assert ReloadState(SNAPSHOT) in core.handle(adopted, core.state.now_ms)
    assert core.state.log.start_offset == 4
    assert core.status().quarantined_at == 4  # until it is loaded
    assert core.state.reluctance_ms > 0

    core.handle(StateHealed(SNAPSHOT), core.state.now_ms)

    assert core.status().quarantined_at is None
    assert core.status().abstains is None
    assert core.state.reluctance_ms == 0


def test_what_was_hashed_before_a_snapshot_of_the_leader_counts_for_nothing() -> None:
    """The state machine loads the snapshot, and so is right, whatever it was before."""
    core = follower(1, 1, digest_interval_ms=8_000)
    hashed(core, WRONG, offset=2)
    told(core, 2, RIGHT, offset=2)
    core.handle(SnapshotInstalled(SNAPSHOT, ()), core.state.now_ms)
    hashed(core, WRONG, offset=3)  # of the state before, and late

    for offset in (2, 3):
        for voter in (2, 3):
            told(core, voter, RIGHT, offset=offset)

    assert core.status().quarantined_at is None
    hashed(core, WRONG, offset=4)
    told(core, 2, RIGHT, offset=4)
    told(core, 3, RIGHT, offset=4)
    assert core.status().quarantined_at == 4


@pytest.mark.parametrize("offset", [-1, 0, 2, 3])
def test_a_snapshot_from_before_the_difference_is_not_loaded(offset: int) -> None:
    core, _ = quarantined()
    offered(core, OffsetAndEpoch(offset=offset, epoch=1 if offset > 0 else -1))

    assert as_follower(core).download is None


def leading(*snapshots: OffsetAndEpoch) -> Replica:
    core = leader(log=log_view(1, 1, 1, 1, snapshots=snapshots, voters=voter_set(1, 2, 3)), digest_interval_ms=8_000)
    flush(core)
    hashed(core, RIGHT, offset=4, now_ms=core.state.now_ms)
    return core


def test_a_leader_offers_its_newest_snapshot_or_takes_one_now_and_then() -> None:
    core = leading(OLD)
    actions, answer = told(core, 3, WRONG, offset=4, snapshot_from=4)
    assert TakeSnapshot() in actions
    assert answer.snapshot_id.end_offset == -1
    actions, _ = told(core, 3, WRONG, offset=4, snapshot_from=4)
    assert TakeSnapshot() not in actions  # it is being taken

    core.handle(SnapshotCreated(SNAPSHOT), core.state.now_ms)

    actions, answer = told(core, 3, WRONG, offset=4, snapshot_from=4)
    assert TakeSnapshot() not in actions
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (4, 1)


def test_an_observer_has_snapshots_taken_less_often_than_a_voter() -> None:
    core = leading(OLD)
    taken, began_ms = [], core.state.now_ms
    for now_ms, asker in ((0, 9), (1_500, 9), (1_500, 3), (3_000, 9)):
        core.handle(TimeoutReached(), began_ms + now_ms)
        actions, _ = told(core, asker, WRONG, offset=4, snapshot_from=4)
        taken.append(TakeSnapshot() in actions)
    assert taken == [True, False, True, False]


def test_who_does_not_lead_or_is_wrong_itself_or_is_asked_for_the_future_offers_nothing() -> None:
    core = leading(SNAPSHOT)
    follows = follower(log=log_view(1, 1, 1, 1, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3)))
    hashed(follows, RIGHT, offset=4)
    for one, snapshot_from in ((follows, 4), (core, 1_000)):
        actions, answer = told(one, 3, WRONG, offset=4, snapshot_from=snapshot_from)
        assert (answer.snapshot_id.end_offset, TakeSnapshot() in actions) == (-1, False)
    told(core, 2, WRONG, offset=4)
    _, answer = told(core, 3, WRONG, offset=4, snapshot_from=4)

    assert answer.snapshot_id.end_offset in (-1, 4)  # it is found to be wrong by this very request
    _, answer = told(core, 3, WRONG, offset=4, snapshot_from=4)
    assert answer.is_quarantined
    assert answer.snapshot_id.end_offset == -1
    core.handle(StateHashed(offset=5, snapshot_version=0, sha256=RIGHT), core.state.now_ms)
    assert core.status().quarantined_at == 4


def test_a_snapshot_of_a_false_epoch_replaces_nothing_that_was_committed_meanwhile() -> None:
    """The log would be gone before the core finds that its commits are."""
    core, _ = quarantined(epoch=2)
    wrong = OffsetAndEpoch(offset=4, epoch=2)
    fetch = outstanding_to(core, 2)
    core.handle(TimeoutReached(), core.state.now_ms + 400)
    asked = outstanding_to(core, lane_to(2))
    place = StateDigestResponse.SnapshotId(end_offset=wrong.offset, epoch=wrong.epoch)
    core.handle(ResponseReceived(asked.correlation_id, StateDigestResponse(error_code=0, snapshot_id=place)), 500)
    download = as_follower(core).download
    assert download is not None
    answer = fetch_response(epoch=2, leader_id=2, records=bytes(batch(4, 2).data), high_watermark=5)
    core.handle(ResponseReceived(fetch.correlation_id, answer), 500)
    flush(core)
    assert core.state.committed_offset == 5
    download.size = 6
    actions = core.handle(SnapshotChunkWritten(wrong, 6), core.state.now_ms)

    assert not any(isinstance(action, InstallSnapshot | AdoptSnapshot) for action in actions)
    assert as_follower(core).download is None
    assert "old snapshot" in core.status().refused


def test_a_snapshot_of_an_epoch_that_has_not_begun_is_refused() -> None:
    """The next start would let it replace all that was appended since."""
    core, _ = quarantined(epoch=2)
    offered(core, OffsetAndEpoch(offset=5, epoch=3))

    assert as_follower(core).download is None
    assert core.status().refused == {"impossible snapshot": 1}
