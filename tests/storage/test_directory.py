from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, DirectoryInUseError, NotFormattedError, StorageError
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import directory as module
from kraftlib.storage.bootstrap import parse_initial_controllers
from kraftlib.storage.directory import OpenDirectory, format_directory, open_directory
from kraftlib.storage.lock import DirectoryLock
from kraftlib.testing.log_contract import fill, read_all
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ElectionState, Endpoint, ReplicaKey, parse_uuid

DATA = Path(__file__).parent.parent / "data"
HERE = Endpoint("127.0.0.1", 9093)
CONTROLLERS = parse_initial_controllers(
    "1@127.0.0.1:9093:e9MFl328Q-S5WPDKSl6znA,2@127.0.0.1:9094:HouIQHL9Tn-_Z_4x-N7e3Q"
)


def formatted(path: Path, **settings: Any) -> Path:
    format_directory(path, node_id=1, cluster_id="c", **settings)
    return path


def opened(path: Path, **settings: Any) -> OpenDirectory:
    return open_directory(RaftConfig(node_id=1, directory=path, **settings))


def tree(path: Path) -> dict[str, int]:
    """Return every path below and its mode."""
    return {str(p.relative_to(path)): p.stat().st_mode & 0o777 for p in path.rglob("*")}


# Formatting ---------------------------------------------------------------------------------------


def test_a_replica_of_a_static_quorum_gets_what_kafka_writes_and_an_empty_election_state(tmp_path: Path) -> None:
    path = formatted(tmp_path / "new" / "data", static_voters=[1, 2, 3])

    assert tree(path) == {
        "meta.properties": 0o600,
        "bootstrap.checkpoint": 0o600,
        "__cluster_metadata-0": 0o700,
        "__cluster_metadata-0/quorum-state": 0o600,
    }
    assert path.stat().st_mode & 0o777 == path.parent.stat().st_mode & 0o777 == 0o700
    state = (path / "__cluster_metadata-0" / "quorum-state").read_text()
    assert state.startswith(
        '{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0,'
    )


def test_a_standalone_replica_is_its_own_first_voter(tmp_path: Path) -> None:
    done = format_directory(tmp_path, node_id=7, cluster_id="c", standalone=HERE, listener_name="Raft")

    assert done.meta.directory_id is not None
    checkpoint = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    assert checkpoint.stat().st_mode & 0o777 == 0o400
    (voter,) = voters_of(tmp_path, node_id=7)
    assert (voter.voter_id, voter.voter_directory_id) == (7, done.meta.directory_id)
    (endpoint,) = voter.endpoints
    assert (endpoint.name, endpoint.host, endpoint.port) == ("RAFT", "127.0.0.1", 9093)


def voters_of(path: Path, node_id: int = 1) -> list[Any]:
    """Return the voters that the first checkpoint names."""
    open_one = open_directory(RaftConfig(node_id=node_id, directory=path))
    assert list(open_one.log.snapshots()) == [BOOTSTRAP_SNAPSHOT]
    with SnapshotReader(open_one.log.open_snapshot(BOOTSTRAP_SNAPSHOT), epoch=0) as reader:
        assert reader.kraft_version == 1
        assert reader.voters is not None
        voters = list(reader.voters.voters)
    open_one.close()
    return voters


def test_an_initial_controller_takes_its_directory_id_from_the_list(tmp_path: Path) -> None:
    done = format_directory(tmp_path, node_id=1, cluster_id="c", initial_controllers=CONTROLLERS)

    assert done.meta.directory_id == parse_uuid("e9MFl328Q-S5WPDKSl6znA")
    assert [voter.voter_id for voter in voters_of(tmp_path)] == [1, 2]


def test_a_replica_that_will_be_added_has_no_voters(tmp_path: Path) -> None:
    path = formatted(tmp_path, no_initial_controllers=True)

    assert opened(path).log.snapshots() == ()


def test_every_format_draws_another_directory_id(tmp_path: Path) -> None:
    assert (
        format_directory(tmp_path / "a", node_id=1, cluster_id="c").meta.directory_id
        != format_directory(tmp_path / "b", node_id=1, cluster_id="c").meta.directory_id
    )


def test_modes_can_be_those_of_a_directory_shared_with_kafka(tmp_path: Path) -> None:
    path = formatted(tmp_path / "data", standalone=HERE, file_mode=0o640)

    assert path.stat().st_mode & 0o777 == 0o750
    assert set(tree(path).values()) == {0o640, 0o440, 0o750}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"standalone": HERE, "no_initial_controllers": True}, "choose one"),
        ({"static_voters": [1], "initial_controllers": CONTROLLERS}, "choose one"),
        ({"initial_controllers": CONTROLLERS[1:]}, "node_id=1 is not among the initial controllers 2@127"),
        ({"initial_controllers": [CONTROLLERS[0]] * 2}, "stands there twice"),
        ({"initial_controllers": CONTROLLERS, "directory_id": uuid.UUID(int=1 << 99)}, "but the list has 1@127"),
        ({"directory_id": uuid.UUID(int=99)}, "directory_id=AAAAAAAAAAAAAAAAAAAAYw is reserved"),
        ({"standalone": Endpoint("localhost", 0)}, "localhost:0: others must know the port"),
        ({"node_id": -1}, "node_id=-1"),
        ({"cluster_id": ""}, "cluster_id=''"),
        ({"cluster_id": "a\nb"}, r"cluster_id='a\\nb'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        format_directory(tmp_path / "data", **{"node_id": 1, "cluster_id": "c", **settings})
    assert os.listdir(tmp_path) == []


def test_a_formatted_directory_is_left_alone(tmp_path: Path) -> None:
    path = formatted(tmp_path, standalone=HERE)
    before = tree(path)

    with pytest.raises(StorageError, match=f"{path} is formatted already, for node 1 of cluster 'c'"):
        formatted(path)
    again = format_directory(path, node_id=1, cluster_id="c", ignore_formatted=True)
    assert not again.is_new
    with pytest.raises(ConfigError, match="node_id=2"):
        format_directory(path, node_id=2, cluster_id="c", ignore_formatted=True)
    assert tree(path) == before


@pytest.mark.parametrize("fails", ["records_checkpoint", "write_meta_properties"])
def test_a_format_that_was_cut_off_may_be_repeated(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(module, fails, failing)
    with pytest.raises(StorageError, match="the disk is full"):
        formatted(tmp_path, standalone=HERE)
    monkeypatch.undo()
    with pytest.raises(NotFormattedError):
        opened(tmp_path)

    done = format_directory(tmp_path, node_id=1, cluster_id="c", standalone=HERE)
    assert [voter.voter_directory_id for voter in voters_of(tmp_path)] == [done.meta.directory_id]


@pytest.mark.parametrize("life", ["votes", "appends"])
def test_a_log_never_comes_under_another_directory_id(life: str, tmp_path: Path) -> None:
    replica = opened(formatted(tmp_path, standalone=HERE))
    if life == "votes":
        replica.elections.write(ElectionState(epoch=1), kraft_version=1)
    else:
        fill(replica.log, 1)
    replica.close()
    (tmp_path / "meta.properties").unlink()

    with pytest.raises(StorageError, match=r"holds the log of a replica whose meta\.properties is gone"):
        formatted(tmp_path, standalone=HERE)


def test_a_directory_in_use_is_not_formatted(tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(tmp_path)

    with pytest.raises(DirectoryInUseError):
        formatted(tmp_path)
    lock.release()


def test_the_records_are_those_of_the_release_of_the_controllers_beside(tmp_path: Path) -> None:
    """A controller of 3.9 does not start on a metadata.version that it does not know."""
    path = formatted(tmp_path / "d", static_voters=[1], release="3.9.2")
    captured = (DATA / "kafka-3.9.2" / "n1" / "bootstrap.checkpoint").read_bytes()

    assert len((path / "bootstrap.checkpoint").read_bytes()) == len(captured)
    with pytest.raises(ConfigError, match=r"release='5.0' is not known"):
        formatted(tmp_path / "e", release="5.0")
    assert not (tmp_path / "e").exists()


# Opening ------------------------------------------------------------------------------------------


def test_a_new_replica_has_an_empty_log_and_no_vote(tmp_path: Path) -> None:
    done = format_directory(tmp_path, node_id=1, cluster_id="c", standalone=HERE)
    replica = opened(tmp_path)

    assert (replica.cluster_id, replica.directory_id) == ("c", done.meta.directory_id)
    assert replica.log.end_offset == 0
    assert replica.elections.read() == ElectionState(epoch=0)
    assert (tmp_path / "__cluster_metadata-0" / "partition.metadata").read_bytes() == (
        DATA / "kafka-4.3.1/n1/__cluster_metadata-0/partition.metadata"
    ).read_bytes()


def test_closing_gives_the_directory_back(tmp_path: Path) -> None:
    path = formatted(tmp_path)
    first = opened(path)
    with pytest.raises(DirectoryInUseError, match=f"in use by process {os.getpid()}"):
        opened(path)
    first.close()
    first.close()

    opened(path).close()


def test_the_settings_reach_the_log(tmp_path: Path) -> None:
    replica = opened(formatted(tmp_path), segment_bytes=8 << 20, segment_ms=5, file_mode=0o640)
    fill(replica.log, 1)
    replica.close()

    assert (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").stat().st_mode & 0o777 == 0o640


def test_an_unformatted_directory_is_refused_with_the_command_that_formats_it(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(
            NotFormattedError, match=rf"{path} is not formatted: run `kraftlib format -c FILE --cluster-id my-cluster`"
        ):
            opened(path, cluster_id="my-cluster")
    assert os.listdir(tmp_path) == []


def test_the_directory_of_another_node_or_cluster_is_refused_and_not_kept(tmp_path: Path) -> None:
    path = formatted(tmp_path)

    with pytest.raises(ConfigError, match=r"cluster_id='d', but .* was formatted for cluster 'c'"):
        opened(path, cluster_id="d")
    with pytest.raises(ConfigError, match=r"node_id=2, but .* was formatted for node 1"):
        open_directory(RaftConfig(node_id=2, directory=path))
    with pytest.raises(ConfigError, match="directory is not set"):
        open_directory(RaftConfig(node_id=2))
    opened(path).close()


def test_a_link_in_place_of_the_log_directory_is_refused(tmp_path: Path) -> None:
    path = formatted(tmp_path / "data")
    (path / "__cluster_metadata-0").rename(tmp_path / "elsewhere")
    (path / "__cluster_metadata-0").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="symbolic link"):
        opened(path)


def test_an_election_state_older_than_the_log_is_lost(tmp_path: Path) -> None:
    replica = opened(formatted(tmp_path))
    fill(replica.log, 3)
    replica.close()
    replica = opened(tmp_path)

    assert replica.elections.read() == ElectionState(epoch=3, amnesiac=True)
    replica.close()


@pytest.mark.parametrize(
    ("name", "node_id", "ends", "epoch"),
    [("kafka-3.9.2/n1", 1, (0, 236), 5), ("kafka-4.3.1/n1", 1, (0, 275), 4), ("kafka-4.3.1/n4", 4, (159, 274), 4)],
)
def test_a_directory_of_kafka_is_opened_and_left_as_kafka_wrote_it(
    name: str, node_id: int, ends: tuple[int, int], epoch: int, tmp_path: Path
) -> None:
    """All but the time index, which has one more entry from each time that Kafka closed it."""
    path = tmp_path / "data"
    shutil.copytree(DATA / name, path)
    replica = open_directory(RaftConfig(node_id=node_id, directory=path))

    assert (replica.log.start_offset, replica.log.end_offset) == ends
    election = replica.elections.read()
    assert election is not None
    assert election.epoch == epoch
    replica.close()
    for before in (DATA / name).rglob("*"):
        if before.is_file() and before.suffix not in (".index", ".timeindex"):
            assert (path / before.relative_to(DATA / name)).read_bytes() == before.read_bytes(), before
    new = {p.name for p in path.rglob("*")} - {p.name for p in (DATA / name).rglob("*")}
    assert new == {".lock", "kraftlib-sync.json", "kraftlib-prefix.json", "kraftlib-reserve.bin"}


LIVE = """
import sys
from pathlib import Path
from kraftlib.config import RaftConfig
from kraftlib.storage.directory import open_directory
from kraftlib.testing.log_contract import fill
from kraftlib.types import ElectionState
replica = open_directory(RaftConfig(node_id=1, directory=Path(sys.argv[1])))
epoch = replica.elections.read().epoch + 1
replica.elections.write(ElectionState(epoch=epoch, leader_id=1), kraft_version=1)
while True:
    fill(replica.log, epoch, epoch, epoch)
    print(epoch, replica.log.flush(), flush=True)
    fill(replica.log, epoch)
"""


@pytest.mark.parametrize(
    "name",
    [
        "quorum-state",
        "quorum-state.bak",
        "../meta.properties",
        "kraftlib.json",
        "partition.metadata",
        "leader-epoch-checkpoint",
        "kraftlib-sync.json",
        "kraftlib-prefix.json",
    ],
)
def test_a_start_does_not_need_a_small_file_that_the_disk_has_lost(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sector that cannot be read is damage like any other: the mirror counts, or what can be made again is."""
    directory = opened(formatted(tmp_path))
    vote, identity = ElectionState(epoch=2, voted_key=ReplicaKey(2)), directory.directory_id
    directory.elections.write(vote, kraft_version=0, voters=[1, 2, 3])
    fill(directory.log, 1, 1, 2)
    directory.close()
    lost, pread = (tmp_path / "__cluster_metadata-0" / name).stat().st_ino, os.pread

    def failing(descriptor: int, size: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino == lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", failing)
    directory = opened(tmp_path)

    election = directory.elections.read()
    assert election is not None
    assert (directory.directory_id, election.voted_key, election.amnesiac) == (identity, vote.voted_key, False)
    assert directory.log.end_offset == 3
    assert not directory.log.is_doubtful


def test_a_killed_process_leaves_all_that_it_had_flushed_and_its_vote(tmp_path: Path) -> None:
    """kill -9 in the middle of appends and flushes, three lives in a row; the lock dies with its holder."""
    path, flushed = formatted(tmp_path), 0
    for life in range(1, 4):
        command = [sys.executable, "-c", LIVE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(20):
                epoch, flushed = map(int, process.stdout.readline().split())
            process.kill()
        replica = opened(path)
        election = replica.elections.read()

        assert election == ElectionState(epoch=life, leader_id=1)
        assert (epoch, replica.log.epoch_starts()[-1].epoch) == (life, life)
        assert replica.log.end_offset >= flushed
        assert len(read_all(replica.log)) == replica.log.end_offset
        replica.close()
