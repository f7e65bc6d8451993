"""A core and its actions, carried out on a disk."""

from __future__ import annotations

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.types import ElectionState, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from tools.core_fuzz.promises import BrokenPromiseError
from tools.core_fuzz.themes import Theme
from tools.core_fuzz.world import CoreWorld

THREE = Theme(name="three", what="three voters", voters=(3,), replicas=(3,), dynamic=1.0)


def test_a_life_ends_at_any_action() -> None:
    world = CoreWorld(1, THREE)
    host = world.hosts[1]
    world.dying = 1.0
    world.now_ms = 10_000
    host.tell(ev.TimeoutReached())

    assert host.core is None
    assert world.counts["power loss amid actions"] == 1
    world.dying = 0.0
    host.start()
    assert host.life == 2


def test_another_disk_is_another_replica() -> None:
    host = CoreWorld(1, THREE).hosts[1]
    before = host.key
    host.crash()
    host.new_disk()

    assert host.key.id == before.id
    assert host.key != before
    assert host.store.snapshots == {}


def test_a_flush_comes_back_and_makes_durable_what_was_there_when_it_was_asked_for() -> None:
    world = CoreWorld(1, Theme(name="one", what="one voter", voters=(1,), replicas=(3,), dynamic=1.0))
    host = world.hosts[1]
    assert (host.store.flushed_offset, host.store.end_offset) == (0, 3)  # it leads at once
    host.finish_flush()

    assert host.store.flushed_offset == host.high_watermark == world.promises.committed_end == 3


def test_what_a_lost_disk_had_was_durable_there() -> None:
    world = CoreWorld(1, Theme(name="one", what="one voter", voters=(1,), replicas=(3,), dynamic=1.0))
    host = world.hosts[1]
    host.finish_flush()
    before, batch = host.key, host.store.batches[0]
    host.crash()
    host.new_disk()

    assert world.is_durable_at(before, batch)
    assert not world.is_durable_at(host.key, batch)


def test_a_chunk_comes_from_the_stored_file_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoreWorld(1, THREE)
    host = world.hosts[1]
    empty = FetchSnapshotResponse.PartitionSnapshot()
    response = FetchSnapshotResponse(topics=(FetchSnapshotResponse.TopicSnapshot(partitions=(empty,)),))
    told: list[FetchSnapshotResponse] = []
    monkeypatch.setattr(host, "answer", lambda _, answer: told.append(answer))
    host._send_chunk(act.SendSnapshotChunk(1, response, OffsetAndEpoch(offset=9, epoch=9), 0, 100))

    assert told[0].topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_an_election_that_goes_back_is_not_written() -> None:
    host = CoreWorld(1, THREE).hosts[1]
    host.store.election = ElectionState(epoch=5)
    with pytest.raises(BrokenPromiseError, match="I2: replica 1 goes back from epoch 5 to 4"):
        host._persist_election(act.PersistElection(ElectionState(epoch=4), 1))
