"""What is left of a quorum: the most complete log is named, and a majority is never overruled."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kraftlib.errors import ConfigError, DirectoryInUseError
from kraftlib.offline.lost_quorum import judge, read_remains
from kraftlib.storage import names
from kraftlib.storage.claim import claim_directory
from tests.storage.replicas import controllers, make_replica, partition_of

VOTERS = controllers(1, 2, 3)


def test_the_most_complete_is_that_of_the_newest_epoch_and_then_the_longest(tmp_path: Path) -> None:
    long = read_remains(make_replica(tmp_path / "1", 1, records=40, epoch=2, voters=VOTERS))
    new = read_remains(make_replica(tmp_path / "2", 2, records=20, epoch=5, voters=VOTERS))
    verdict = judge([long, new])
    assert verdict.best is new
    assert verdict.epoch == 6
    assert [key.id for key in verdict.present] == [1, 2]
    assert verdict.has_majority
    alone = judge([long])
    assert (alone.best, alone.has_majority, alone.kraft_version) == (long, False, 1)


def test_a_replica_with_another_disk_is_no_voter(tmp_path: Path) -> None:
    other = controllers(1, 2, 3)[0]
    stranger = make_replica(tmp_path / "1", 1, voters=[*VOTERS])
    remains = read_remains(stranger)
    assert remains.key.directory_id == other.directory_id
    make_replica(tmp_path / "2", 2, voters=VOTERS)
    properties = tmp_path / "2" / names.META_PROPERTIES
    text = properties.read_text()
    directory_id = next(line for line in text.splitlines() if line.startswith("directory.id"))
    properties.write_text(text.replace(directory_id, "directory.id=AAAAAAAAAAAAAAAAAAAP_w"))
    verdict = judge([remains, read_remains(tmp_path / "2")])
    assert [key.id for key in verdict.present] == [1]
    assert not verdict.has_majority


def test_a_damaged_log_counts_for_nothing_but_its_epoch(tmp_path: Path) -> None:
    whole = read_remains(make_replica(tmp_path / "1", 1, voters=VOTERS))
    segment = partition_of(make_replica(tmp_path / "2", 2, epoch=8, voters=VOTERS)) / names.segment_name(0)
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)
    for side_file in partition_of(tmp_path / "2").glob("kraftlib-*.json"):
        side_file.unlink()  # else the start does not even look there
    hurt = read_remains(tmp_path / "2")
    assert hurt.damage is not None
    verdict = judge([whole, hurt])
    assert (verdict.best, verdict.epoch, verdict.has_majority) == (whole, 9, False)
    with pytest.raises(ConfigError, match="no log among these"):
        judge([hurt])


def test_static_voters_are_known_to_the_configuration_only(tmp_path: Path) -> None:
    remains = read_remains(make_replica(tmp_path / "1", 1))
    with pytest.raises(ConfigError, match="name them with --voters"):
        judge([remains])
    assert not judge([remains], static_voters=[1, 2, 3]).has_majority
    assert judge([attrs.evolve(remains, static_voters=())], static_voters=[1]).has_majority


@pytest.mark.parametrize("voters", [[1], [1, 4, 5], [1, 2, 3, 4]])
def test_static_voters_that_the_best_replica_did_not_run_with_are_refused(tmp_path: Path, voters: list[int]) -> None:
    """With 1, 4 and 5 for 1, 2 and 3, the replicas 1 and 2 would seem to be a minority."""
    remains = [read_remains(make_replica(tmp_path / f"{number}", number)) for number in (1, 2)]
    assert judge(remains, static_voters=[3, 2, 1]).has_majority
    with pytest.raises(ConfigError, match=r"and node 1 ran with \[1, 2, 3\]"):
        judge(remains, static_voters=voters)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    one = read_remains(make_replica(tmp_path / "1", 1, voters=VOTERS))
    with pytest.raises(ConfigError, match="the same node"):
        judge([one, one])
    properties = (make_replica(tmp_path / "2", 2, voters=VOTERS)) / names.META_PROPERTIES
    properties.write_text(properties.read_text().replace("old-cluster", "another"))
    with pytest.raises(ConfigError, match="several clusters"):
        judge([one, read_remains(tmp_path / "2")])


def test_a_running_replica_is_left_alone(tmp_path: Path) -> None:
    directory = make_replica(tmp_path / "1", 1)
    claim = claim_directory(directory)
    with pytest.raises(DirectoryInUseError):
        read_remains(directory)
    claim.lock.release()
