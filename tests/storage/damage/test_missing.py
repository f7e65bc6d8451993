"""A log that is gone, all or the first part of it, is not taken for one that has never been."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.storage import names
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.space import Space
from kraftlib.types import ElectionState, Endpoint, EpochStart, OffsetRange, ReplicaKey, new_uuid
from tests.storage.builders import segments, some_batches, store_whole_snapshot
from tests.storage.damage.test_repair import fill
from tests.storage.replicas import make_replica, partition_of

SEGMENT_BYTES = 600


def opened(directory: Path, *, tail_bytes: int = 1 << 20) -> FileReplicatedLog:
    return FileReplicatedLog.open(directory, segment_bytes=SEGMENT_BYTES, keep_damage=True, tail_bytes=tail_bytes)


def lived(directory: Path, *, records: int = 12, closed: bool = True, snapshot_at: int | None = None) -> None:
    """Let a replica that has voted append so many batches, in several segments."""
    log = opened(directory)
    store = FileQuorumStateStore(directory)
    store.write(ElectionState(epoch=2, voted_key=ReplicaKey(1)), kraft_version=0, voters=[1, 2, 3])
    for batch in some_batches(*[1] * (records // 2), *[2] * (records - records // 2), size=200):
        log.append([batch])
        log.flush()
    if snapshot_at is not None:
        log.delete_before(store_whole_snapshot(log, snapshot_at, 1 if snapshot_at <= records // 2 else 2))
        log.flush()
    if closed:
        log.close()


def remove(*paths: Path) -> None:
    for path in paths:
        for suffix in (".log", ".index", ".timeindex"):
            path.with_suffix(suffix).unlink(missing_ok=True)


def is_amnesiac(directory: Path) -> bool:
    election = FileQuorumStateStore(directory).read()
    return election is not None and election.amnesiac


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_a_log_without_any_segment_is_as_long_as_it_was_and_all_of_it_is_missing(closed: bool, tmp_path: Path) -> None:
    lived(tmp_path, closed=closed)
    remove(*segments(tmp_path))

    for _ in range(3):  # however often it is started before it is repaired
        log = opened(tmp_path)
        assert log.holes() == (OffsetRange(0, 12),)
        assert (log.start_offset, log.end_offset) == (0, 12)
        assert log.epoch_starts()[-1].epoch == 2
        assert is_amnesiac(tmp_path)
        with pytest.raises(CorruptBatchError):
            log.read(0, 100)
        log.close()


def test_it_is_refused_where_nobody_can_help(tmp_path: Path) -> None:
    lived(tmp_path)
    remove(*segments(tmp_path))

    with pytest.raises(CorruptBatchError, match="no segment left, and its log was durable up to 12"):
        FileReplicatedLog.open(tmp_path)
    assert not is_amnesiac(tmp_path)


def test_what_is_fetched_again_makes_the_log_whole(tmp_path: Path) -> None:
    lived(tmp_path)
    before = b"".join(path.read_bytes() for path in segments(tmp_path))
    remove(*segments(tmp_path))
    log = opened(tmp_path)

    assert log.write_repair(some_batches(*[1] * 6, *[2] * 6, size=200))
    assert log.holes() == ()
    assert [start.start_offset for start in log.epoch_starts()] == [0, 6]
    log.close()
    again = opened(tmp_path)
    assert (again.holes(), again.end_offset) == ((), 12)
    assert b"".join(path.read_bytes() for path in segments(tmp_path)) == before


def test_without_a_note_too_nobody_takes_it_for_a_new_log(tmp_path: Path) -> None:
    """How long it was cannot be told, so it votes for nobody before it has all that is committed."""
    lived(tmp_path)
    remove(*segments(tmp_path))
    (tmp_path / names.SYNC_POINT).unlink()
    log = opened(tmp_path)

    assert (log.is_doubtful, log.end_offset, log.holes()) == (True, 0, ())
    log.close()
    assert is_amnesiac(tmp_path), "a stop before anybody has asked changes nothing"
    assert opened(tmp_path).end_offset == 0


def test_a_log_of_kafkas_that_is_gone_is_noticed_by_its_epochs(tmp_path: Path) -> None:
    lived(tmp_path)
    remove(*segments(tmp_path))
    for path in [*tmp_path.glob("kraftlib*"), tmp_path / names.QUORUM_STATE_MIRROR]:
        path.unlink()
    (tmp_path / names.QUORUM_STATE).write_bytes(
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}'
    )
    assert opened(tmp_path).is_doubtful
    assert is_amnesiac(tmp_path)


def test_a_new_directory_has_lost_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert (log.is_doubtful, log.holes(), log.end_offset) == (False, (), 0)
    assert not is_amnesiac(tmp_path)


def test_a_stop_between_the_removal_of_a_log_and_its_new_beginning_is_no_loss(tmp_path: Path) -> None:
    """The note is lowered before a snapshot of the leader's takes the place of the log."""
    lived(tmp_path, closed=False)
    log = opened(tmp_path)
    log.install_snapshot(store_whole_snapshot(log, 40, 3))
    remove(*segments(tmp_path))

    again = opened(tmp_path)
    assert (again.is_doubtful, again.holes(), again.start_offset, again.end_offset) == (False, (), 40, 40)
    assert not is_amnesiac(tmp_path)


def test_behind_a_snapshot_only_what_followed_it_is_missing(tmp_path: Path) -> None:
    lived(tmp_path, snapshot_at=6)
    remove(*segments(tmp_path))
    log = opened(tmp_path)

    assert log.holes() == (OffsetRange(6, 12),)
    assert log.start_offset == 6
    assert log.write_repair(some_batches(*[2] * 6, base_offset=6, size=200))
    log.close()
    again = opened(tmp_path)
    assert (again.holes(), again.start_offset, again.end_offset) == ((), 6, 12)


@pytest.mark.parametrize("gone", [slice(0, 1), slice(0, 2), slice(1, 2), slice(1, 3), slice(-1, None)])
def test_segments_that_are_gone_are_missing_and_not_forgotten(gone: slice, tmp_path: Path) -> None:
    lived(tmp_path)
    paths = segments(tmp_path)
    assert len(paths) > 3
    bases = [int(path.stem) for path in paths] + [12]
    first, after = bases[gone.indices(len(paths))[0]], bases[gone.indices(len(paths))[1]]
    remove(*paths[gone])

    for _ in range(2):
        log = opened(tmp_path)
        assert log.holes() == (OffsetRange(first, after),)
        assert (log.start_offset, log.end_offset) == (0, 12)
        log.close()
    log = opened(tmp_path)
    fill(log, some_batches(*[1] * 6, *[2] * 6, size=200))
    log.close()
    again = opened(tmp_path)
    assert (again.holes(), again.end_offset, len(again.epoch_starts())) == ((), 12, 2)


def test_what_was_durable_is_no_torn_tail_because_an_empty_segment_stands_behind_it(tmp_path: Path) -> None:
    """A replica that loses power as it begins a segment leaves such a one."""
    lived(tmp_path, closed=False)
    last = segments(tmp_path)[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 50)
    (tmp_path / names.segment_name(12)).touch()

    log = opened(tmp_path)
    assert log.holes() == (OffsetRange(11, 12),)
    assert log.end_offset == 12
    log.close()


def test_a_log_whose_snapshot_is_gone_misses_what_it_stood_for(tmp_path: Path) -> None:
    lived(tmp_path, snapshot_at=7)
    base = int(segments(tmp_path)[0].stem)
    next(tmp_path.glob("*.checkpoint")).unlink()

    log = opened(tmp_path)
    assert log.holes() == (OffsetRange(0, base),)
    assert (log.start_offset, log.end_offset) == (0, 12)
    log.delete_before(store_whole_snapshot(log, 9, 2))
    log.flush()
    assert (log.holes(), log.start_offset) == ((), 9)
    log.append(some_batches(2, base_offset=12))
    log.flush()
    log.close()
    again = opened(tmp_path)
    assert (again.holes(), again.end_offset) == ((), 13)


@pytest.mark.parametrize("at_start", [True, False], ids=["at a start", "while it runs"])
def test_a_log_that_was_one_snapshot_keeps_the_epoch_of_its_end_when_that_is_damaged(
    at_start: bool, tmp_path: Path
) -> None:
    log = opened(tmp_path)
    snapshot_id = store_whole_snapshot(log, 20, 3)
    log.install_snapshot(snapshot_id)
    if at_start:
        log.close()
        next(tmp_path.glob("*.checkpoint")).write_bytes(b"damaged")
        log = opened(tmp_path)
    else:
        log.set_snapshot_aside(snapshot_id, "a test")

    for _ in range(3):  # however often it is started before it is repaired, though nothing but empty segments is left
        assert log.holes() == (OffsetRange(0, 20),)
        assert (log.start_offset, log.end_offset) == (0, 20)
        assert log.epoch_starts() == (EpochStart(epoch=3, start_offset=19),)
        log.close()
        log = opened(tmp_path)
    assert not is_amnesiac(tmp_path)
    assert log.write_repair(some_batches(*[1] * 15, *[3] * 5))
    log.close()
    log = opened(tmp_path)
    assert (log.holes(), log.end_offset, log.epoch_starts()[-1].epoch) == ((), 20, 3)
    log.close()


def test_a_log_that_begins_behind_a_snapshot_of_which_nothing_is_left_costs_the_vote(tmp_path: Path) -> None:
    """Nobody knows the epoch of its last record, so it could vote for a candidate that lacks it."""
    log = opened(tmp_path)
    log.install_snapshot(store_whole_snapshot(log, 20, 3))
    log.close()
    next(tmp_path.glob("*.checkpoint")).unlink()

    log = opened(tmp_path)
    assert (log.is_doubtful, log.end_offset) == (True, 20)
    assert is_amnesiac(tmp_path)
    log.close()


def test_damage_that_a_snapshot_stands_in_for_is_stepped_over_though_the_file_still_has_it(tmp_path: Path) -> None:
    """Only whole segments are deleted: what was damaged may lie before the start, in a file that is still read."""
    lived(tmp_path, closed=False)
    log = opened(tmp_path, tail_bytes=0)
    path = segments(tmp_path)[2]
    base = int(path.stem)
    data = path.read_bytes()
    path.write_bytes(data[:80] + b"?" + data[81:])
    with pytest.raises(CorruptBatchError):
        log.read(base, 100)
    assert log.find_damage(base) == (OffsetRange(base, base + 1),)

    log.delete_before(store_whole_snapshot(log, base + 1, 2 if base >= 6 else 1))
    log.flush()
    assert log.holes() == ()
    assert log.read(base + 1, 100)[0].base_offset == base + 1
    assert log.find_damage(base) == (), "it is not found again and again"
    assert log.read(log.end_offset - 1, 100)
    log.append(some_batches(2, base_offset=log.end_offset))


@pytest.mark.parametrize("is_full", [False, True], ids=["space", "a full disk"])
def test_who_votes_is_known_after_a_restart_before_the_lost_snapshot_is_replaced(
    is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a voter of a dynamic quorum would know of nobody, and not start a second time."""
    voters = [InitialController(id=1, endpoint=Endpoint("host", 1), directory_id=new_uuid())]
    partition = partition_of(make_replica(tmp_path, voters=voters, segment_bytes=400))
    log = FileReplicatedLog.open(partition, segment_bytes=400)
    snapshot_id = log.snapshots()[-1]
    log.delete_before(snapshot_id)
    log.close()
    path = partition / names.checkpoint_name(snapshot_id)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-10])

    known = []
    for _ in range(3):
        log = FileReplicatedLog.open(partition, segment_bytes=400, keep_damage=True)
        assert log.snapshots() == ()
        assert log.holes()
        known.append(log.lost_controls())
        with monkeypatch.context() as patch:
            patch.setattr(Space, "is_full", is_full)
            log.prepare_spare()
        log.close()

    assert known[0] is not None
    assert known[0][0] == snapshot_id
    assert known[1:] == [known[0]] * 2
