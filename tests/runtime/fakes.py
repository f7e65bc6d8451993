"""Neighbours of the executor that do nothing by themselves: tests say when a disk is done and what a core decides."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ReplicaFailedError
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.serde import TextSerde
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter, StreamSource
from kraftlib.runtime.committed import CommittedBatch, LoadedSnapshot
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.executor import Executor
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.waiters import Waiters
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import Endpoint, LeaderAndEpoch, Offset, OffsetAndEpoch


class Trace(list[str]):
    """What happened, in order."""


class ScriptedCore:
    """Returns what `on` was told for each kind of event, and remembers the events."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.script: dict[type, deque[Sequence[act.Action]]] = {}
        self.first_actions: Sequence[act.Action] = ()
        self.deadline: int | None = None
        self.wants_records = False
        self.is_indispensable = False
        self.leader_and_epoch = LeaderAndEpoch(None, 0)
        self.role = Role.FOLLOWER
        self.voters = VoterSet()
        self.error: Exception | None = None

    def on(self, event: type, *actions: act.Action) -> None:
        self.script.setdefault(event, deque()).append(actions)

    def start(self, now_ms: int) -> Sequence[act.Action]:
        return self.first_actions

    def handle(self, event: ev.Event, now_ms: int) -> Sequence[act.Action]:
        if self.error is not None:
            raise self.error
        self.events.append(event)
        planned = self.script.get(type(event))
        return planned.popleft() if planned else ()

    def deadline_ms(self) -> int | None:
        return self.deadline


class ManualDisk:
    """Does nothing until it is told to; then one thing at a time."""

    def __init__(self, trace: Trace | None = None) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._trace = Trace() if trace is None else trace

    def run(self, function: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append((function, done))

    def flush(self, log: ReplicatedLog, done: Callable[[Any, BaseException | None], None]) -> None:
        self.run(log.flush, done)

    def finish(self, error: BaseException | None = None) -> None:
        """Do the next job and tell; with `error`, fail instead."""
        function, done = self.jobs.popleft()
        self._trace.append("disk done")
        result = None
        if error is None:
            try:
                result = function()
            except Exception as raised:  # noqa: BLE001 - as a disk does
                error = raised
        done(result, error)

    def finish_all(self) -> None:
        while self.jobs:
            self.finish()

    def close(self) -> None:
        pass


class TracingNetwork:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.sent_batches: list[Sequence[Batch]] = []
        self.on_send: Callable[[int], None] = lambda correlation_id: None

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Any) -> None:
        self._trace.append(f"send {request} to {destination}")
        self.on_send(correlation_id)

    def respond(self, request_id: int, response: Any) -> None:
        self._trace.append(f"respond {response} to {request_id}")

    def respond_records(self, request_ids: Sequence[int], response: Any, batches: Sequence[Batch]) -> None:
        self.sent_batches.append(batches)
        whom = ", ".join(map(str, request_ids))
        self._trace.append(f"records {[(b.base_offset, b.end_offset) for b in batches]} to {whom}")


class TracingListeners:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def advance(self, high_watermark: Offset) -> None:
        self._trace.append(f"committed {high_watermark}")

    def announce(self, leader: LeaderAndEpoch, *, epoch_start: Offset) -> None:
        self._trace.append(f"leader {leader.leader_id} of epoch {leader.epoch} from {epoch_start}")

    def leadership_over(self) -> None:
        self._trace.append("leadership over")


class TracingSnapshots:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.verdict: ev.SnapshotInstalled | ev.SnapshotRefused | None = None

    def when_checked(self, action: act.SendSnapshotChunk, then: Callable[[], None]) -> None:
        then()

    def adopt(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotAdopted | ev.SnapshotRefused:
        self._trace.append(f"adopt {snapshot_id}")
        return ev.SnapshotAdopted(snapshot_id=snapshot_id, controls=(), holes=(), control_batches=())

    def set_aside(self, action: act.SetSnapshotAside) -> ev.SnapshotLost:
        self._trace.append(f"set {action.snapshot_id} aside")
        return ev.SnapshotLost(snapshot_id=action.snapshot_id, start_offset=0, epoch_starts=(), holes=())

    def chunk(self, action: act.SendSnapshotChunk) -> Any:
        return f"chunk of {action.snapshot_id}"

    def write(self, action: act.WriteSnapshotChunk) -> ev.SnapshotChunkWritten | ev.SnapshotRefused:
        self._trace.append(f"write {len(action.data)} at {action.position}")
        return ev.SnapshotChunkWritten(action.snapshot_id, action.position + len(action.data))

    def hash_download(self, action: act.HashDownload, done: Callable[[ev.Event], None]) -> None:
        done(ev.DownloadHashed(action.snapshot_id, action.position, b"hash"))

    def hash(self, action: act.SendSnapshotHash, done: Callable[[Any], None]) -> None:
        done(f"hash of {action.snapshot_id}")

    def drop(self) -> None:
        self._trace.append("drop download")

    def install(self, snapshot_id: OffsetAndEpoch) -> ev.SnapshotInstalled | ev.SnapshotRefused:
        self._trace.append(f"install {snapshot_id}")
        return self.verdict or ev.SnapshotInstalled(snapshot_id, ())


class TracingLog(MemoryReplicatedLog):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self.sync_note: bool | None = None

    def append(self, batches: Sequence[Batch]) -> None:
        self._trace.append(f"append [{batches[0].base_offset}, {batches[-1].end_offset})")
        super().append(batches)

    def truncate(self, end_offset: Offset) -> Offset:
        self._trace.append(f"truncate {end_offset}")
        return super().truncate(end_offset)

    def flush(self) -> Offset:
        self._trace.append("flush")
        return super().flush()


class Rig:
    """An executor among fakes."""

    def __init__(
        self, *, disk: Disk | None = None, log: Callable[[Trace], TracingLog] | None = None, **config: Any
    ) -> None:
        self.trace = Trace()
        self.core = ScriptedCore()
        self.disk = ManualDisk(self.trace)
        self.network = TracingNetwork(self.trace)
        self.snapshots = TracingSnapshots(self.trace)
        self.log: TracingLog = (log or TracingLog)(self.trace)
        self.elections = MemoryQuorumStateStore()
        self.waiters = Waiters()
        self.now_ms = 1_000
        self.timers: list[int] = []
        self.soon: deque[Callable[[], None]] = deque()
        self.failures: list[ReplicaFailedError] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.shut_down = 0
        self.executor = Executor(
            self.core,
            config=RaftConfig(node_id=1, **config),
            log=self.log,
            elections=self.elections,
            disk=disk or self.disk,
            network=self.network,
            sender=self.snapshots,
            snapshots=self.snapshots,
            waiters=self.waiters,
            listeners=TracingListeners(self.trace),
            metrics=RaftMetrics(),
            clock=lambda: self.now_ms,
            wall_clock=lambda: 1_700_000_000_000,
            call_soon=self.soon.append,
            set_timer=self.timers.append,
            on_failure=self.failures.append,
            on_leader=self.leaders.append,
            on_shutdown_complete=self._shut_down,
        )

    def _shut_down(self) -> None:
        self.shut_down += 1

    def turn(self) -> None:
        """Run what was asked for on the next turn of the loop."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def lead(self, epoch: int = 3, base_offset: int = 0) -> None:
        """Make the core say that this replica leads."""
        self.core.leader_and_epoch = LeaderAndEpoch(1, epoch)
        self.core.wants_records = True
        self.core.on(ev.TimeoutReached, act.AcceptAppends(epoch, base_offset))
        self.executor.submit(ev.TimeoutReached())


def committed(*values: bytes, base_offset: int = 5, serde: Any = None) -> CommittedBatch:
    batch = encode_batch(values, timestamp_ms=77, base_offset=base_offset, epoch=3)
    return CommittedBatch(batch, serde or TextSerde())


def snapshot_bytes(*values: bytes, epoch: int = 2, **header: Any) -> bytes:
    out = bytearray()
    writer = SnapshotWriter(out.extend, epoch=epoch, last_contained_log_timestamp=55, **header)
    writer.append(values)
    writer.freeze()
    return bytes(out)


def loaded(data: bytes) -> LoadedSnapshot:
    reader = SnapshotReader(StreamSource(io.BytesIO(data)), epoch=2)
    return LoadedSnapshot(OffsetAndEpoch(epoch=2, offset=9), reader, TextSerde())
