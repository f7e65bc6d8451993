"""What a replica starts with, and what is refused before anything is bound or sent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import attrs
import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.errors import ConfigError, ElectionStateLostError, StorageError
from kraftlib.plain_values import parse_voters
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.runtime.opening import (
    MEMORY_CLUSTER_ID,
    Opened,
    listen_endpoint,
    open_replica,
    view_of,
    voters_of_last_epoch,
)
from kraftlib.storage import names, reserve
from kraftlib.storage.directory import format_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.storage.snapshots.download_files import DownloadNote
from kraftlib.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    Endpoint,
    EpochStart,
    OffsetAndEpoch,
    ReplicaKey,
    new_uuid,
    parse_endpoint,
)

VOTERS = (
    StaticVoter(1, Endpoint("host", 9001)),
    StaticVoter(2, Endpoint("host", 9002)),
    StaticVoter(3, Endpoint("host", 9003)),
)
DYNAMIC = VoterSet.of([Voter(key=ReplicaKey(7, new_uuid()), endpoints={"CONTROLLER": Endpoint("host", 9)})])


def open_config(config: RaftConfig) -> Opened:
    return open_replica(config, log=None, elections=None)


# Directories ----------------------------------------------------------------------------------------------------------


def test_the_space_of_the_reserve_is_for_votes_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the reserve was given back on a full disk, neither a download nor an increment may use it up."""
    format_directory(tmp_path / "replica", node_id=1, cluster_id="ours")
    opened = open_config(RaftConfig(node_id=1, directory=tmp_path / "replica", voters=VOTERS))
    pwrite, kept = os.pwrite, tmp_path / "replica" / names.PARTITION_DIRECTORY / names.RESERVE

    def full(descriptor: int, data: bytes, position: int) -> int:
        if kept.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(reserve, "free_bytes", lambda directory: reserve.RESERVE_BYTES)
    monkeypatch.setattr(os, "pwrite", full)
    opened.log.append([encode_batch([b"value"], timestamp_ms=1, base_offset=0, epoch=1)])
    assert not kept.exists()
    assert opened.downloads is not None
    assert opened.increments is not None

    later = OffsetAndEpoch(offset=9, epoch=1)
    with pytest.raises(StorageError, match="No space left"):
        opened.downloads.create(DownloadNote(snapshot_id=later, size=100))
    changes = [(b"key", b"value")]
    with pytest.raises(StorageError, match="No space left"):
        opened.increments.write(
            later, changes, base=BOOTSTRAP_SNAPSHOT, timestamp_ms=0, kraft_version=0, voters=None, step=lambda: None
        )
    opened.elections.write(ElectionState(epoch=2, voted_key=ReplicaKey(1)), kraft_version=0, voters=[1, 2, 3])
    opened.close()


def test_a_directory_brings_cluster_id_directory_id_and_election_state(tmp_path: Path) -> None:
    formatted = format_directory(tmp_path / "replica", node_id=1, cluster_id="ours")
    opened = open_config(RaftConfig(node_id=1, directory=tmp_path / "replica", voters=VOTERS))
    assert (opened.cluster_id, opened.key) == ("ours", ReplicaKey(1, formatted.meta.directory_id))
    opened.elections.write(ElectionState(epoch=3), kraft_version=0, voters=(1, 2, 3))
    opened.log.append([encode_batch([b"value"], timestamp_ms=1, base_offset=0, epoch=3)])
    opened.close()

    again = open_config(RaftConfig(node_id=1, directory=tmp_path / "replica", voters=VOTERS))
    assert again.election == ElectionState(epoch=3)
    assert (again.view.end_offset, again.view.last_epoch) == (1, 3)
    again.close()


def test_what_fails_while_opening_releases_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "replica"
    format_directory(directory, node_id=1, cluster_id="ours", no_initial_controllers=True)
    config = RaftConfig(node_id=1, directory=directory)
    with pytest.raises(ConfigError, match="knows no other replica"):
        open_config(config)
    open_config(RaftConfig(node_id=1, directory=directory, voters=VOTERS)).close()


def test_half_of_the_stores_beside_a_directory_is_refused(tmp_path: Path) -> None:
    config = RaftConfig(node_id=1, directory=tmp_path, voters=VOTERS)
    with pytest.raises(ConfigError, match="give `log` and `elections`, or none"):
        open_replica(config, log=MemoryReplicatedLog(), elections=None)


# Memory ---------------------------------------------------------------------------------------------------------------


def test_memory_stores_are_a_warning_that_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    opened = open_config(RaftConfig(node_id=1, voters=VOTERS))
    assert opened.cluster_id == MEMORY_CLUSTER_ID
    assert opened.election is None
    assert "keeps its log and votes in memory" in caplog.text
    caplog.clear()
    open_replica(RaftConfig(node_id=1, voters=VOTERS), log=MemoryReplicatedLog(), elections=None)
    assert "keeps its votes in memory" in caplog.text
    caplog.clear()
    open_replica(RaftConfig(node_id=1, voters=VOTERS), log=MemoryReplicatedLog(), elections=MemoryQuorumStateStore())
    assert caplog.text == ""


# Voters ---------------------------------------------------------------------------------------------------------------


def test_a_node_outside_its_static_quorum_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"node_id=4 is not among voters=1@host:9001,.*leave voters empty"):
        open_config(RaftConfig(node_id=4, voters=VOTERS))


def test_nobody_to_ask_is_refused() -> None:
    with pytest.raises(ConfigError, match="replica 1 knows no other replica"):
        open_config(RaftConfig(node_id=1))
    opened = open_config(RaftConfig(node_id=1, bootstrap_servers=(Endpoint("host", 9001),)))
    assert len(opened.view.voters.latest) == 0


def test_static_voters_hold_until_the_log_names_others() -> None:
    log = MemoryReplicatedLog()
    config = RaftConfig(node_id=1, voters=VOTERS)
    assert view_of(log, config).voters.latest.ids == (1, 2, 3)
    records = [KRaftVersionRecord(kraft_version=1), DYNAMIC.to_record()]
    log.append([encode_batch([b"value"], timestamp_ms=1, base_offset=0, epoch=1)])
    log.append([encode_control_batch(records, timestamp_ms=1, base_offset=1, epoch=2)])
    view = view_of(log, config)

    assert view.voters.latest == DYNAMIC
    assert view.kraft_version.latest == 1
    assert view.epoch_starts == [EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=1)]


@pytest.mark.parametrize("snapshot_id", [BOOTSTRAP_SNAPSHOT, OffsetAndEpoch(epoch=1, offset=2)])
def test_voters_of_a_snapshot_count_from_its_end(snapshot_id: OffsetAndEpoch) -> None:
    log = MemoryReplicatedLog()
    log.append([encode_batch([b"value", b"value"], timestamp_ms=1, base_offset=0, epoch=1)])
    sink = log.create_snapshot(snapshot_id)
    writer = SnapshotWriter(
        sink.write, epoch=snapshot_id.epoch, last_contained_log_timestamp=1, kraft_version=1, voters=DYNAMIC.to_record()
    )
    writer.freeze()
    sink.freeze()
    view = view_of(log, RaftConfig(node_id=7))

    assert (view.voters.latest, view.voters.latest_offset) == (DYNAMIC, snapshot_id.offset - 1)
    assert view.kraft_version.latest == 1


def store_snapshot(log: ReplicatedLog, offset: int) -> OffsetAndEpoch:
    """Write a snapshot that names the voters."""
    snapshot_id = OffsetAndEpoch(epoch=1, offset=offset)
    sink = log.create_snapshot(snapshot_id)
    SnapshotWriter(
        sink.write, epoch=1, last_contained_log_timestamp=1, kraft_version=1, voters=DYNAMIC.to_record()
    ).freeze()
    sink.freeze()
    return snapshot_id


def test_voters_of_a_snapshot_count_before_its_end_if_the_log_ends_there_and_nothing_else_names_any(
    tmp_path: Path,
) -> None:
    """The power went before the log was flushed, and the disk has lost the snapshot at its start, and a record."""
    log = FileReplicatedLog.open(tmp_path)
    first = store_snapshot(log, 10)
    log.install_snapshot(first)
    batches = [encode_batch([b"value"], timestamp_ms=1, base_offset=offset, epoch=1) for offset in range(10, 30)]
    log.append(batches)
    log.flush()
    newer = store_snapshot(log, 40)
    log.close()
    path = tmp_path / names.checkpoint_name(first)
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    segment = tmp_path / names.segment_name(10)
    data = bytearray(segment.read_bytes())
    data[15 * len(batches[0].data) // 2] ^= 1
    segment.write_bytes(data)
    log = FileReplicatedLog.open(tmp_path, keep_damage=True)
    assert (log.snapshots(), len(log.holes()), log.start_offset, log.end_offset) == ((newer,), 1, 10, 30)
    view = view_of(log, RaftConfig(node_id=7))

    assert (view.voters.latest, view.kraft_version.latest, view.voters_known_from) == (DYNAMIC, 1, 40)


# A list of static voters that was edited ------------------------------------------------------------------------------


def ran_as(directory: Path, voters: tuple[StaticVoter, ...], *, epoch: int = 3) -> RaftConfig:
    """Make the directory of a replica that has run with these voters; return its configuration."""
    config = RaftConfig(node_id=1, directory=directory, voters=voters)
    format_directory(directory, node_id=1, cluster_id="ours", static_voters=[voter.id for voter in voters])
    opened = open_config(config)
    opened.elections.write(ElectionState(epoch=epoch), kraft_version=0, voters=[voter.id for voter in voters])
    opened.close()
    return config


FOUR = (*VOTERS, StaticVoter(4, Endpoint("host", 9004)))


@pytest.mark.parametrize(
    ("edited", "text"),
    [
        (FOUR, r"names \{1, 2, 3, 4\}, and replica 1 has run as one of \{1, 2, 3\}"),
        (VOTERS[:2], r"names \{1, 2\}, and replica 1 has run as one of \{1, 2, 3\}"),
        ((*VOTERS[:2], FOUR[3]), r"names \{1, 2, 4\}, and replica 1 has run as one of \{1, 2, 3\}"),
    ],
)
def test_an_edited_list_of_voters_is_refused_with_both_lists_and_the_safe_way(
    tmp_path: Path, edited: tuple[StaticVoter, ...], text: str
) -> None:
    """{1, 2} is a majority of {1, 2, 3}, and {3, 4, 5} one of 1 to 5: both could elect a leader of the same epoch."""
    config = ran_as(tmp_path / "replica", VOTERS)
    with pytest.raises(ConfigError, match=text + r".*quorum upgrade.*kraftlib recover"):
        open_config(attrs.evolve(config, voters=edited))

    opened = open_config(config)  # nothing stays locked, and nothing was changed
    assert opened.election is not None
    assert opened.election.static_voters == (1, 2, 3)
    opened.close()


def test_addresses_and_order_of_the_voters_may_change(tmp_path: Path) -> None:
    config = ran_as(tmp_path / "replica", VOTERS)
    moved = tuple(StaticVoter(voter.id, Endpoint("elsewhere", 7000 + voter.id)) for voter in reversed(VOTERS))
    open_config(attrs.evolve(config, voters=moved)).close()


def test_a_list_may_be_put_right_before_the_replica_has_run(tmp_path: Path) -> None:
    """`format` notes the voters of its configuration; nobody has voted under them yet."""
    directory = tmp_path / "replica"
    format_directory(directory, node_id=1, cluster_id="ours", static_voters=[1, 2, 3])
    open_config(RaftConfig(node_id=1, directory=directory, voters=FOUR)).close()


def leader_change(voters: tuple[int, ...], *, epoch: int, offset: int) -> Batch:
    named = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in voters)
    record = LeaderChangeMessage(leader_id=voters[0], voters=named, granting_voters=named)
    return encode_control_batch([record], timestamp_ms=1, base_offset=offset, epoch=epoch)


@pytest.mark.parametrize("election", [None, ElectionState(epoch=3), ElectionState(epoch=3, amnesiac=True)])
def test_where_the_votes_name_no_voters_the_log_does(election: ElectionState | None) -> None:
    """The votes may be lost, or kept by a store of the user's; the first record of the last epoch names the voters."""
    log = MemoryReplicatedLog()
    log.append([leader_change((7, 8), epoch=2, offset=0), leader_change((1, 2, 3), epoch=3, offset=1)])
    log.append([encode_batch([b"value"], timestamp_ms=1, base_offset=2, epoch=3)])
    log.begin_epoch(4, 3)
    elections = MemoryQuorumStateStore(election)
    with pytest.raises(ConfigError, match=r"has run as one of \{1, 2, 3\}"):
        open_replica(RaftConfig(node_id=1, voters=FOUR), log=log, elections=elections)


def test_a_log_that_names_nobody_any_more_refuses_nobody() -> None:
    log = MemoryReplicatedLog()
    log.append([encode_batch([b"value"], timestamp_ms=1, base_offset=0, epoch=3)])
    assert voters_of_last_epoch(log) == ()
    assert voters_of_last_epoch(MemoryReplicatedLog(start_offset=5)) == ()
    elections = MemoryQuorumStateStore(ElectionState(epoch=3))
    open_replica(RaftConfig(node_id=1, voters=FOUR), log=log, elections=elections).close()


def test_voters_that_stand_in_the_log_are_compared_with_no_list(caplog: pytest.LogCaptureFixture) -> None:
    """The list is not in force; whoever edited it may believe that it is."""
    log = MemoryReplicatedLog()
    log.append([leader_change((1, 2, 3), epoch=3, offset=0)])
    records = [KRaftVersionRecord(kraft_version=1), DYNAMIC.to_record()]
    log.append([encode_control_batch(records, timestamp_ms=1, base_offset=1, epoch=3)])
    elections = MemoryQuorumStateStore()
    elections.write(ElectionState(epoch=3), kraft_version=0, voters=(1, 2, 3))
    open_replica(RaftConfig(node_id=1, voters=FOUR), log=log, elections=elections).close()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "voters=1@host:9001,2@host:9002,3@host:9003,4@host:9004 is ignored" in warning
    assert "its log names {7}" in warning


# Where to listen ------------------------------------------------------------------------------------------------------


def test_port_0_is_that_of_the_own_entry_among_the_voters() -> None:
    assert listen_endpoint(RaftConfig(node_id=2, voters=VOTERS)) == Endpoint("127.0.0.1", 9002)
    assert listen_endpoint(RaftConfig(node_id=2, voters=VOTERS, listen=Endpoint("::1", 7))) == Endpoint("::1", 7)
    assert listen_endpoint(RaftConfig(node_id=2)) == Endpoint("127.0.0.1", 0)


def test_a_replica_listens_on_the_unix_socket_of_its_entry() -> None:
    voters = parse_voters("1@unix:/run/1.sock,2@unix:/run/2.sock")
    other = parse_endpoint("unix:/run/other.sock")
    assert listen_endpoint(RaftConfig(node_id=2, voters=voters)) == voters[1].endpoint
    assert listen_endpoint(RaftConfig(node_id=2, voters=voters, listen=other)) == other
    beside = RaftConfig(node_id=2, voters=voters, unix_socket="/run/2.sock")
    assert listen_endpoint(beside) == Endpoint("127.0.0.1", 0)
    assert beside.unix_endpoint == voters[1].endpoint


def test_an_observer_need_not_know_the_cluster() -> None:
    """It names none in its requests, which every replica serves; a voter names one in any case."""
    config = RaftConfig(node_id=9, bootstrap_servers=(Endpoint("host", 9001),))

    assert open_config(config).cluster_id is None
    assert (
        open_config(RaftConfig(node_id=9, bootstrap_servers=config.bootstrap_servers, cluster_id="c")).cluster_id == "c"
    )


def test_the_only_voter_that_has_forgotten_its_votes_is_refused_and_told_what_to_do() -> None:
    """Nobody else can tell when it may vote again. One of three may start: the others will tell it."""
    elections = MemoryQuorumStateStore()
    elections.write(ElectionState(epoch=3, amnesiac=True), kraft_version=0)
    alone, three = RaftConfig(node_id=1, voters=VOTERS[:1]), RaftConfig(node_id=1, voters=VOTERS)

    with pytest.raises(
        ElectionStateLostError, match=r"only voter.*Restore the directory from a backup, or let `kraftlib rec"
    ):
        open_replica(alone, log=MemoryReplicatedLog(), elections=elections)
    opened = open_replica(three, log=MemoryReplicatedLog(), elections=elections)
    assert opened.election == ElectionState(epoch=3, amnesiac=True)
