"""Each promise is broken by what breaks it."""

from __future__ import annotations

import pytest

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.types import ElectionState, OffsetAndEpoch, ReplicaKey
from tools.core_fuzz.promises import BrokenPromiseError, Committed
from tools.core_fuzz.themes import Theme
from tools.core_fuzz.world import CoreWorld

THREE = Theme(name="three", what="three voters", voters=(3,), replicas=(3,), dynamic=1.0)


@pytest.fixture
def world() -> CoreWorld:
    return CoreWorld(1, THREE)


def batch(offset: int, epoch: int, value: bytes = b"value") -> Batch:
    return encode_batch([value], timestamp_ms=0, base_offset=offset, epoch=epoch)


def test_one_vote_an_epoch_whatever_was_lost_since(world: CoreWorld) -> None:
    host = world.hosts[1]
    world.promises.election_written(host, ElectionState(epoch=3, voted_key=ReplicaKey(2)))
    host.store.election = ElectionState(epoch=2, amnesiac=True)
    with pytest.raises(BrokenPromiseError, match="I3: replica 1 votes for 3 in epoch 3 after 2"):
        world.promises.election_written(host, ElectionState(epoch=3, voted_key=ReplicaKey(3)))


def test_a_vote_is_not_forgotten(world: CoreWorld) -> None:
    host = world.hosts[1]
    host.store.election = ElectionState(epoch=3, voted_key=ReplicaKey(2))
    with pytest.raises(BrokenPromiseError, match="I3: replica 1 forgets its vote of epoch 3"):
        world.promises.election_written(host, ElectionState(epoch=3))


def test_a_vote_comes_back_only_when_what_was_forgotten_can_do_no_harm(world: CoreWorld) -> None:
    host = world.hosts[1]
    world.promises.election_written(host, ElectionState(epoch=7, voted_key=ReplicaKey(2)))
    host.store.election = ElectionState(epoch=5, amnesiac=True)
    with pytest.raises(BrokenPromiseError, match="I3: replica 1 votes again in epoch 6, and has voted for 2 in 7"):
        world.promises.election_written(host, ElectionState(epoch=6, leader_id=3))
    world.promises.election_written(host, ElectionState(epoch=7, leader_id=3))
    world.promises.committed[0] = Committed(1, b"", 1)
    host.store.told = {0: 1}
    with pytest.raises(BrokenPromiseError, match="I5: replica 1 votes again in epoch 8 without 0@1"):
        world.promises.election_written(host, ElectionState(epoch=8, leader_id=3))


def test_a_core_knows_its_log(world: CoreWorld) -> None:
    host = world.hosts[1]
    world.promises.rebuilt(host)
    host.running.state.log.end_offset = 3
    with pytest.raises(BrokenPromiseError, match="L16: replica 1 takes its log for"):
        world.promises.rebuilt(host)
    host.store.append([batch(0, 1)])
    with pytest.raises(BrokenPromiseError, match="I4: replica 1 has at 0@1 bytes that no leader wrote"):
        world.promises.rebuilt(host)


def test_one_place_is_one_record_with_one_past(world: CoreWorld) -> None:
    for host in world.hosts.values():
        host.running.state.epoch = 9
    world.promises.appended(world.hosts[1], (batch(0, 1), batch(1, 2)))
    with pytest.raises(BrokenPromiseError, match="I4"):
        world.promises.appended(world.hosts[2], (batch(0, 1, b"another"),))
    with pytest.raises(BrokenPromiseError, match="I4"):
        world.promises.appended(world.hosts[2], (batch(0, 2), batch(1, 2)))


def test_what_is_committed_is_not_truncated(world: CoreWorld) -> None:
    host, one = world.hosts[1], batch(0, 1)
    world.promises.committed[0] = Committed(1, bytes(one.data), 1)
    world.promises.truncated(host, [batch(0, 2)], had_holes=False)  # another one of that place
    with pytest.raises(BrokenPromiseError, match="I11: replica 1 drops 0@1"):
        world.promises.truncated(host, [one], had_holes=False)
    with pytest.raises(BrokenPromiseError, match="I11"):
        world.promises.truncated(host, [one], had_holes=True)
    host.store.election = ElectionState(epoch=1, amnesiac=True)
    world.promises.truncated(host, [one], had_holes=True)  # it knows that it lacks something


def test_a_follower_of_a_deposed_leader_may_truncate_what_a_newer_one_commits(world: CoreWorld) -> None:
    """A majority has it by then, and this replica is not among those that the newer leader counts."""
    host, one = world.hosts[1], batch(0, 1)
    world.promises.committed[0] = Committed(1, bytes(one.data), 1, in_epoch=host.running.epoch + 1)
    world.promises.truncated(host, [one], had_holes=False)


def test_a_snapshot_covers_what_is_committed_only(world: CoreWorld) -> None:
    with pytest.raises(BrokenPromiseError, match="I14"):
        world.promises.installed(world.hosts[1], [], OffsetAndEpoch(offset=4, epoch=1), had_holes=False)


def test_a_high_watermark_stays_within_the_log_and_never_falls(world: CoreWorld) -> None:
    host = world.hosts[1]
    with pytest.raises(BrokenPromiseError, match="I7: high watermark 5 of replica 1 is beyond its end"):
        world.promises.advanced(host, 5)
    host.high_watermark = 7
    with pytest.raises(BrokenPromiseError, match="I7: the high watermark of replica 1 goes back from 7 to 5"):
        world.promises.advanced(host, 5)


def test_only_a_leader_commits(world: CoreWorld) -> None:
    host = world.hosts[1]
    host.store.append([batch(0, 1)])
    with pytest.raises(BrokenPromiseError, match="I6: replica 1 takes 0@1 for committed"):
        world.promises.advanced(host, 1)


def test_a_read_misses_nothing(world: CoreWorld) -> None:
    world.promises.read_passed(world.hosts[1], 4, 4)
    with pytest.raises(BrokenPromiseError, match="I21"):
        world.promises.read_passed(world.hosts[1], 4, 3)
