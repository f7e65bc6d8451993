"""A checkpoint that is put into a fresh directory is one that its replica begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import ConfigError
from kraftlib.storage import names
from kraftlib.storage.bootstrap import first_voters
from kraftlib.storage.directory import format_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.seeding import begin_in, check_voters, is_fresh
from kraftlib.types import ElectionState, Endpoint, new_uuid
from tests.storage.replicas import controllers, make_replica, partition_of


def test_a_fresh_replica_begins_in_the_epoch_of_its_checkpoint_without_a_vote(tmp_path: Path) -> None:
    partition = format_directory(tmp_path / "r", node_id=1, cluster_id="c", static_voters=[1, 2, 3]).partition
    assert is_fresh(partition)
    begin_in(partition, 4, kraft_version=0)
    assert FileQuorumStateStore(partition).read() == ElectionState(epoch=4, static_voters=(1, 2, 3))
    begin_in(partition, 3, kraft_version=0)
    assert FileQuorumStateStore(partition).read() == ElectionState(epoch=4, static_voters=(1, 2, 3))


def test_whoever_has_run_keeps_his_vote(tmp_path: Path) -> None:
    partition = partition_of(make_replica(tmp_path / "r", epoch=3))
    before = (partition / names.QUORUM_STATE).read_bytes()
    assert not is_fresh(partition)
    begin_in(partition, 9, kraft_version=0)
    assert (partition / names.QUORUM_STATE).read_bytes() == before


def test_a_directory_that_is_no_replica_is_left_alone(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / names.PARTITION_DIRECTORY):
        directory.mkdir(exist_ok=True)
        begin_in(directory, 9, kraft_version=0)
        check_voters(directory, first_voters(controllers(7), listener_name="CONTROLLER"))
        assert not (directory / names.QUORUM_STATE).exists()


def test_voters_with_whom_the_replica_would_wait_for_ever_are_refused_with_those_of_its_format(tmp_path: Path) -> None:
    directory_id = new_uuid()
    partition = format_directory(
        tmp_path / "r", node_id=1, cluster_id="c", directory_id=directory_id, standalone=Endpoint("127.0.0.1", 9001)
    ).partition
    for voters in (None, first_voters(controllers(1, 2), listener_name="CONTROLLER")):
        with pytest.raises(ConfigError, match="--voters") as caught:
            check_voters(partition, voters)
        assert "voters=1@127.0.0.1:9001:" in str(caught.value)


def test_a_dynamic_quorum_does_not_become_a_static_one(tmp_path: Path) -> None:
    partition = format_directory(tmp_path / "r", node_id=1, cluster_id="c", static_voters=[1]).partition
    check_voters(partition, None)
    with pytest.raises(ConfigError, match="format it with --standalone or --initial-controllers"):
        check_voters(partition, first_voters(controllers(1), listener_name="CONTROLLER"))


def test_a_replica_that_is_to_join_may_begin_with_the_state_of_others(tmp_path: Path) -> None:
    partition = format_directory(tmp_path / "r", node_id=9, cluster_id="c", no_initial_controllers=True).partition
    check_voters(partition, first_voters(controllers(1, 2, 3), listener_name="CONTROLLER"))
