"""`kraftlib recover`: refuses while a majority is there; else says what may be lost, and lets the best one go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib import blocking
from kraftlib.config import RaftConfig
from kraftlib.errors import ElectionStateLostError
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.types import LAST_EPOCH, ElectionState, Endpoint
from tests.cli.conftest import Command
from tests.ports import free_port
from tests.storage.replicas import CLUSTER, controllers, make_replica

VOTERS = controllers(1, 2, 3, 4, 5)


def test_it_refuses_while_a_majority_is_there(kraftlib: Command, tmp_path: Path) -> None:
    directories = [make_replica(tmp_path / str(n), n, voters=VOTERS) for n in (1, 2, 3)]
    before = [(directory / "__cluster_metadata-0" / "quorum-state").read_bytes() for directory in directories]
    result = kraftlib("recover", *directories, "--advertised", "127.0.0.1:9001")
    assert result.status == 1
    assert "3 of 5 voters are here, a majority" in result.err
    assert [(each / "__cluster_metadata-0" / "quorum-state").read_bytes() for each in directories] == before


def test_a_dry_run_says_all_and_does_nothing(kraftlib: Command, tmp_path: Path) -> None:
    short = make_replica(tmp_path / "1", 1, records=10, checkpoint=None, voters=VOTERS)
    long = make_replica(tmp_path / "2", 2, records=20, voters=VOTERS)
    told = json.loads(kraftlib("recover", short, long, "--dry-run", "--output", "json").out)
    assert (told["best"], told["majority"], told["may_be_lost_from"], told["end"]) == (2, False, 21, None)
    assert [replica["end_offset"] for replica in told["replicas"]] == [11, 21]
    result = kraftlib("recover", short, long, "--dry-run")
    assert "may be lost: the records that the lost voters have acknowledged from offset 21 on" in result.out
    assert "without --dry-run it would go on alone in epoch 4" in result.out
    result = kraftlib("recover", short, long)
    assert "the address of node 2 is unknown: add --advertised" in result.err


def test_the_best_replica_goes_on_alone(kraftlib: Command, tmp_path: Path) -> None:
    port = free_port()
    short = make_replica(tmp_path / "1", 1, records=10, checkpoint=None, voters=VOTERS)
    long = make_replica(tmp_path / "2", 2, records=20, voters=VOTERS)
    result = kraftlib("recover", short, long, "--advertised", f"127.0.0.1:{port}")
    assert result.status == 0, result.err
    assert "node 2 is the only voter now" in result.out
    config = RaftConfig(node_id=2, directory=long, listen=Endpoint("127.0.0.1", port))
    with blocking.RaftClient(config) as client:
        leader = client.wait_for_leader(timeout_ms=20_000)
        assert leader.leader_id == 2
        assert leader.epoch > 4
        client.append_one(b"life goes on")
        assert client.log_end_offset() > 23
        follows = RaftConfig(node_id=9, cluster_id=CLUSTER, bootstrap_servers=(Endpoint("127.0.0.1", port),))
        with blocking.RaftClient(follows) as observer:
            observer.wait_for_offset(client.log_end_offset() - 1, timeout_ms=20_000)
            assert [voter.id for voter in observer.status().voters] == [2]


def test_a_static_quorum_goes_on_with_its_configuration(kraftlib: Command, tmp_path: Path) -> None:
    directory = make_replica(tmp_path / "2", 2)
    voters = "1@h:1,2@h:2,3@h:3"
    assert "name them with --voters" in kraftlib("recover", directory, "--dry-run").err
    result = kraftlib("recover", directory, "--voters", voters)
    assert result.status == 0, result.err
    assert "set `voters` to it alone in its configuration" in result.out


def forget_vote(directory: Path) -> None:
    (directory / "__cluster_metadata-0" / "quorum-state").unlink()


def test_a_sole_voter_that_has_lost_its_vote_goes_on(kraftlib: Command, tmp_path: Path) -> None:
    """It does not start, and nobody else can tell what it voted for: the error names this command."""
    port = free_port()
    directory = make_replica(tmp_path / "1", 1, records=20, voters=controllers(1))
    config = RaftConfig(node_id=1, directory=directory, listen=Endpoint("127.0.0.1", port))
    forget_vote(directory)
    with pytest.raises(ElectionStateLostError, match="`kraftlib recover DIR --advertised HOST:PORT`"):
        blocking.RaftClient(config).start()
    told = kraftlib("recover", directory, "--dry-run")
    assert "its vote is lost" in told.out
    assert "no acknowledged record is lost" in told.out

    result = kraftlib("recover", directory, "--advertised", f"127.0.0.1:{port}")
    assert result.status == 0, result.err
    with blocking.RaftClient(config) as client:
        assert client.wait_for_leader(timeout_ms=20_000).leader_id == 1
        client.append_one(b"life goes on")


def test_voters_that_have_lost_their_votes_are_no_majority(kraftlib: Command, tmp_path: Path) -> None:
    """They wait for a leader; the others are too few to elect one."""
    directories = [make_replica(tmp_path / str(n), n, voters=VOTERS) for n in (1, 2, 3)]
    forget_vote(directories[0])
    told = json.loads(kraftlib("recover", *directories, "--dry-run", "--output", "json").out)

    assert (told["majority"], told["present"]) == (False, [1, 2, 3])
    assert [replica["has_lost_vote"] for replica in told["replicas"]] == [True, False, False]


def use_up_epochs(directory: Path) -> None:
    partition = directory / "__cluster_metadata-0"
    store = FileQuorumStateStore(partition)
    store.read()
    store.write(ElectionState(epoch=LAST_EPOCH), kraft_version=1)
    store.close()


def test_a_quorum_whose_epochs_are_used_up_goes_on(kraftlib: Command, tmp_path: Path) -> None:
    """All of its voters are there, and none may stand: a stranger has raised their epochs to the last one."""
    port = free_port()
    directories = [make_replica(tmp_path / str(n), n, records=20, voters=controllers(1, 2, 3)) for n in (1, 2, 3)]
    for directory in directories:
        use_up_epochs(directory)
    told = kraftlib("recover", *directories, "--dry-run")
    assert "no acknowledged record is lost" in told.out
    assert "in epoch 4; the epochs of this quorum are used up, so no epoch fences the others" in told.out
    result = kraftlib("recover", *directories, "--advertised", f"127.0.0.1:{port}")
    assert result.status == 0, result.err

    best = json.loads(kraftlib("recover", *directories, "--dry-run", "--output", "json").out)["best"]
    config = RaftConfig(node_id=best, directory=tmp_path / str(best), listen=Endpoint("127.0.0.1", port))
    with blocking.RaftClient(config) as client:
        leader = client.wait_for_leader(timeout_ms=20_000)
        assert (leader.leader_id, leader.epoch) == (best, 5)
        client.append_one(b"life goes on")


def test_one_voter_whose_epochs_are_used_up_is_no_reason(kraftlib: Command, tmp_path: Path) -> None:
    directories = [make_replica(tmp_path / str(n), n, voters=controllers(1, 2, 3)) for n in (1, 2, 3)]
    use_up_epochs(directories[0])
    result = kraftlib("recover", *directories, "--dry-run")
    assert "2 of 3 voters are here, a majority" in result.err
