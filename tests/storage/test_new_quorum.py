"""A log goes on under other voters, in an epoch beyond all it has seen; everybody who does it does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError, InvariantError
from kraftlib.offline.lost_quorum import read_remains
from kraftlib.storage import files, names
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.new_quorum import begin_new_quorum
from kraftlib.types import ElectionState, OffsetAndEpoch, ReplicaKey
from tests.storage.replicas import controllers, make_replica, partition_of


def test_the_new_voters_stand_in_the_log_and_the_vote_is_of_their_epoch(tmp_path: Path) -> None:
    directory = make_replica(tmp_path)
    partition = partition_of(directory)
    before = (partition / names.segment_name(0)).read_bytes()
    end = begin_new_quorum(partition, epoch=9, timestamp_ms=77, controllers=controllers(1, 2))

    assert end.epoch == 9
    remains = read_remains(directory)
    assert (remains.end, remains.kraft_version, remains.vote_epoch) == (end, 1, 9)
    assert remains.voters == tuple(ReplicaKey(each.id, each.directory_id) for each in controllers(1, 2))
    assert (partition / names.segment_name(0)).read_bytes()[: len(before)] == before, "nothing was taken away"
    store = FileQuorumStateStore(partition, log_epoch=9)
    election = store.read()
    store.close()
    assert election is not None
    assert (election.epoch, election.amnesiac) == (9, False)


def test_a_stop_behind_the_new_vote_makes_no_amnesiac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What mirrors the vote of before is of a later generation than the new one."""
    partition = partition_of(make_replica(tmp_path))
    store = FileQuorumStateStore(partition)
    for epoch in (4, 5, 6):
        store.write(ElectionState(epoch=epoch), kraft_version=1)

    really = files.replace_file

    def write_and_stop(path: Path, data: bytes, **more: Any) -> None:
        really(path, data, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "replace_file", write_and_stop)
    with pytest.raises(KeyboardInterrupt):
        begin_new_quorum(partition, epoch=9, timestamp_ms=77, controllers=controllers(1, 2))

    assert FileQuorumStateStore(partition).read() == ElectionState(epoch=9)


def test_equal_logs_stay_equal(tmp_path: Path) -> None:
    logs = []
    for name in ("a", "b"):
        partition = partition_of(make_replica(tmp_path / name))
        begin_new_quorum(partition, epoch=9, timestamp_ms=77, controllers=controllers(1, 2))
        logs.append((partition / names.segment_name(0)).read_bytes())
    assert logs[0] == logs[1]


def test_a_static_quorum_has_its_voters_in_the_configuration(tmp_path: Path) -> None:
    directory = make_replica(tmp_path)
    end = begin_new_quorum(partition_of(directory), epoch=4, timestamp_ms=0, static_voters=[1])
    remains = read_remains(directory)
    assert (remains.end, remains.kraft_version, remains.voters) == (end, 0, ())


def test_it_needs_voters_and_a_newer_epoch(tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path))
    with pytest.raises(ConfigError, match="name the voters"):
        begin_new_quorum(partition, epoch=9, timestamp_ms=0)
    with pytest.raises(InvariantError):
        begin_new_quorum(partition, epoch=3, timestamp_ms=0, static_voters=[1])
    claim = claim_directory(tmp_path)
    claim.lock.release()
    log = FileReplicatedLog.open(partition)
    assert log.snapshots() == (OffsetAndEpoch(offset=11, epoch=3),) or log.snapshots()
    log.close()
