"""The one function that decides valid, diverging or snapshot, against all small logs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.consensus.log_view import Diverging, LogView, NeedsSnapshot, Valid
from kraftlib.errors import InvariantError
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.types import BOOTSTRAP_SNAPSHOT, EpochStart, OffsetAndEpoch, OffsetRange
from tests.consensus.build import log_view, voter_set

SMALL_LOGS = [epochs for length in range(5) for epochs in itertools.combinations_with_replacement((1, 2, 3), length)]


def common_prefix(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """How many leading records two logs share, if equal (offset, epoch) means equal records."""
    return next(
        (index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )


@pytest.mark.parametrize("ours", SMALL_LOGS, ids=str)
def test_fetching_ends_with_our_log_from_every_small_log(ours: tuple[int, ...]) -> None:
    """A follower that truncates to what it is told ends on a common prefix, and never loses one (scenario L15).

    An epoch has one leader, and hence one log before its first record: pairs of logs that disagree there cannot occur.
    """
    leader = log_view(*ours)
    for theirs in SMALL_LOGS:
        shared = common_prefix(ours, theirs)
        if any(ours[: ours.index(epoch)] != theirs[: theirs.index(epoch)] for epoch in set(ours) & set(theirs)):
            continue
        follower = log_view(*theirs)
        for _ in range(10):
            judgement = leader.validate(follower.end_offset, follower.last_epoch)
            if isinstance(judgement, Valid):
                break
            assert isinstance(judgement, Diverging)
            own_end = follower.end_for(judgement.end.epoch)
            same = own_end.epoch == judgement.end.epoch
            end = min(own_end.offset, judgement.end.offset) if same else own_end.offset
            assert end < follower.end_offset, f"{theirs} does not shrink towards {ours}"
            assert end >= shared, f"{theirs} loses what it shares with {ours}"
            follower.truncate(end)
        else:
            pytest.fail(f"{theirs} never finds {ours}")

        assert follower.end_offset == shared


def test_an_empty_follower_is_valid_where_the_log_begins_at_zero() -> None:
    """The epoch is not looked at there."""
    assert log_view(1, 2).validate(0, 0) == Valid()
    assert log_view(1, 2).validate(0, 9) == Valid()


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(9, 2), (10, 1), (10, 3), (12, 1)],
    ids=["below the start", "other epoch at the start", "newer epoch at the start", "epoch older than the snapshot"],
)
def test_a_position_that_the_log_cannot_judge_needs_the_snapshot(offset: int, epoch: int) -> None:
    """(offset, epoch) before the log's start, or not the snapshot's own, is answered with the latest snapshot."""
    log = log_view(
        2, 2, 3, start=10, snapshots=(OffsetAndEpoch(offset=10, epoch=2), OffsetAndEpoch(offset=12, epoch=2))
    )

    assert log.validate(offset, epoch) == NeedsSnapshot(OffsetAndEpoch(offset=12, epoch=2))


def test_the_snapshots_own_end_is_valid() -> None:
    """A follower that has just installed it goes on from there."""
    log = log_view(3, start=10, snapshots=(OffsetAndEpoch(offset=10, epoch=2),))

    assert log.validate(10, 2) == Valid()
    assert log.validate(11, 3) == Valid()


def test_the_bootstrap_checkpoint_is_sent_to_nobody() -> None:
    """It holds the first voters of its own replica and no state."""
    log = log_view(1, snapshots=(BOOTSTRAP_SNAPSHOT,))

    assert log.latest_snapshot is None
    assert log.earliest_snapshot == BOOTSTRAP_SNAPSHOT


def test_an_epoch_without_records_disappears_when_the_next_begins_at_its_place() -> None:
    """As in Kafka's epoch checkpoint: a leader that wrote nothing leaves no trace."""
    log = log_view(1)
    log.begin_epoch(2, 1)
    log.begin_epoch(3, 1)

    assert log.epoch_starts == [EpochStart(epoch=1, start_offset=0), EpochStart(epoch=3, start_offset=1)]


def test_a_batch_must_continue_the_log() -> None:
    """A gap or a falling epoch here is a bug of ours: what peers send was checked before."""
    log = log_view(1, 2)

    with pytest.raises(InvariantError, match="does not continue"):
        log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=3, epoch=2)])
    with pytest.raises(InvariantError, match="does not continue"):
        log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=1)])


def test_control_records_count_from_their_append_and_no_longer_than_they_stand() -> None:
    """kraft.version and voters follow the log, committed or not (KIP-853)."""
    log = log_view(1)
    voters = voter_set(1, 2)
    records = [KRaftVersionRecord(kraft_version=1), voters.to_record()]
    log.append([encode_control_batch(records, timestamp_ms=0, base_offset=1, epoch=1)])

    assert log.kraft_version.latest == 1
    assert log.voters.latest == voters
    log.truncate(1)
    assert log.kraft_version.latest == 0
    assert len(log.voters.latest) == 0


def test_voters_that_no_offset_of_the_log_needs_are_forgotten() -> None:
    """Who changes voters for years has a picture of the log as small as on the first day."""
    log = log_view(1)
    for offset in range(1, 6):
        log.append(
            [encode_control_batch([voter_set(1, 1 + offset).to_record()], timestamp_ms=0, base_offset=offset, epoch=1)]
        )
    snapshot = OffsetAndEpoch(offset=4, epoch=1)
    log.snapshots = [snapshot]
    log.delete_before(snapshot)

    assert [log.voters.at(offset).ids for offset in (3, 4, 5)] == [(1, 4), (1, 5), (1, 6)]
    assert log.voters.at(2).ids == (), "nobody asks for it any more"
    log.truncate(4)
    assert log.voters.latest.ids == (1, 4), "the record at the start of the log was not committed"


def test_a_flush_of_an_older_log_version_vouches_for_nothing() -> None:
    """It began before the truncation: what was appended since may not be on disk."""
    log = log_view(1, 1, 1)
    old = log.log_version
    log.truncate(1)
    log.append([encode_batch([b"x", b"y"], timestamp_ms=0, base_offset=1, epoch=2)])
    log.flushed(3, old)
    assert log.flushed_offset == 1
    log.flushed(3, log.log_version)
    assert log.flushed_offset == 3


@given(st.sampled_from(SMALL_LOGS), st.integers(0, 5))
def test_truncation_leaves_the_log_of_its_prefix(epochs: tuple[int, ...], end: int) -> None:
    """Truncating is the same as never having had the rest."""
    end = min(end, len(epochs))
    log = log_view(*epochs)
    log.truncate(end)

    assert (log.end, log.epoch_starts) == (log_view(*epochs[:end]).end, log_view(*epochs[:end]).epoch_starts)


def test_an_installed_snapshot_is_all_there_is() -> None:
    """Start, end and what is flushed stand at its end; its control records replace those of the log."""
    log = log_view(1, 1, 1, voters=voter_set(1, 2, 3))
    version = log.log_version
    log.install(OffsetAndEpoch(offset=10, epoch=4), [KRaftVersionRecord(kraft_version=1), voter_set(7).to_record()])

    assert (log.start_offset, log.end, log.flushed_offset) == (10, OffsetAndEpoch(offset=10, epoch=4), 10)
    assert log.voters.latest.ids == (7,)
    assert log.voters.latest_offset == 9
    assert log.log_version > version


def test_a_newer_snapshot_stays_when_an_older_one_is_installed() -> None:
    """The log had lost its end with the power, and that of the leader begins before our own snapshot."""
    log = log_view(1, 1, 1, voters=voter_set(1, 2, 3))
    installed, newer = OffsetAndEpoch(offset=10, epoch=4), OffsetAndEpoch(offset=12, epoch=4)
    log.add_snapshot(OffsetAndEpoch(offset=2, epoch=1))
    log.add_snapshot(newer)
    log.install(installed, [])

    assert log.snapshots == [installed, newer]


@pytest.mark.parametrize("offset", [4, 12])
def test_an_installed_snapshot_leaves_nothing_of_the_voters_before_be_they_of_an_older_or_of_a_lost_record(
    offset: int,
) -> None:
    """A log that leaves the leader's may name voters beyond the snapshot that replaces it."""
    log = log_view(*[1] * 20, voters=voter_set(1, 2, 3))
    log.voters.add(offset, voter_set(1, 2))
    log.kraft_version.add(offset, 1)
    log.install(OffsetAndEpoch(offset=10, epoch=4), [voter_set(7).to_record()])

    assert [log.voters.at(place).ids for place in (3, 9, 12)] == [(1, 2, 3), (7,), (7,)]
    assert (log.kraft_version.latest, log.kraft_version.latest_offset) == (0, None)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12).map(sorted), st.data())
def test_a_log_that_was_cut_in_front_is_known_as_the_log_itself_knows_it(
    epochs: list[int], data: st.DataObject
) -> None:
    view = log_view(*epochs)
    table = EpochTable()
    for start in view.epoch_starts:
        table.assign(start.epoch, start.start_offset)
    offset = data.draw(st.integers(1, len(epochs)))
    older = OffsetAndEpoch(offset=max(0, offset - 1), epoch=0)
    newest = OffsetAndEpoch(offset=offset, epoch=epochs[offset - 1])
    view.snapshots = [older, newest]
    view.delete_before(newest)
    table.start_at(offset)

    assert (view.start_offset, view.end_offset, view.snapshots) == (offset, len(epochs), [newest])
    assert view.epoch_starts == list(table.starts())
    assert view.last_epoch == epochs[-1]


def test_nobody_can_have_flushed_more_than_there_is() -> None:
    """A mistake of the executor, which must not become a vote or an acknowledgement."""
    log = log_view(1, 1)
    with pytest.raises(InvariantError, match="flushed to 3"):
        log.flushed(3, log.log_version)

    assert log.flushed_offset == 2


def test_a_repaired_log_is_known_with_the_voters_that_stood_in_the_hole() -> None:
    """And not with those from before a snapshot, which says more than they."""
    log = log_view(1, 1, 1, 1, voters=voter_set(1, 2, 3))
    snapshot = OffsetAndEpoch(offset=2, epoch=1)
    log.add_snapshot(snapshot)
    log.observe_snapshot(snapshot, [voter_set(1, 2).to_record()])
    log.holes = [OffsetRange(1, 4)]
    old, new = (
        encode_control_batch([voter_set(*ids).to_record()], timestamp_ms=0, base_offset=offset, epoch=1)
        for offset, ids in ((1, (3,)), (3, (1, 2, 3, 4)))
    )
    log.repaired((), 6, [EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=5)], (old, new))

    assert log.voters.latest == voter_set(1, 2, 3, 4)
    assert log.voters.at(2) == voter_set(1, 2)
    assert (log.holes, log.end, log.flushed_offset) == ([], OffsetAndEpoch(offset=6, epoch=2), 6)


def test_a_repair_that_passes_a_snapshot_of_our_own_reads_the_voters_before_its_end() -> None:
    """It was ahead of a log that had lost its end with the power: the core has read neither of them."""
    log = log_view(1, 1, 1, 1, voters=voter_set(1, 2, 3))
    log.add_snapshot(OffsetAndEpoch(offset=6, epoch=1))
    log.holes = [OffsetRange(2, 4)]
    fourth = encode_control_batch([voter_set(1, 2, 3, 4).to_record()], timestamp_ms=0, base_offset=4, epoch=1)
    log.repaired((), 8, [EpochStart(epoch=1, start_offset=0)], (fourth,))

    assert log.voters.latest == voter_set(1, 2, 3, 4)


def test_the_voters_are_known_from_where_the_log_began_though_it_reaches_back_again() -> None:
    """The snapshot at its start is lost. Older values were forgotten with the records that it had replaced."""
    log = log_view(1, 1, 1, 1, voters=voter_set(1, 2, 3))
    snapshot = OffsetAndEpoch(offset=3, epoch=1)
    log.add_snapshot(snapshot)
    log.voters.add(0, voter_set(1, 2))
    log.voters.add(1, voter_set(1))
    log.delete_before(snapshot)

    assert (log.header_offset, log.voters.at(2)) == (3, voter_set(1))


def test_a_repair_keeps_what_the_header_of_a_snapshot_said_that_is_lost_since() -> None:
    """The core has read only the newest header; the older snapshot that stays is not read anew."""
    log = log_view(1, 1, 1, 1, voters=voter_set(1, 2, 3))
    older, newer = OffsetAndEpoch(offset=2, epoch=1), OffsetAndEpoch(offset=3, epoch=1)
    log.add_snapshot(older)
    log.add_snapshot(newer)
    log.observe_snapshot(newer, [KRaftVersionRecord(kraft_version=1), voter_set(1, 2).to_record()])
    log.delete_before(older)
    log.lose_snapshot(newer)
    log.holes = [OffsetRange(2, 4)]
    log.repaired((), 4, [EpochStart(epoch=1, start_offset=2)], ())

    assert (log.voters.latest, log.kraft_version.latest) == (voter_set(1, 2), 1)


def a_log_cut_before_a_lost_header() -> LogView:
    """Voters 1 and 2 are those of a snapshot that ends at 6, is lost, and ended amid a hole which was cut."""
    log = log_view(1, 1, 1, 1, 1, 1, 1, 1)
    older, newer = OffsetAndEpoch(offset=2, epoch=1), OffsetAndEpoch(offset=6, epoch=1)
    log.add_snapshot(older)
    log.observe_snapshot(newer, [KRaftVersionRecord(kraft_version=1), voter_set(1, 2).to_record()])
    log.delete_before(older)
    log.holes = [OffsetRange(4, 7)]
    log.truncate(4)
    return log


def voters_at(offset: int, *ids: int) -> Batch:
    return encode_control_batch([voter_set(*ids).to_record()], timestamp_ms=0, base_offset=offset, epoch=1)


def test_a_log_that_is_cut_before_a_lost_header_goes_by_the_voters_of_that_header() -> None:
    """They are committed, and no older ones were read; no snapshot may name them before the end of that one."""
    log = a_log_cut_before_a_lost_header()
    assert (log.voters.latest, log.kraft_version.latest, log.voters_known_from) == (voter_set(1, 2), 1, 6)
    log.append([voters_at(4, 1), voters_at(5, 1, 2), voters_at(6, 1, 2, 3)])
    assert (log.voters.at(5), log.voters.latest) == (voter_set(1, 2), voter_set(1, 2, 3))
    log.truncate(5)
    assert log.voters.latest == voter_set(1)
    log.truncate(3)

    assert (log.voters.latest, log.kraft_version.latest) == (voter_set(1, 2), 1)


def test_a_repair_that_goes_on_behind_a_cut_reads_the_voters_before_the_end_of_a_lost_header() -> None:
    """Else those of an older record would stand in a snapshot at its end."""
    log = a_log_cut_before_a_lost_header()
    log.append([voters_at(4, 1)])
    log.holes = [OffsetRange(3, 5)]
    batches = voters_at(4, 1), voters_at(5, 1, 2)
    log.repaired((), 6, [EpochStart(epoch=1, start_offset=2)], batches)

    assert (log.voters.at(4), log.voters.latest) == (voter_set(1), voter_set(1, 2))


def test_a_log_that_is_cut_before_its_first_voter_set_goes_by_the_configured_voters() -> None:
    """No header has told of that set: the quorum was static before."""
    log = log_view(1, 1, 1, 1, voters=voter_set(1, 2, 3))
    log.observe(voters_at(2, 1, 2))
    log.truncate(1)

    assert (log.voters.latest, log.voters.latest_offset) == (voter_set(1, 2, 3), None)
