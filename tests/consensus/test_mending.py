"""A follower whose disk loses records and snapshots again and again comes to know its log as its disk has it.

One real core with the disk of the core fuzzer follows leaders that have everything. In between leaders change and cut
what is not committed, voters change, retention goes on, and the power goes. The rules look on. After each event the
core must know its log as a core that starts would; when all trouble is over it must have the log of its leader, its
voters, and a vote. `MENDING_SEEDS=20000-24000` looks at more seeds.
"""

from __future__ import annotations

import os
import random as chance
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.log_view import Diverging, LogView, NeedsSnapshot
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.types import BOOTSTRAP_SNAPSHOT, EpochStart, OffsetAndEpoch, OffsetRange, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from tests.consensus.build import CLUSTER, LISTENER, begin_request, fetch_response, place, snapshot_chunk, voter_set
from tools.core_fuzz.store import CoreStore, PendingFlush, StoredSnapshot
from tools.rules import Referee

STEPS = 400
STEPS_TO_MEND = 600
OWN = ReplicaKey(1, UUID(int=1_001))


def members(ids: Iterable[int]) -> VoterSet:
    """Voters of a dynamic quorum."""
    keys = [ReplicaKey(voter_id, UUID(int=1_000 + voter_id)) for voter_id in ids]
    return VoterSet.of(Voter(key=key, endpoints={LISTENER: place(key.id)}, max_kraft_version=1) for key in keys)


class Leaders:
    """The replicas 2 and 3, which lead by turns: what they have appended is there, and cut only if not committed."""

    def __init__(self, random: chance.Random, *, dynamic: bool) -> None:
        self.random = random
        self.dynamic = dynamic
        self.first = members((1, 2, 3)) if dynamic else voter_set(1, 2, 3)
        self.leader_id, self.epoch = 2, 1
        self.batches: list[Batch] = []
        self.committed = 0
        self.snapshots: list[OffsetAndEpoch] = []
        self.start_offset = 0
        self._begin_epoch()

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset

    def known(self, end_offset: int | None = None) -> tuple[int, VoterSet]:
        """kraft.version and voters in force before an offset."""
        view = LogView.build(static_voters=self.first)
        for batch in self.batches:
            if batch.is_control and (end_offset is None or batch.end_offset <= end_offset):
                view.observe(batch)
        return max(view.kraft_version.latest, int(self.dynamic)), view.voters.latest

    def header(self, end_offset: int) -> StoredSnapshot:
        """The snapshot that ends there."""
        version, voters = self.known(end_offset)
        controls = (KRaftVersionRecord(kraft_version=version), voters.to_record()) if version else ()
        return StoredSnapshot(b"x", controls)

    def _upgrade(self) -> tuple[Any, Any]:
        return KRaftVersionRecord(kraft_version=1), members((1, 2, 3)).to_record()

    def _begin_epoch(self) -> None:
        more = self._upgrade() if self.dynamic and not self.batches else ()
        self.began_at = self.end_offset if self.batches else 0
        voters = tuple(LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in self.known()[1].ids)
        self._append_controls(LeaderChangeMessage(leader_id=self.leader_id, voters=voters), *more)

    def _append_controls(self, *controls: Any) -> None:
        base_offset = self.end_offset if self.batches else 0
        self.batches.append(
            encode_control_batch(list(controls), timestamp_ms=0, base_offset=base_offset, epoch=self.epoch)
        )

    def append(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            version, voters = self.known()
            last_control = max(batch.end_offset for batch in self.batches if batch.is_control)
            if self.random.random() < 0.7 or last_control > self.committed:
                values = [b"%d" % self.random.getrandbits(30)] * self.random.choice((1, 1, 3))
                self.batches.append(encode_batch(values, timestamp_ms=0, base_offset=self.end_offset, epoch=self.epoch))
            elif version == 0:
                self._append_controls(*self._upgrade())
            else:
                self._append_controls(members({*voters.ids} ^ {self.random.choice((4, 5))}).to_record())

    def commit(self) -> None:
        ends = [batch.end_offset for batch in self.batches if batch.end_offset > self.committed]
        self.committed = self.random.choice(ends) if ends else self.committed

    def elect(self) -> None:
        """The other one leads, whose log may be shorter."""
        open_ends = [batch for batch in self.batches if batch.end_offset > self.committed]
        kept = self.random.randint(0, len(open_ends)) if self.random.random() < 0.6 else len(open_ends)
        self.batches = self.batches[: len(self.batches) - len(open_ends) + kept]
        self.epoch += self.random.randint(1, 2)
        self.leader_id = 5 - self.leader_id
        self._begin_epoch()

    def snapshot(self) -> None:
        after = max([self.start_offset, *(kept.offset for kept in self.snapshots)])
        ends = [batch for batch in self.batches if after < batch.end_offset <= self.committed]
        if ends:
            batch = self.random.choice(ends)
            self.snapshots.append(OffsetAndEpoch(offset=batch.end_offset, epoch=batch.epoch))
            if self.random.random() < 0.6:
                self.start_offset, self.snapshots = batch.end_offset, self.snapshots[-1:]

    def answer(self, request: Any, asked_id: int) -> Any:
        """What the replica that is asked says."""
        partition = request.topics[0].partitions[0]
        said: dict[str, Any] = {"epoch": self.epoch, "leader_id": self.leader_id}
        if partition.current_leader_epoch < self.epoch:
            said["error"] = ErrorCode.FENCED_LEADER_EPOCH
        elif asked_id != self.leader_id:
            said["error"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(request, FetchSnapshotRequest):
            wanted = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
            if wanted not in self.snapshots:
                said.setdefault("error", ErrorCode.SNAPSHOT_NOT_FOUND)
            return snapshot_chunk(b"x", size=1, snapshot_id=wanted, **said)
        if "error" not in said:
            said |= self._judge(partition.fetch_offset, partition.last_fetched_epoch)
        return fetch_response(**said)

    def _judge(self, offset: int, epoch: int) -> dict[str, Any]:
        starts: dict[int, int] = {}
        for batch in self.batches:
            if batch.end_offset > self.start_offset:
                starts.setdefault(batch.epoch, batch.base_offset)
        view = LogView.build(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            epoch_starts=[EpochStart(epoch=begun, start_offset=start) for begun, start in starts.items()],
            snapshots=self.snapshots,
        )
        judgement = view.validate(offset, epoch)
        if offset == 0 and view.latest_snapshot is not None:
            judgement = NeedsSnapshot(view.latest_snapshot)
        said: dict[str, Any] = {"high_watermark": self.committed if self.committed > self.began_at else -1}
        if isinstance(judgement, Diverging):
            said["diverging"] = judgement.end.offset, judgement.end.epoch
        elif isinstance(judgement, NeedsSnapshot):
            said["snapshot"] = judgement.snapshot_id.offset, judgement.snapshot_id.epoch
        else:
            sent = [batch for batch in self.batches if batch.end_offset > offset][: self.random.choice((1, 1, 2, 5))]
            said["records"] = b"".join(bytes(batch.data) for batch in sent)
        return said


class Follower:
    """Replica 1, its disk, and all that happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = random = chance.Random(seed)
        self.leaders = Leaders(random, dynamic=random.random() < 0.6)
        dynamic = self.leaders.dynamic
        self.static_voters = None if dynamic else self.leaders.first
        self.store = CoreStore(self.leaders.header(0) if dynamic else None)
        self.now_ms = 1_000
        self.core: Replica | None = None
        deeds: dict[Callable[[], object], float] = {
            self.deliver: 40, self.finish_flush: 20, self.pass_time: 10, self.finish_hash: 5, self.start: 3,
            self.leaders.append: 6, self.leaders.commit: 6, self.elect: 1.2, self.leaders.snapshot: 0.8,
            self.introduce: 0.5, self.take_snapshot: 3, self.lose_snapshot: 0.8, self.damage: 1.2, self.lose_power: 1,
        }  # fmt: skip
        common = (self.deliver, self.pass_time, self.finish_hash, self.start)
        self.deeds = list(deeds)
        self.weights = [
            weight if deed in common else weight * random.choice((0.2, 1, 1, 4)) for deed, weight in deeds.items()
        ]
        self.start()

    # --- lives -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life, unless there is one."""
        if self.core is not None:
            return
        store = self.store
        if store.holes:
            store.come_upon_damage()
        newest = max(store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if not store.is_damaged and newest > store.end:
            store.install(newest, store.snapshots[newest])  # as the storage does when it is opened
        self.core = Replica(
            RaftConfig(
                node_id=1,
                bootstrap_servers=tuple(map(place, (1, 2, 3))),
                fetch_timeout_ms=10_000_000,
                election_timeout_ms=1_000_000,
                fetch_max_wait_ms=50,
            ),
            key=OWN,
            cluster_id=CLUSTER,
            log=store.view(self.static_voters),
            election=store.election,
            random=chance.Random(self.random.getrandbits(30)),
            endpoints={LISTENER: place(1)},
            kept=store.kept_download(),
        )
        self.referee = Referee(self.core)
        self.sent: list[act.SendRequest[Any]] = []
        self.said_by_disk: list[ev.Event] = []
        self.hashed: list[ev.Event] = []
        self.high_watermark = 0
        self.applied_from = max((kept.offset for kept in store.snapshots), default=0)
        self._perform(self.referee.start(self.now_ms))
        self._hear_disk()
        self.introduce()

    def lose_power(self) -> None:
        """Records that were not flushed are gone; now and then durable ones with them, or all from somewhere on."""
        if self.core is not None:
            self.core = None
            self.store.crash(self.random)
            if self.random.random() < 0.3:
                self.damage(to_end=True)

    def tell(self, event: ev.Event) -> None:
        """Let the core handle an event."""
        if self.core is not None:
            self._handle(event)
            self._hear_disk()

    def _hear_disk(self) -> None:
        while self.said_by_disk:
            self._handle(self.said_by_disk.pop(0))

    def _handle(self, event: ev.Event) -> None:
        self._perform(self.referee.handle(event, self.now_ms))
        if not self.said_by_disk:
            self._look()

    def _look(self) -> None:
        """The core knows what its disk has, and goes by the header of a lost snapshot before whose end it was cut."""
        log, found = self.referee.core.state.log, self.store.view(self.static_voters)
        assert (log.start_offset, log.end, log.snapshots) == (found.start_offset, found.end, found.snapshots)
        assert log.holes == found.holes
        assert len(log.voters.latest) > 0
        if not self.store.is_damaged and log.header_offset <= log.end_offset:
            assert (log.kraft_version.latest, log.voters.latest) == (found.kraft_version.latest, found.voters.latest)

    def _perform(self, actions: Sequence[act.Action]) -> None:
        store = self.store
        for action in actions:
            match action:
                case act.PersistElection():
                    store.catch_up()
                    store.election = action.election
                case act.AppendToLog():
                    assert not store.holes
                    store.append(action.batches)
                case act.FlushLog():
                    store.flushes.append(PendingFlush(store.end_offset, action.log_version))
                case act.TruncateLog():
                    store.catch_up()
                    self._cut(store.truncate(action.end_offset))
                case act.WriteRepair():
                    store.catch_up()
                    self.said_by_disk.append(store.write_repair(action.batches))
                case act.DeleteBefore():
                    store.delete_before(action.snapshot_id)
                case act.AdvanceHighWatermark():
                    self.high_watermark = max(self.high_watermark, action.high_watermark)
                case act.SendRequest():
                    self.sent.append(action)
                case act.WriteSnapshotChunk():
                    store.write_chunk(action.snapshot_id, action.position, bytes(action.data), size=action.size)
                    size = action.position + len(action.data)
                    self.said_by_disk.append(ev.SnapshotChunkWritten(action.snapshot_id, size))
                case act.HashDownload():
                    digest = store.digest(action.snapshot_id, action.position)
                    self.hashed.append(ev.DownloadHashed(action.snapshot_id, action.position, digest))
                case act.DropSnapshotDownload():
                    store.incoming = None
                case act.InstallSnapshot() | act.AdoptSnapshot():
                    self._replace(action)
                case act.SetSnapshotAside():
                    self.said_by_disk.append(store.set_aside(action.snapshot_id))

    def _cut(self, dropped: Sequence[Batch]) -> None:
        """What is committed is cut only by a replica that knows that it lacks something."""
        assert self.core is not None
        lost = [batch for batch in dropped if batch.end_offset <= self.leaders.committed]
        assert self.core.state.amnesia is not None or not [one for one in lost if one in self.leaders.batches]
        self.said_by_disk.append(ev.LogTruncated(self.store.end_offset))

    def _replace(self, action: act.InstallSnapshot | act.AdoptSnapshot) -> None:
        store, snapshot_id = self.store, action.snapshot_id
        snapshot = self.leaders.header(snapshot_id.offset)
        store.catch_up()
        if isinstance(action, act.InstallSnapshot):
            store.install(snapshot_id, snapshot)
            self.said_by_disk.append(ev.SnapshotInstalled(snapshot_id, snapshot.controls))
            return
        store.adopt(snapshot_id, snapshot)
        adopted = ev.SnapshotAdopted(
            snapshot_id=snapshot_id,
            controls=snapshot.controls,
            holes=tuple(store.holes),
            control_batches=store.control_batches(),
        )
        self.said_by_disk.append(adopted)

    # --- what happens ------------------------------------------------------------------------------------------------

    def introduce(self) -> None:
        if self.core is not None:
            request = begin_request(epoch=self.leaders.epoch, leader_id=self.leaders.leader_id)
            self.tell(ev.RequestReceived(1, request, 1))

    def elect(self) -> None:
        self.leaders.elect()
        self.introduce()

    def deliver(self) -> None:
        """One request is answered."""
        if self.core is None or not self.sent:
            return
        sent = self.sent.pop(self.random.randrange(len(self.sent)))
        if isinstance(sent.request, FetchRequest | FetchSnapshotRequest):
            answer = self.leaders.answer(sent.request, sent.endpoint.port - place(0).port)
            self.tell(ev.ResponseReceived(sent.correlation_id, answer))
        else:
            self.tell(ev.RequestFailed(sent.correlation_id, ev.Failure.DISCONNECTED))

    def finish_flush(self) -> None:
        if self.core is not None and self.store.flushes:
            flush = self.store.flushes.pop(0)
            end_offset = min(flush.end_offset, self.store.end_offset)
            self.store.flushed_offset = max(self.store.flushed_offset, end_offset)
            self.tell(ev.Flushed(end_offset, flush.log_version))

    def finish_hash(self) -> None:
        if self.core is not None and self.hashed:
            self.tell(self.hashed.pop(0))

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 10, 100, 500))
        self.tell(ev.TimeoutReached())

    def take_snapshot(self) -> None:
        """The state machine may have begun anew with an older snapshot, or with none."""
        store = self.store
        if self.core is None or store.is_damaged:
            return
        view = self.core.state.log
        newest = max([self.applied_from, view.voters_known_from - 1, *(kept.offset for kept in store.snapshots)])
        ends = [batch for batch in store.batches if newest < batch.end_offset <= self.high_watermark]
        if not ends:
            return
        batch = self.random.choice(ends[:2] + ends[-2:])
        snapshot_id = OffsetAndEpoch(offset=batch.end_offset, epoch=batch.epoch)
        snapshot = self.leaders.header(snapshot_id.offset)
        known = view.kraft_version.at(snapshot_id.offset - 1), view.voters.at(snapshot_id.offset - 1)
        assert known == self.leaders.known(snapshot_id.offset)
        store.snapshots[snapshot_id] = snapshot
        self.tell(ev.SnapshotCreated(snapshot_id))
        if self.random.random() < 0.5:
            self.tell(ev.RetentionDue(snapshot_id))

    def lose_snapshot(self) -> None:
        found = [kept for kept in sorted(self.store.snapshots) if kept != BOOTSTRAP_SNAPSHOT]
        if not found:
            return
        lost = self.random.choice(found)
        if self.core is None:
            self.store.set_aside(lost)
        else:
            self.tell(ev.SnapshotDamaged(lost, "damaged"))

    def damage(self, *, to_end: bool = False) -> None:
        """Durable records are lost: a few, most often near the end, or all from somewhere on."""
        store, random = self.store, self.random
        holes = [*store.holes, *store.latent]
        found = [
            batch
            for batch in store.batches
            if batch.end_offset <= store.flushed_offset
            and not any(hole.start_offset <= batch.base_offset < hole.end_offset for hole in holes)
        ]
        if not found:
            return
        first = last = max(random.randrange(len(found)), random.choice((0, len(found) - 4)))
        while last + 1 < len(found) and found[last].end_offset == found[last + 1].base_offset:
            if not to_end and random.random() < 0.3:
                break
            last += 1
        store.latent.append(OffsetRange(found[first].base_offset, found[last].end_offset))
        if self.core is None:
            store.come_upon_damage()
        else:
            store.catch_up()
            self.tell(store.come_upon_damage())

    def step(self) -> None:
        """One of all that may happen."""
        self.random.choices(self.deeds, self.weights)[0]()

    # --- the end -----------------------------------------------------------------------------------------------------

    def is_mended(self) -> bool:
        """Whether it has all that its leader has, and votes."""
        assert self.core is not None
        state = self.core.state
        has_all = state.log.end == OffsetAndEpoch(epoch=self.leaders.epoch, offset=self.leaders.end_offset)
        return has_all and not state.log.holes and state.amnesia is None and state.role is Role.FOLLOWER

    def mend(self) -> None:
        """No more trouble."""
        self.start()
        self.leaders.append()
        self.leaders.committed = self.leaders.end_offset
        for number in range(STEPS_TO_MEND):
            if self.is_mended():
                return
            if number % 50 == 0:
                self.introduce()
            for deed in (self.deliver, self.finish_flush, self.finish_hash, self.pass_time):
                deed()
        pytest.fail(f"it is not mended: {self.referee.core.status()}")


def seeds() -> range:
    """Those that are looked at."""
    first, last = os.environ.get("MENDING_SEEDS", "0-40").split("-")
    return range(int(first), int(last))


@pytest.mark.parametrize("seed", seeds())
def test_whatever_a_disk_loses_its_replica_has_all_in_the_end(seed: int) -> None:
    """And it knows its log, its voters included, at every moment."""
    follower = Follower(seed)
    for _ in range(STEPS):
        follower.step()
    follower.mend()

    core = follower.referee.core
    assert (core.kraft_version, core.voters) == follower.leaders.known()
