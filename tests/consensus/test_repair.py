"""A replica whose log has a hole votes by what it once had, does not stand, and fetches what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    AppendToLog,
    DeleteBefore,
    PersistElection,
    SendRequest,
    SetSnapshotAside,
    TruncateLog,
    WriteRepair,
)
from kraftlib.consensus.events import (
    Flushed,
    LogTruncated,
    Repaired,
    RepairRefused,
    RepairWritten,
    RetentionDue,
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotLost,
    StorageFailed,
    TimeoutReached,
)
from kraftlib.consensus.repair import handle_repair_response
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Role
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.types import ElectionState, EpochStart, OffsetAndEpoch, OffsetRange, ReplicaKey
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    ask,
    begin_request,
    fetch_response,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    pending_requests,
    replica,
    reply,
    snapshot_chunk,
    vote_request,
    voter_set,
)

HOLE = OffsetRange(2, 4)


def damaged(*holes: OffsetRange, role: str = "follower", **more: Any) -> Replica:
    """A replica with records 0 to 5, of epochs 1, 1, 1, 2, 2, 2, of which [2, 4) are lost unless told otherwise."""
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3))
    view.holes = list(holes or (HOLE,))
    if role == "follower":
        return follower(log=view, epoch=3, **more)
    return replica(log=view, election=ElectionState(epoch=3), **more)


def position(core: Replica) -> tuple[int, int, int]:
    """Under which id, from where and after which epoch the core fetches from replica 2."""
    request: FetchRequest = outstanding_to(core, 2).request
    partition = request.topics[0].partitions[0]
    return request.replica_state.replica_id, partition.fetch_offset, partition.last_fetched_epoch


def records(*numbers: tuple[int, int]) -> bytes:
    return b"".join(
        bytes(encode_batch([b"x"], timestamp_ms=0, base_offset=offset, epoch=epoch).data) for offset, epoch in numbers
    )


def lead_on(core: Replica, data: bytes = b"", *, epoch: int = 3, **more: Any) -> list[Any]:
    """Let replica 2, the leader, answer; an empty answer is followed by a pause."""
    actions = reply(core, 2, fetch_response(epoch=epoch, leader_id=2, records=data, **more))
    return actions + core.handle(TimeoutReached(), core.state.now_ms + 100)


def written(core: Replica, end_offset: int, epoch: int) -> list[Any]:
    return core.handle(RepairWritten(end_offset=end_offset, epoch=epoch), core.state.now_ms)


def repaired(core: Replica, *holes: OffsetRange) -> list[Any]:
    starts = (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=3))
    event = Repaired(holes=holes, end_offset=6, epoch_starts=starts, control_batches=())
    return core.handle(event, core.state.now_ms)


def votes(core: Replica, last: tuple[int, int], *, pre_vote: bool = False) -> bool:
    response = ask(core, vote_request(epoch=9, last=last, pre_vote=pre_vote), version=2)
    return bool(partition_of(response).vote_granted)


def test_records_that_the_log_has_had_are_taken_from_a_leader_with_voters_that_stand_among_them() -> None:
    """The list of a quorum that was static is still configured: its upgrade is missing, and comes an answer before the
    LeaderChange that names another voter."""
    upgrade = [KRaftVersionRecord(kraft_version=1), voter_set(1, 2, 3, 4).to_record()]
    voters = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in (1, 2, 3, 4))
    first = encode_control_batch(upgrade, timestamp_ms=0, base_offset=2, epoch=2)
    second = encode_control_batch(
        [LeaderChangeMessage(leader_id=2, voters=voters)], timestamp_ms=0, base_offset=4, epoch=3
    )
    view = log_view(1, 1, 2, 2, 3, 3, voters=voter_set(1, 2, 3))
    view.holes = [OffsetRange(2, 6)]
    core = follower(log=view, epoch=3)
    lead_on(core)
    lead_on(core, bytes(first.data))
    written(core, 4, 2)

    actions = lead_on(core, bytes(second.data))

    assert [action.batches for action in actions if isinstance(action, WriteRepair)] == [(second,)]


def test_a_repair_that_finds_no_space_begins_again_after_a_pause() -> None:
    """The disk is full: what was gathered is gone, and the leader is left alone for a while."""
    core = damaged()
    lead_on(core)
    actions = reply(core, 2, fetch_response(epoch=3, leader_id=2, records=records((2, 1))))
    assert isinstance(actions[0], WriteRepair)

    actions = core.handle(RepairRefused("no space"), core.state.now_ms)

    assert [action for action in actions if isinstance(action, SendRequest)] == []
    core.handle(TimeoutReached(), core.state.now_ms + 1_000)
    assert position(core)[1] == 6, "it asks first whether the leader has all that the log ever had"
    lead_on(core)
    assert position(core) == (1, 2, 1)


# Elections ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [False, True])
def test_it_votes_for_nobody_who_may_lack_what_it_once_had(pre_vote: bool) -> None:
    assert not votes(damaged(role="unattached"), (5, 2), pre_vote=pre_vote)
    assert votes(damaged(role="unattached"), (6, 2), pre_vote=pre_vote)


@pytest.mark.parametrize("role", ["follower", "unattached"])
def test_it_does_not_stand(role: str) -> None:
    core = damaged(role=role)
    for _ in range(200):
        core.handle(TimeoutReached(), core.deadline_ms() or core.state.now_ms + 100)

    assert core.role in (Role.FOLLOWER, Role.UNATTACHED)
    assert core.epoch == 3


def test_a_candidate_that_starts_again_with_damage_keeps_its_vote_and_stands_no_more() -> None:
    """It would lead with the vote that it cast for itself, and could neither serve nor append."""
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3))
    view.holes = [HOLE]
    core = replica(log=view, election=ElectionState(epoch=3, voted_key=ReplicaKey(1)))

    assert core.role is Role.UNATTACHED
    assert core.state.election.voted_key == ReplicaKey(1)
    core.handle(TimeoutReached(), 10_000)
    assert core.role is Role.UNATTACHED


def test_a_leader_resigns_when_it_finds_damage() -> None:
    core = leader(1, 1, 1)
    core.handle(StorageFailed((OffsetRange(0, 1),)), core.state.now_ms)

    assert core.role is Role.RESIGNED
    assert core.leader_and_epoch.leader_id is None


def test_a_follower_that_finds_damage_goes_on_following() -> None:
    core = follower(1, 1, 1, epoch=3)
    core.handle(StorageFailed((OffsetRange(0, 1),)), core.state.now_ms)

    assert core.role is Role.FOLLOWER
    assert not core.state.may_stand


def test_who_stands_when_it_finds_damage_stands_no_more() -> None:
    core = replica(1, 1)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role is Role.PROSPECTIVE
    core.handle(StorageFailed((OffsetRange(0, 1),)), core.state.now_ms)

    assert core.role is Role.UNATTACHED


def test_nothing_missing_is_no_damage() -> None:
    core = leader(1, 1)
    core.handle(StorageFailed(()), core.state.now_ms)

    assert core.role is Role.LEADER


# The two steps --------------------------------------------------------------------------------------------------------


def test_it_asks_under_nobodys_name_whether_the_leader_has_all_that_it_had() -> None:
    """Under its own the leader would count it for records that it does not have."""
    core = damaged()

    assert position(core) == (-1, 6, 2)
    assert outstanding_to(core, 2).request.max_wait_ms == 0


def test_then_it_fetches_what_is_missing_and_says_that_it_has_nothing_beyond() -> None:
    core = damaged()
    lead_on(core, high_watermark=6)

    assert position(core) == (1, 2, 1)


def test_what_comes_goes_into_the_hole_and_not_behind_the_log() -> None:
    core = damaged()
    lead_on(core)
    actions = lead_on(core, records((2, 1)), high_watermark=6)
    assert [action.batches[0].base_offset for action in actions if isinstance(action, WriteRepair)] == [2]
    assert not [action for action in actions if isinstance(action, AppendToLog | AdvanceHighWatermark | SendRequest)]

    written(core, 3, 1)
    assert position(core) == (1, 3, 1)
    lead_on(core, records((3, 2), (4, 2), (5, 2), (6, 2)), high_watermark=6)
    repaired(core)
    assert core.state.may_stand
    assert position(core) == (1, 6, 2)


def test_no_more_is_taken_than_the_hole_holds_unless_it_is_at_the_end() -> None:
    """Nobody knows how long that one was."""
    for hole, sent, taken in (
        (HOLE, ((2, 1), (3, 2), (4, 2), (5, 2)), [2, 3]),
        (OffsetRange(5, 6), ((5, 2), (6, 3)), [5, 6]),
    ):
        core = damaged(hole)
        lead_on(core)
        actions = lead_on(core, records(*sent))
        assert [[b.base_offset for b in a.batches] for a in actions if isinstance(a, WriteRepair)] == [taken]


def test_one_hole_after_the_other() -> None:
    core = damaged(OffsetRange(0, 1), HOLE)
    lead_on(core)
    assert position(core) == (1, 0, 0)
    lead_on(core, records((0, 1)))
    repaired(core, HOLE)
    assert position(core) == (-1, 6, 2)
    lead_on(core)
    assert position(core) == (1, 2, 1)
    assert not core.state.may_stand


def test_with_another_leader_it_asks_again() -> None:
    """What the first one sent may be of another history than what the second one confirms."""
    core = damaged()
    lead_on(core)
    lead_on(core, records((2, 1)))
    written(core, 3, 1)
    reply(core, 2, fetch_response(epoch=4, leader_id=3))

    assert core.state.leader_id == 3
    request = outstanding_to(core, 3).request
    assert request.replica_state.replica_id == -1
    assert request.topics[0].partitions[0].fetch_offset == 6


def test_records_of_two_leaders_never_meet_in_one_hole() -> None:
    """Not by the answer of whoever is asked who leads, and does: it may have other records behind what came before."""
    core = damaged()
    lead_on(core)
    lead_on(core, records((2, 1)))
    written(core, 3, 1)
    assert position(core) == (1, 3, 1)

    ask(core, vote_request(epoch=4, replica_id=3, last=(3, 1)), version=2)
    assert core.role is Role.UNATTACHED
    asked = []
    for _ in range(40):
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
        asked += [one.request for one in pending_requests(core)]
        core.state.connections.forget()
        if core.role is not Role.UNATTACHED:
            break
    fetches = [request for request in asked if isinstance(request, FetchRequest)]
    places = {(fetch.replica_state.replica_id, fetch.topics[0].partitions[0].fetch_offset) for fetch in fetches}
    assert places == {(-1, 6)}, "the question whether it has all that we had comes first, under nobody's name"


def test_an_answer_of_another_epoch_fills_nothing() -> None:
    core = damaged()
    lead_on(core)
    state = core.state
    assert state.filling is not None
    state.filling.epoch -= 1

    partition = fetch_response(epoch=3, leader_id=2, records=records((2, 1))).responses[0].partitions[0]
    assert handle_repair_response(state, partition) is None


def test_records_of_the_wrong_place_fill_nothing() -> None:
    core = damaged()
    lead_on(core)
    actions = lead_on(core, records((3, 2)))

    assert not [action for action in actions if isinstance(action, WriteRepair)]
    assert core.state.log.holes == [HOLE]


# A leader that does not have what we had ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("diverging", "end", "holes"),
    [((5, 2), 5, [HOLE]), ((4, 2), 2, []), ((3, 2), 2, []), ((3, 1), 2, []), ((2, 1), 2, []), ((1, 1), 1, [])],
)
def test_what_diverges_is_cut_as_ever_and_a_hole_from_its_start(
    diverging: tuple[int, int], end: int, holes: list[OffsetRange]
) -> None:
    core = damaged()
    actions = lead_on(core, diverging=diverging)

    assert [action.end_offset for action in actions if isinstance(action, TruncateLog)] == [end]
    assert core.state.log.holes == holes


@pytest.mark.parametrize(("diverging", "forgets"), [((4, 2), True), ((3, 1), True), ((2, 1), True), ((5, 2), False)])
def test_a_replica_that_cuts_off_a_hole_votes_for_nobody(diverging: tuple[int, int], forgets: bool) -> None:
    """It has acknowledged records that it cannot read any more, and its shorter log does not say so."""
    core = damaged()
    actions = lead_on(core, diverging=diverging)
    written = [action.election.amnesiac for action in actions if isinstance(action, PersistElection)]

    assert (core.state.amnesia is not None) is forgets
    assert written == [True] * forgets
    assert isinstance(actions[len(written)], TruncateLog)


def test_nothing_committed_is_cut_for_a_hole() -> None:
    core = damaged()
    core.state.committed_offset = 4
    actions = lead_on(core, diverging=(3, 1))

    assert not [action for action in actions if isinstance(action, TruncateLog)]
    assert core.state.log.holes == [HOLE]


def cut_off_a_committed_hole() -> Replica:
    """A replica that knows 4 records to be committed, and has lost [2, 4) with an uncommitted suffix behind it."""
    core = follower(log=log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3)), epoch=3)
    lead_on(core, high_watermark=4)
    core.handle(StorageFailed((HOLE,)), core.state.now_ms)
    lead_on(core)  # an answer to what was asked before the damage
    actions = lead_on(core, diverging=(4, 2))
    assert [action.end_offset for action in actions if isinstance(action, TruncateLog)] == [2]
    assert [action.election.amnesiac for action in actions if isinstance(action, PersistElection)] == [True]
    core.handle(LogTruncated(2), core.state.now_ms)
    core.handle(TimeoutReached(), core.state.now_ms + 1_000)
    return core


def truncated(actions: list[Any]) -> list[int]:
    return [action.end_offset for action in actions if isinstance(action, TruncateLog)]


def test_holes_that_touch_are_cut_off_together() -> None:
    """A log that ended with what the second one lacks could not tell of which epoch its last record is."""
    core = damaged(OffsetRange(1, 3), OffsetRange(3, 5))
    actions = lead_on(core, diverging=(4, 2))

    assert truncated(actions) == [1]
    core.handle(LogTruncated(1), core.state.now_ms)
    assert core.state.log.end == OffsetAndEpoch(epoch=1, offset=1)


def test_a_hole_goes_with_the_batch_behind_it_that_is_cut_as_a_whole() -> None:
    core = damaged(OffsetRange(1, 3))
    assert truncated(lead_on(core, diverging=(4, 2))) == [4]
    again = core.handle(LogTruncated(3), core.state.now_ms)

    assert truncated(again) == [1]
    assert [action.election.amnesiac for action in again if isinstance(action, PersistElection)] == [True]
    core.handle(LogTruncated(1), core.state.now_ms)
    assert core.state.log.end == OffsetAndEpoch(epoch=1, offset=1)


def advanced(actions: list[Any]) -> list[int]:
    return [action.high_watermark for action in actions if isinstance(action, AdvanceHighWatermark)]


def test_a_committed_hole_does_not_keep_what_diverges_behind_it() -> None:
    """The leader's end is not below the high watermark: that the hole goes with it does not leave the log as it is."""
    core = cut_off_a_committed_hole()

    assert position(core) == (-1, 2, 1), "it fetches what is missing, as nobody, and is not stuck"
    assert core.status().high_watermark == 4, "what was committed stays so"


def test_readers_before_a_hole_that_was_cut_off_go_on_when_all_that_is_committed_is_here_again() -> None:
    core = cut_off_a_committed_hole()
    first = lead_on(core, records((2, 1)), high_watermark=4)
    core.handle(Flushed(3, core.state.log.log_version), core.state.now_ms + 1_000)
    second = lead_on(core, records((3, 2)), high_watermark=4)
    core.handle(Flushed(4, core.state.log.log_version), core.state.now_ms + 1_000)

    assert (advanced(first), advanced(second)) == ([], [4])
    assert advanced(lead_on(core, high_watermark=4)) == [], "once"


def test_a_snapshot_of_less_than_was_committed_does_not_let_the_high_watermark_fall() -> None:
    """It begins behind the log that is left, so it is of use; what it lacks is fetched."""
    core = cut_off_a_committed_hole()
    snapshot_id = OffsetAndEpoch(epoch=2, offset=3)
    lead_on(core, snapshot=(3, 2))
    reply(core, 2, snapshot_chunk(b"12345", size=5, snapshot_id=snapshot_id, epoch=3))
    core.handle(SnapshotChunkWritten(snapshot_id, 5), core.state.now_ms)
    actions = core.handle(SnapshotInstalled(snapshot_id, ()), core.state.now_ms)

    assert (advanced(actions), core.status().high_watermark, core.status().log_end_offset) == ([], 4, 3)
    assert advanced(lead_on(core, records((3, 2)), high_watermark=4)) == [4]


def test_voters_that_were_missing_are_known_after_the_repair_though_a_snapshot_is_ahead_of_the_log() -> None:
    """The snapshot was durable when the power went, the end of the log was not. What is left of the log is damaged.

    A replica that counts other voters than its log names would count majorities that need not meet.
    """
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3), snapshots=(OffsetAndEpoch(offset=9, epoch=2),))
    view.holes = [HOLE]
    core = follower(log=view, epoch=3)
    lead_on(core)
    voters = encode_control_batch([voter_set(1, 2).to_record()], timestamp_ms=0, base_offset=2, epoch=1)
    actions = reply(core, 2, fetch_response(epoch=3, leader_id=2, records=bytes(voters.data) + records((3, 2))))
    assert isinstance(actions[0], WriteRepair)
    starts = (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=3))
    core.handle(Repaired(holes=(), end_offset=6, epoch_starts=starts, control_batches=(voters,)), core.state.now_ms)

    assert core.voters.ids == (1, 2)


def test_a_snapshot_that_ends_before_our_log_costs_the_vote_until_all_is_here_again() -> None:
    core = damaged()
    actions = lead_on(core, snapshot=(3, 2))

    assert core.state.election.amnesiac
    assert [action.election.amnesiac for action in actions if isinstance(action, PersistElection)] == [True]
    assert isinstance(core.state.role_state.download, object)


def test_a_snapshot_beyond_our_log_costs_nothing() -> None:
    core = damaged()
    lead_on(core, snapshot=(7, 3))

    assert not core.state.election.amnesiac


# A snapshot in place of what is missing -------------------------------------------------------------------------------


def downloaded(core: Replica, snapshot: tuple[int, int]) -> list[Any]:
    """Let the leader, whose log begins behind the hole, name a snapshot and send it; return what is done with it."""
    lead_on(core)
    core.handle(TimeoutReached(), core.state.now_ms + 100)
    reply(core, 2, fetch_response(epoch=3, leader_id=2, snapshot=snapshot))
    snapshot_id = OffsetAndEpoch(offset=snapshot[0], epoch=snapshot[1])
    reply(core, 2, snapshot_chunk(b"12345", size=5, snapshot_id=snapshot_id, epoch=3))
    return core.handle(SnapshotChunkWritten(snapshot_id, 5), core.state.now_ms)


def adopted(core: Replica, snapshot: tuple[int, int], *holes: OffsetRange) -> list[Any]:
    snapshot_id = OffsetAndEpoch(offset=snapshot[0], epoch=snapshot[1])
    event = SnapshotAdopted(snapshot_id=snapshot_id, controls=(), holes=holes, control_batches=())
    return core.handle(event, core.state.now_ms)


def test_where_the_leaders_log_begins_later_its_snapshot_stands_in_and_the_rest_of_the_log_stays() -> None:
    """Nothing that was acknowledged is given up for it, so it may vote as before."""
    core = damaged()
    actions = downloaded(core, (5, 2))
    assert AdoptSnapshot(OffsetAndEpoch(offset=5, epoch=2)) in actions
    assert core.state.amnesia is None

    assert AdvanceHighWatermark(5) in adopted(core, (5, 2))
    assert (core.state.log.start_offset, core.state.log.end_offset, core.state.log.holes) == (5, 6, [])
    assert core.state.may_stand
    assert position(core) == (1, 6, 2)


def test_it_stands_in_also_below_what_is_known_to_be_committed() -> None:
    core = damaged()
    core.state.committed_offset = 6
    assert AdoptSnapshot(OffsetAndEpoch(offset=4, epoch=2)) in downloaded(core, (4, 2))


def test_a_hole_behind_the_snapshot_is_left() -> None:
    behind = OffsetRange(5, 6)
    core = damaged(OffsetRange(0, 1), behind)
    assert AdoptSnapshot(OffsetAndEpoch(offset=4, epoch=2)) in downloaded(core, (4, 2))
    adopted(core, (4, 2), behind)
    assert core.state.log.holes == [behind]
    assert not core.state.may_stand


def test_a_snapshot_that_ends_amid_what_is_missing_leaves_the_rest_of_that() -> None:
    """Also below what is known to be committed; a leader with no newer one would leave us as we are for ever."""
    core = damaged()
    core.state.committed_offset = 6
    (hole,) = core.state.log.holes
    assert hole.start_offset < 3 < hole.end_offset
    assert AdoptSnapshot(OffsetAndEpoch(offset=3, epoch=1)) in downloaded(core, (3, 1))
    rest = OffsetRange(3, hole.end_offset)
    adopted(core, (3, 1), rest)
    assert (core.state.log.start_offset, core.state.log.end_offset, core.state.log.holes) == (3, 6, [rest])
    assert position(core) == (-1, 6, 2)  # it asks again whether the leader has all of it
    lead_on(core)
    assert position(core) == (1, 3, 1)


def test_a_snapshot_of_another_epoch_replaces_the_log() -> None:
    """And with it what was acknowledged behind: until that is here again it votes for nobody."""
    core, snapshot = damaged(), (5, 3)
    lead_on(core)
    core.handle(TimeoutReached(), core.state.now_ms + 100)
    reply(core, 2, fetch_response(epoch=3, leader_id=2, snapshot=snapshot))
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.download is not None
    assert not role.download.fills
    assert core.state.amnesia is not None


# Snapshots that are not whole -----------------------------------------------------------------------------------------


def with_snapshot(core: Replica, offset: int, epoch: int) -> OffsetAndEpoch:
    snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
    core.state.log.add_snapshot(snapshot_id)
    core.state.log.delete_before(snapshot_id)
    return snapshot_id


def test_a_damaged_snapshot_is_named_to_nobody_and_set_aside() -> None:
    core = leader(1, 1, 1, 1)
    snapshot_id = OffsetAndEpoch(offset=2, epoch=1)
    core.state.log.add_snapshot(snapshot_id)
    actions = core.handle(SnapshotDamaged(snapshot_id, "torn"), core.state.now_ms)

    assert SetSnapshotAside(snapshot_id, "torn") in actions
    assert core.state.log.latest_snapshot is None
    assert not core.handle(SnapshotDamaged(snapshot_id, "torn"), core.state.now_ms)
    core.handle(lost(core, snapshot_id), core.state.now_ms)
    assert core.role is Role.LEADER, "the log has everything"


def lost(core: Replica, snapshot_id: OffsetAndEpoch, *holes: OffsetRange) -> SnapshotLost:
    starts = tuple(core.state.log.epoch_starts)
    start_offset = 0 if holes else core.state.log.start_offset
    return SnapshotLost(snapshot_id=snapshot_id, start_offset=start_offset, epoch_starts=starts, holes=holes)


def test_a_leader_whose_only_snapshot_is_lost_leads_no_more_until_another_stands_in() -> None:
    core = leader(1, 1, 1, 1)
    snapshot_id = with_snapshot(core, 2, 1)
    core.handle(SnapshotDamaged(snapshot_id, "torn"), core.state.now_ms)
    core.handle(lost(core, snapshot_id, OffsetRange(0, 2)), core.state.now_ms)
    assert core.role is Role.RESIGNED
    assert not core.state.may_stand

    core.state.committed_offset = 4
    newer = OffsetAndEpoch(offset=4, epoch=1)
    actions = core.handle(SnapshotCreated(newer), core.state.now_ms)
    assert DeleteBefore(newer) in actions
    assert (core.state.log.holes, core.state.log.start_offset) == ([], 4)
    assert core.state.may_stand


def only_a_snapshot() -> tuple[Replica, OffsetAndEpoch]:
    """A replica without records: all that it has is the snapshot 20@3, which it has acknowledged."""
    snapshot_id = OffsetAndEpoch(offset=20, epoch=3)
    view = log_view(start=20, snapshots=(snapshot_id,), voters=voter_set(1, 2, 3))
    return replica(log=view, election=ElectionState(epoch=3)), snapshot_id


def set_aside(core: Replica, snapshot_id: OffsetAndEpoch) -> None:
    event = SnapshotLost(snapshot_id=snapshot_id, start_offset=0, epoch_starts=(), holes=(OffsetRange(0, 20),))
    core.handle(event, core.state.now_ms)


@pytest.mark.parametrize("is_set_aside", [False, True])
def test_a_log_that_was_one_snapshot_keeps_the_epoch_of_its_end_when_that_is_lost(is_set_aside: bool) -> None:
    """A candidate with older records lacks what was acknowledged, also while the file is being set aside."""
    core, snapshot_id = only_a_snapshot()
    core.handle(SnapshotDamaged(snapshot_id, "torn"), core.state.now_ms)
    if is_set_aside:
        set_aside(core, snapshot_id)

    assert not votes(core, (5, 1))
    assert not votes(core, (30, 2))
    assert votes(core, (20, 3))


def test_a_lost_snapshot_is_fetched_again_from_a_leader_that_has_all_that_it_stood_for() -> None:
    """The leader is asked with the epoch of the snapshot; its own older one may stand in for what is missing."""
    core, snapshot_id = only_a_snapshot()
    core.handle(SnapshotDamaged(snapshot_id, "torn"), core.state.now_ms)
    set_aside(core, snapshot_id)
    ask(core, begin_request(epoch=4), version=1)
    assert position(core) == (-1, 20, 3)
    lead_on(core, epoch=4)
    assert position(core)[:2] == (1, 0)
    reply(core, 2, fetch_response(epoch=4, leader_id=2, snapshot=(15, 2)))

    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.download is not None
    assert role.download.fills


def test_a_replica_that_starts_without_the_epoch_of_its_last_record_votes_for_nobody() -> None:
    """A leader that is asked with epoch 0 answers that everything diverges: what is cut then was acknowledged."""
    view = log_view(start=20, voters=voter_set(1, 2, 3))
    view.start_offset, view.holes = 0, [OffsetRange(0, 20)]
    core = replica(log=view, election=ElectionState(epoch=3, leader_id=2))
    assert core.state.election.amnesiac
    assert not votes(core, (20, 3))

    core = replica(log=view, election=ElectionState(epoch=3, leader_id=2))
    actions = lead_on(core, diverging=(0, 0))
    assert [action.end_offset for action in actions if isinstance(action, TruncateLog)] == [0]
    assert not votes(core, (5, 1))


def test_what_is_not_committed_stands_in_for_nothing() -> None:
    core = damaged(OffsetRange(0, 2))
    core.handle(SnapshotCreated(OffsetAndEpoch(offset=5, epoch=2)), core.state.now_ms)
    assert core.state.log.holes == [OffsetRange(0, 2)]


def test_nothing_is_deleted_amid_what_is_missing() -> None:
    core = damaged()
    core.state.committed_offset = 6
    core.state.log.add_snapshot(OffsetAndEpoch(offset=1, epoch=1))
    core.state.log.add_snapshot(OffsetAndEpoch(offset=3, epoch=1))
    assert not core.handle(RetentionDue(OffsetAndEpoch(offset=3, epoch=1)), core.state.now_ms)
    core.state.log.add_snapshot(OffsetAndEpoch(offset=5, epoch=2))
    assert core.handle(RetentionDue(OffsetAndEpoch(offset=5, epoch=2)), core.state.now_ms)
    assert core.state.log.holes == []


def test_a_candidate_that_finds_damage_leaves_the_epoch_in_which_it_voted_for_itself() -> None:
    core = replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))
    assert core.role is Role.CANDIDATE
    core.handle(StorageFailed((OffsetRange(0, 1),)), core.state.now_ms)

    assert (core.role, core.epoch) == (Role.UNATTACHED, 6)


def test_a_voter_without_a_leader_stands_again_once_its_log_is_whole() -> None:
    """It had no election timer while it could not stand."""
    core = damaged(role="unattached")
    assert core.state.role_state.election_deadline_ms is None  # type: ignore[union-attr]
    starts = (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=3))
    core.handle(Repaired(holes=(), end_offset=6, epoch_starts=starts, control_batches=()), core.state.now_ms)
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)

    assert core.role is Role.PROSPECTIVE


def test_it_says_which_records_it_is_repairing() -> None:
    assert damaged(HOLE, OffsetRange(5, 6)).state.abstains == "repairing [2, 4), [5, 6)"


def test_what_a_snapshot_has_is_not_missing_and_costs_no_leadership() -> None:
    core = leader(1, 1, 1)
    core.state.committed_offset = core.state.high_watermark = 3
    core.state.log.add_snapshot(OffsetAndEpoch(offset=2, epoch=1))
    actions = core.handle(StorageFailed((), OffsetAndEpoch(offset=2, epoch=1)), core.state.now_ms)

    assert core.role is Role.LEADER
    assert core.state.log.start_offset == 2
    assert core.state.log.holes == []
    assert AdvanceHighWatermark(3) in actions
