"""Damage found while records are on their way: what was decided is done, then the log is looked at, and the core hears.

A log that knows of its hole does not grow, so a leader that appends behind that would be a bug, and stop for good. It
is to resign instead, and to be repaired.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.errors import CorruptBatchError, NotLeaderError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.runtime.disk import InlineDisk
from kraftlib.runtime.executor import Executor
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.waiters import COMMITTED, Waiters
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryQuorumStateStore
from kraftlib.types import METADATA_TOPIC, Endpoint, Offset, OffsetRange, ReplicaKey
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import CLUSTER, LISTENER, fetch_request, place, voter_set
from tests.runtime.fakes import ManualDisk, Rig, Trace, TracingListeners, TracingLog, TracingNetwork, TracingSnapshots
from tests.runtime.test_waiters import Slot
from tests.storage.damage.test_repair import BATCHES, SIZE, a_log, opened, overwrite, segments

DAMAGED = 5
HOLE = OffsetRange(DAMAGED, DAMAGED + 1)
END = len(BATCHES)


class AskingNetwork(TracingNetwork):
    """Remembers whom it asked last."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.last: dict[int, int] = {}

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Any) -> None:
        self.last[destination] = correlation_id


class Voter:
    """Replica 1 of three: real core, real log of which a byte is wrong that nobody has read yet."""

    def __init__(self, directory: Path, *, inline: bool) -> None:
        a_log(directory)
        self.log: FileReplicatedLog = opened(directory)
        overwrite(segments(directory)[0], DAMAGED * SIZE + 100, b"?")
        trace = Trace()
        config = RaftConfig(node_id=1)
        view = LogView.build(
            end_offset=self.log.end_offset, epoch_starts=self.log.epoch_starts(), static_voters=voter_set(1, 2, 3)
        )
        self.core = Replica(
            config,
            key=ReplicaKey(1),
            cluster_id=CLUSTER,
            log=view,
            election=None,
            random=random.Random(7),
            endpoints={LISTENER: place(1)},
        )
        self.now_ms = 0
        self.disk = ManualDisk(trace)
        self.network = AskingNetwork(trace)
        self.soon: deque[Callable[[], None]] = deque()
        self.timers: list[int] = []
        self.failures: list[ReplicaFailedError] = []
        self.executor = Executor(
            self.core,
            config=config,
            log=self.log,
            elections=MemoryQuorumStateStore(),
            disk=InlineDisk() if inline else self.disk,
            network=self.network,
            sender=TracingSnapshots(trace),
            snapshots=TracingSnapshots(trace),
            waiters=Waiters(),
            listeners=TracingListeners(trace),
            metrics=RaftMetrics(),
            clock=lambda: self.now_ms,
            wall_clock=lambda: 1_700_000_000_000,
            call_soon=self.soon.append,
            set_timer=self.timers.append,
            on_failure=self.failures.append,
        )
        self.executor.start()

    def settle(self) -> None:
        """Let the disk and the loop do what they were asked for."""
        while self.disk.jobs or self.soon:
            if self.disk.jobs:
                self.disk.finish()
            else:
                self.soon.popleft()()

    def stand(self) -> None:
        """Become a candidate, with one vote missing."""
        self.settle()
        self.now_ms = self.core.deadline_ms() or 0
        self.executor.submit(ev.TimeoutReached())
        self.settle()
        self.grant()
        self.settle()
        assert self.core.role is Role.CANDIDATE

    def grant(self) -> None:
        """Replica 2 gives its vote."""
        vote = VoteResponse.PartitionData(leader_id=-1, leader_epoch=self.core.epoch, vote_granted=True)
        topic = VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(vote,))
        self.executor.submit(ev.ResponseReceived(self.network.last[2], VoteResponse(topics=(topic,))))

    def lead(self) -> None:
        self.stand()
        self.grant()
        self.settle()
        assert self.core.role is Role.LEADER

    def append(self) -> Slot:
        slot = Slot()
        self.executor.appends.append_one(b"value", None, COMMITTED, slot)
        return slot

    def read_damage(self) -> None:
        """Replica 2 fetches, and is so far behind that it needs the damaged record."""
        request = fetch_request(epoch=self.core.epoch, offset=DAMAGED, last_epoch=1, replica_id=2)
        self.executor.submit(ev.RequestReceived(101, request, 17))

    def assert_resigned(self, *, end_offset: Offset) -> None:
        """It lives and leads no more; core and log know the same hole and the same end."""
        assert self.failures == []
        assert self.core.role is Role.RESIGNED
        assert self.core.state.log.holes == list(self.log.holes()) == [HOLE]
        assert self.core.state.log.end_offset == self.log.end_offset == end_offset


@pytest.fixture(params=[True, False], ids=["inline", "later"])
def voter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Voter]:
    voter = Voter(tmp_path, inline=request.param)
    yield voter
    voter.log.close()


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Voter]:
    voter = Voter(tmp_path, inline=False)
    yield voter
    voter.log.close()


# A real leader --------------------------------------------------------------------------------------------------------


def test_a_leader_that_reads_damage_resigns_at_once(voter: Voter) -> None:
    """With nothing else on its way, not even an event that would run the loop again."""
    voter.lead()
    voter.read_damage()
    voter.settle()

    voter.assert_resigned(end_offset=END + 1)


def test_what_is_not_drained_yet_when_damage_is_read_is_not_appended(voter: Voter) -> None:
    """Handed to the core, it would be appended to a log that is damaged; its caller may try the next leader."""
    voter.lead()
    outcome = voter.append()
    voter.read_damage()
    voter.settle()

    voter.assert_resigned(end_offset=END + 1)
    assert isinstance(outcome.error, NotLeaderError)


def test_what_is_in_the_log_when_damage_is_read_stays_there(voter: Voter) -> None:
    """The next leader may have it or not: that is what its caller hears."""
    voter.lead()
    outcome = voter.append()
    voter.settle()
    voter.read_damage()
    voter.settle()

    voter.assert_resigned(end_offset=END + 2)
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert voter.log.flushed_offset == END + 2
    assert [batch.base_offset for batch in voter.log.read(END + 1, 1)] == [END + 1]


def test_damage_that_is_reported_while_an_election_is_written_waits_for_what_stands_behind_it(later: Voter) -> None:
    """The applier and the scrubber report it at any time: here, before the epoch begins with a record of its own."""
    later.stand()
    later.grant()
    assert len(later.disk.jobs) == 1
    later.executor.damage_found(DAMAGED, CorruptBatchError("torn"))
    later.settle()

    later.assert_resigned(end_offset=END + 1)
    assert later.log.flushed_offset == END + 1


def test_what_happens_while_the_disk_looks_comes_after_what_it_saw(later: Voter) -> None:
    later.lead()
    later.read_damage()
    outcome = later.append()
    later.read_damage()
    later.soon.popleft()()
    assert len(later.disk.jobs) == 1
    later.settle()

    later.assert_resigned(end_offset=END + 1)
    assert isinstance(outcome.error, NotLeaderError)


# The order, step by step ----------------------------------------------------------------------------------------------


class TornLog(TracingLog):
    """A log that does not give its records; a look at any of them finds a hole there."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._holes: list[OffsetRange] = []

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        raise CorruptBatchError(f"{start_offset} is torn")

    def holes(self) -> Sequence[OffsetRange]:
        return tuple(self._holes)

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        self._trace.append(f"look at {offset}")
        if OffsetRange(offset, offset + 1) not in self._holes:
            self._holes.append(OffsetRange(offset, offset + 1))
        return self.holes()

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        self._trace.append(f"repair {batches[0].base_offset}")
        self._holes.remove(OffsetRange(batches[0].base_offset, batches[0].end_offset))
        return True


@pytest.fixture(params=[True, False], ids=["inline", "later"])
def torn(request: pytest.FixtureRequest) -> Rig:
    """An executor among fakes, over a log that is torn."""
    rig = Rig(disk=InlineDisk() if request.param else None, log=TornLog)
    rig.executor.start()
    return rig


def batch(base_offset: Offset) -> Batch:
    return encode_batch([b"value"], timestamp_ms=1, base_offset=base_offset, epoch=3)


def test_the_rest_of_what_was_decided_is_done_before_the_disk_looks(torn: Rig) -> None:
    records = act.SendRecords(request_id=7, response="records", start_offset=DAMAGED, max_bytes=1)  # type: ignore[arg-type]
    torn.core.on(ev.RequestReceived, records, act.AppendToLog((batch(0),)), act.SendResponse(8, "next"))
    torn.executor.submit(ev.RequestReceived(7, "fetch", 17))
    torn.executor.submit(ev.RequestReceived(9, "vote", 2))
    torn.disk.finish_all()

    steps = [line for line in torn.trace if line != "disk done"]
    assert steps == ["respond None to 7", "append [0, 1)", "respond next to 8", f"look at {DAMAGED}"]
    assert [type(event) for event in torn.core.events] == [ev.RequestReceived, ev.StorageFailed, ev.RequestReceived]


def test_the_core_hears_what_the_disk_did_before_the_disk_looks() -> None:
    """Repaired says which holes are left: heard last, it would make the core forget the one that was found since."""
    rig = Rig(log=TornLog)
    rig.executor.start()
    rig.log.find_damage(0)  # type: ignore[attr-defined]
    rig.core.on(ev.ResponseReceived, act.WriteRepair((batch(0),)))
    rig.executor.submit(ev.ResponseReceived(1, "records"))
    rig.executor.damage_found(DAMAGED, CorruptBatchError("torn"))
    rig.disk.finish_all()

    assert [type(event) for event in rig.core.events] == [ev.ResponseReceived, ev.Repaired, ev.StorageFailed]
    assert rig.core.events[-1] == ev.StorageFailed((HOLE,), None)
