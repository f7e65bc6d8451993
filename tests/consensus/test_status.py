"""The picture that a replica gives of itself."""

from __future__ import annotations

from kraftlib.consensus.events import DiskSpaceChanged, StorageFailed
from kraftlib.consensus.roles import Role, VoterChange
from kraftlib.consensus.status import QuorumStatus, ReplicaProgress
from kraftlib.types import ElectionState, OffsetAndEpoch, OffsetRange, ReplicaKey
from tests.consensus.build import CLUSTER, as_leader, flush, leader, log_view, park, replica, voter_set


def test_the_status_of_a_leader_says_all_that_it_knows() -> None:
    log = log_view(1, 1, start=3, snapshots=(OffsetAndEpoch(offset=3, epoch=1),), voters=voter_set(1, 2, 3))
    core = leader(log=log, election=ElectionState(epoch=1))
    began = core.state.now_ms
    core.state.refused["something"] = 2
    fresh = core.status()
    assert (fresh.log_start_offset, fresh.log_end_offset, fresh.flushed_offset, fresh.high_watermark) == (3, 6, 5, None)
    flush(core)
    park(core, replica_id=2)
    park(core, replica_id=9, request_id=78)
    status = core.status()
    row = ReplicaProgress(key=ReplicaKey(2), end_offset=6, last_fetch_ms=began, last_caught_up_ms=began)
    silent = ReplicaProgress(key=ReplicaKey(3), end_offset=-1, last_fetch_ms=None, last_caught_up_ms=None)
    observer = ReplicaProgress(key=ReplicaKey(9), end_offset=6, last_fetch_ms=began, last_caught_up_ms=began)
    assert status == QuorumStatus(
        key=ReplicaKey(1), cluster_id=CLUSTER, role=Role.LEADER, is_voter=True, epoch=2, leader_id=1, voted_key=None,
        high_watermark=6, log_start_offset=3, log_end_offset=6, log_end_epoch=2, flushed_offset=6, kraft_version=0,
        voters=core.voters, voter_progress=(row, silent), observer_progress=(observer,), refused={"something": 2},
    )  # fmt: skip
    core.state.refused.clear()
    assert status.refused == {"something": 2}, "it is a picture, not a window"
    as_leader(core).change = VoterChange(request_id=1, request=None, voter_id=9, deadline_ms=10**6)
    assert core.status().voter_change_pending


def test_the_status_of_one_that_has_just_started_says_what_it_does_not_know() -> None:
    log = log_view(1, 1, 1, snapshots=(OffsetAndEpoch(offset=2, epoch=1),), voters=voter_set(1, 2, 3))
    core = replica(log=log)
    core.handle(DiskSpaceChanged(True), 0)
    status = core.status()
    assert (status.high_watermark, core.high_watermark) == (None, None)
    assert (status.voter_progress, status.observer_progress, status.voter_change_pending) == ((), (), False)
    assert (status.disk_full, status.abstains) == (True, None)
    core.handle(DiskSpaceChanged(False), 0)
    core.handle(StorageFailed((OffsetRange(0, 1),)), 0)
    assert (core.status().disk_full, core.status().abstains) == (False, "repairing [0, 1)")
