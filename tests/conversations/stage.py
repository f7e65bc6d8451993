"""One controller of a real quorum is played by our core; all others, the network and the clock are as they were.

The core is asked what the real controller was asked, at the time; what it asks is looked up among what the real one
asked, and answered as that was, when that was. What cannot come from the captures is chosen as it came out there: how
long a random timeout was, which bootstrap server was asked, when records were appended.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Final

import attrs

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.consensus.actions import (
    Action,
    AppendToLog,
    BeginEpoch,
    DropSnapshotDownload,
    FlushLog,
    InstallSnapshot,
    PersistElection,
    SendRecords,
    SendRequest,
    SendResponse,
    SendSnapshotChunk,
    SubmitControl,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    Failure,
    Flushed,
    LogTruncated,
    RecordsSubmitted,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    TimeoutReached,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.requests import bootstrap_servers
from kraftlib.consensus.responses import leader_only_error
from kraftlib.consensus.roles import Follower, Leader
from kraftlib.errors import LocalProtocolError
from kraftlib.records.batch import Batch, read_batches
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.opening import view_of
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ZERO_UUID, ElectionState, OffsetAndEpoch
from kraftlib.wire import frames
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import DATA
from tests.conversations.life import Life, Pair, fetch_error, fetch_partition

START_MS: Final = 10_000
"""Added to all times, so that none is negative."""

WALL_MS: Final = 1_795_255_746_262
"""The wall clock at the start of the first life."""

EARLY_MS: Final = 30
"""A real controller may have sent a little before ours does: where ours hears of something with the answer."""


REPLY_MS: Final = 0.3
"""From the decision to the answer on the wire."""

SLACK_MS: Final = 5
"""How far two answers of one moment may lie apart on the wire."""

HELD_MS: Final = 100
"""What was answered later than this did not wait in a queue: a leader held it."""

NEAR_MS: Final = 1_000
"""What a controller said no longer ago than this it would say again."""

LATE_MS: Final = 600
"""And later: a connection had to be made first, or a leader held its Fetch meanwhile."""


@attrs.frozen(kw_only=True)
class Answered:
    """What our core answered to a question, beside what the real controller did."""

    pair: Pair
    at_ms: float
    response: Any
    records: tuple[Batch, ...] = ()


@attrs.frozen(kw_only=True)
class Asked:
    """What our core asked, beside what the real controller asked; None where it asked no such thing."""

    at_ms: float
    target: int
    request: Any
    pair: Pair | None
    follows: int | None
    """The leader that our core fetched from."""


class Scripted(random.Random):
    """Chance, as it came out in the life that is played."""

    def __new__(cls, stage: Stage) -> Scripted:
        return super().__new__(cls, 0)

    def __init__(self, stage: Stage) -> None:
        super().__init__(0)
        self.stage = stage

    def randrange(self, start: int, *more: Any) -> int:  # type: ignore[override]
        """An election timeout ends when the real controller stood; the server asked is the one that it asked."""
        return self.stage.chance(start)


class Stage:
    """Plays one controller of one life."""

    def __init__(self, life: Life, node_id: int) -> None:
        self.life, self.node_id = life, node_id
        self.now = 0.0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = 0
        self.answered: list[Answered] = []
        self.asked: list[Asked] = []
        self.core: Replica | None = None
        self.log = MemoryReplicatedLog()
        self.election: ElectionState | None = None
        self.requests: dict[int, Pair] = {}
        self.waiting: list[Pair] = []
        self.request_id = 0
        self.download = bytearray()
        self.told = list(life.asked_by(node_id))
        self.used: set[int] = set()
        self.found: set[int] = set()
        """Fetches that found the leader, and are still to be sent to it."""
        self.submitted: list[Any] = []
        if not life.is_static and node_id in (1, 2, 3):
            checkpoint = DATA / life.release / "n1/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
            self.log.store_snapshot(BOOTSTRAP_SNAPSHOT, checkpoint.read_bytes())

    # --- the play ----------------------------------------------------------------------------------------------------

    def play(self) -> Stage:
        """Play it to the end."""
        for run in self.life.runs[self.node_id]:
            self.at(run.start_ms, lambda: self.start())
            if run.stop_ms is not None:
                self.at(run.stop_ms, lambda: self.tell(ShutdownRequested(5_000)))
            if run.end_ms != float("inf"):
                self.at(run.end_ms, self.end)
        for pair in self.life.asked_of(self.node_id):
            self.at(pair.sent_ms, lambda pair=pair: self.arrive(pair))
        for at_ms, batches in append_times(self.life, self.node_id):
            self.at(at_ms, lambda batches=batches: self.append(batches))
        while self.queue:
            deadline = self.core.deadline_ms() if self.core is not None else None
            if deadline is not None and deadline - START_MS < self.queue[0][0]:
                self.now = max(self.now, deadline - START_MS)
                self.tell(TimeoutReached())
                continue
            self.now, _, act = heapq.heappop(self.queue)
            act()
        return self

    def at(self, at_ms: float, act: Callable[[], None]) -> None:
        """Do something at that time."""
        self.order += 1
        heapq.heappush(self.queue, (at_ms, self.order, act))

    @property
    def now_ms(self) -> int:
        """The clock of the core."""
        return int(self.now) + START_MS

    # --- what happens ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process from what the disk holds."""
        config = RaftConfig(
            node_id=self.node_id,
            voters=tuple(StaticVoter(n, self.life.endpoint(n)) for n in (1, 2, 3)) if self.life.is_static else (),
            bootstrap_servers=() if self.life.is_static else tuple(self.life.endpoint(n) for n in (1, 2, 3)),
            fetch_max_bytes=8 << 20 if self.life.is_static else 1 << 20,
            disk_reserve_bytes=16 << 20,
        )
        self.core = Replica(
            config,
            key=self.life.keys[self.node_id],
            cluster_id=self.life.cluster_id,
            log=view_of(self.log, config),
            election=self.election,
            random=Scripted(self),
            endpoints={"CONTROLLER": self.life.endpoint(self.node_id)},
            wall_offset_ms=WALL_MS - START_MS,
        )
        self.perform(self.core.start(self.now_ms))

    def end(self) -> None:
        """The process ends; what it has flushed stays."""
        self.core = None
        self.requests.clear()
        self.waiting.clear()

    def tell(self, event: Any) -> None:
        """Hand an event to the core."""
        if self.core is not None:
            self.perform(self.core.handle(event, self.now_ms))
            for snapshot_id in self.life.snapshots:
                committed = self.core.high_watermark
                if (
                    committed is not None
                    and snapshot_id.offset <= committed
                    and snapshot_id not in self.log.snapshots()
                ):
                    self.log.store_snapshot(snapshot_id, snapshot_bytes(self.life, snapshot_id))
                    self.perform(self.core.handle(SnapshotCreated(snapshot_id), self.now_ms))
            self.ask_what_fits()

    def arrive(self, pair: Pair) -> None:
        """A question arrives. In the real controller it may have waited until what came before was done."""
        if self.core is None:
            return
        if pair.answered_ms is None:
            self.ask(pair)
            return
        self.waiting.append(pair)
        if isinstance(pair.request, AddRaftVoterRequest | RemoveRaftVoterRequest):
            self.ask(pair)
        elif not isinstance(pair.request, FetchRequest):
            self.at(max(self.now, pair.answered_ms - REPLY_MS), lambda: self.ask(pair))
        elif pair.answered_ms - pair.sent_ms > HELD_MS:
            self.ask(pair)
        else:
            self.at(pair.answered_ms + SLACK_MS, lambda: self.ask(pair))
        self.ask_what_fits()

    def ask_what_fits(self) -> None:
        """Ask what waits and would be answered now as it was then."""
        for pair in list(self.waiting):
            if self.core is None or pair not in self.waiting:
                return
            state = self.core.state
            if isinstance(pair.request, FetchRequest):
                real = fetch_partition(pair.response)
                leader_id, epoch = real.current_leader.leader_id, real.current_leader.leader_epoch
                error = leader_only_error(state, fetch_partition(pair.request).current_leader_epoch)
            elif is_pre_vote(pair.request):
                real = pair.response.topics[0].partitions[0]
                leader_id, epoch = real.leader_id, real.leader_epoch
                error = real.error_code
            else:
                continue
            known = -1 if state.leader_id is None else state.leader_id
            if (error, state.epoch, known) == (real.error_code, epoch, leader_id):
                self.ask(pair)

    def ask(self, pair: Pair) -> None:
        """Somebody asks."""
        if self.core is None or (pair.answered_ms is not None and pair not in self.waiting):
            return
        if pair in self.waiting:
            self.waiting.remove(pair)
        self.request_id += 1
        self.requests[self.request_id] = pair
        self.tell(RequestReceived(self.request_id, pair.request, pair.version))

    def append(self, batches: tuple[Batch, ...]) -> None:
        """The application of the leader appends."""
        core = self.core
        wanted = tuple(batch for batch in batches if batch.base_offset >= self.log.end_offset)
        if core is None or not isinstance(core.state.role_state, Leader) or not wanted:
            return
        self.tell(RecordsSubmitted(wanted, core.epoch))

    # --- what the core does ------------------------------------------------------------------------------------------

    def perform(self, actions: list[Action]) -> None:
        """Carry out actions in order, as an executor with a fast disk does."""
        core = self.core
        follow_up: list[Any] = []
        for action in actions:
            match action:
                case PersistElection(election):
                    self.election = election
                case BeginEpoch(epoch, start_offset):
                    self.log.begin_epoch(epoch, start_offset)
                case AppendToLog(batches):
                    self.log.append(batches)
                case TruncateLog(end_offset):
                    follow_up.insert(0, LogTruncated(self.log.truncate(end_offset)))
                case FlushLog(log_version):
                    follow_up.append(Flushed(self.log.flush(), log_version))
                case SendRequest(correlation_id, _, endpoint, request):
                    # The runtime sends tagged fields of ours to replicas of ours alone.
                    self.send(correlation_id, endpoint.port % 100, attrs.evolve(request, unknown_tagged_fields=()))
                case SendResponse(request_id, response):
                    self.answer(request_id, response)
                case SendRecords(request_id, response, start_offset, max_bytes):
                    self.answer(request_id, response, tuple(self.log.read(start_offset, max_bytes)))
                case SendSnapshotChunk(request_id, response, snapshot_id, position, max_bytes):
                    data = snapshot_bytes(self.life, snapshot_id)
                    self.answer(request_id, with_chunk(response, data, position, max_bytes))
                case WriteSnapshotChunk(snapshot_id, position, data, _):
                    self.download[position:] = data
                    follow_up.append(SnapshotChunkWritten(snapshot_id, len(self.download)))
                case DropSnapshotDownload():
                    self.download.clear()
                case InstallSnapshot(snapshot_id):
                    follow_up.append(self.install(snapshot_id))
                case SubmitControl(records):
                    self.submitted += records
        if core is self.core:
            for event in follow_up:
                self.tell(event)

    def install(self, snapshot_id: OffsetAndEpoch) -> SnapshotInstalled:
        """Let a downloaded snapshot take the place of the log."""
        self.log.store_snapshot(snapshot_id, bytes(self.download))
        self.log.install_snapshot(snapshot_id)
        with SnapshotReader(self.log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
            voters = reader.voters
        from kraftlib.records.control_messages import KRaftVersionRecord

        return SnapshotInstalled(snapshot_id, (KRaftVersionRecord(kraft_version=1), voters))

    def answer(self, request_id: int, response: Any, records: tuple[Batch, ...] = ()) -> None:
        """Note an answer beside the real one."""
        pair = self.requests.pop(request_id)
        self.answered.append(Answered(pair=pair, at_ms=self.now, response=response, records=records))

    def send(self, correlation_id: int, target: int, request: Any) -> None:
        """Look up what the real controller asked, and let its answer come when it came."""
        if isinstance(request, ApiVersionsRequest):
            feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            response = ApiVersionsResponse(supported_features=(feature,))
            self.at(self.now + 10, lambda: self.tell(ResponseReceived(correlation_id, response)))
            return
        knows_no_pre_vote = self.life.is_static and isinstance(request, VoteRequest) and is_pre_vote(request)
        pair = None if knows_no_pre_vote else self.counterpart(target, request)
        role = self.core.state.role_state if self.core is not None else None
        follows = role.leader_id if isinstance(role, Follower) else None
        self.asked.append(Asked(at_ms=self.now, target=target, request=request, pair=pair, follows=follows))
        if knows_no_pre_vote:
            self.at(self.now, lambda: self.tell(RequestFailed(correlation_id, Failure.UNSUPPORTED_VERSION)))
        elif isinstance(request, UpdateRaftVoterRequest):
            unsupported = UpdateRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            self.at(self.now + 1, lambda: self.tell(ResponseReceived(correlation_id, unsupported)))
        elif pair is None and (answer := self.answer_in_vain(target, request)) is not None:
            self.at(self.now + 1, lambda: self.tell(ResponseReceived(correlation_id, answer)))
        elif pair is None or pair.answered_ms is None:
            at_ms = self.now + 1 if pair is None else pair.sent_ms + 1
            self.at(at_ms, lambda: self.tell(RequestFailed(correlation_id, Failure.DISCONNECTED)))
        else:
            at_ms = max(pair.answered_ms, self.now + 0.1)
            self.at(at_ms, lambda: self.tell(ResponseReceived(correlation_id, pair.response)))

    def counterpart(self, target: int, request: Any) -> Pair | None:
        """The same question of the real controller, sent there at about this time.

        The real one fetches from whomever it asks who leads. Ours only asks, and then fetches from the leader: the one
        Fetch is the counterpart of both.
        """
        searches = is_search(request)
        if searches:
            request = self.as_fetch(request)
        again: Pair | None = None
        for index, pair in enumerate(self.told):
            if pair.sent_ms > self.now + LATE_MS:
                break
            if (
                pair.target != target
                or type(pair.request) is not type(request)
                or as_frame(request, pair) != pair.frame
            ):
                continue
            if index not in self.used and (pair.sent_ms >= self.now - EARLY_MS or index in self.found):
                (self.found if searches and not fetch_error(pair.response) else self.used).add(index)
                return pair
            if pair.answered_ms is not None and pair.answered_ms > self.now:
                # Ours forgot that it asked, by a change of role, and asks again.
                again = pair
        return again

    def as_fetch(self, request: FetchRequest) -> FetchRequest:
        """What a controller that seeks the leader by fetching would have sent in the place of our search."""
        key, (topic,) = self.life.keys[self.node_id], request.topics
        partition = attrs.evolve(topic.partitions[0], replica_directory_id=key.directory_id or ZERO_UUID)
        return attrs.evolve(
            request,
            replica_state=FetchRequest.ReplicaState(replica_id=key.id),
            max_wait_ms=RaftConfig(node_id=key.id).fetch_max_wait_ms,
            topics=(attrs.evolve(topic, partitions=(partition,)),),
        )

    def answer_in_vain(self, target: int, request: Any) -> Any:
        """What a controller that does not lead would have said to a Fetch that the real controller did not send it.

        As it answered others at about that time: whom it took for the leader, and in which epoch.
        """
        if not isinstance(request, FetchRequest) or not self.life.listens(target, self.now):
            return None
        told = min(
            (pair for pair in self.life.refused_fetches if pair.target == target),
            key=lambda pair: abs((pair.answered_ms or 0) - self.now),
        )
        if abs((told.answered_ms or 0) - self.now) > NEAR_MS:
            return None
        theirs, ours = fetch_partition(told.response).current_leader.leader_epoch, fetch_partition(request)
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if ours.current_leader_epoch != theirs:
            is_old = ours.current_leader_epoch < theirs
            error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        (topic,) = told.response.responses
        partition = attrs.evolve(topic.partitions[0], error_code=error)
        return attrs.evolve(told.response, responses=(attrs.evolve(topic, partitions=(partition,)),))

    def chance(self, below: int) -> int:
        """What chance was in this life."""
        core = self.core
        if core is None:
            return 0
        if below == core.state.config.election_timeout_ms:
            stood = next((pair.sent_ms for pair in self.stands() if pair.sent_ms > self.now + EARLY_MS), None)
            wanted = int(stood - self.now - below) if stood is not None else below - 1
            return min(max(wanted, 0), below - 1) if wanted < below else below - 1
        ready = [
            place.port % 100
            for number, place in bootstrap_servers(core.state)
            if core.state.connections.is_ready(number, self.now_ms)
        ]
        if below == len(ready):
            asked = (
                pair.target
                for pair in self.told
                if isinstance(pair.request, FetchRequest) and pair.sent_ms >= self.now - 1 and pair.target in ready
            )
            return ready.index(next(asked, ready[0]))
        return 0

    def stands(self) -> list[Pair]:
        """The first Vote of each election of the real controller."""
        first: dict[tuple[int, bool], Pair] = {}
        for pair in self.told:
            if isinstance(pair.request, VoteRequest):
                partition = pair.request.topics[0].partitions[0]
                first.setdefault((partition.replica_epoch, partition.pre_vote), pair)
        if any(pre_vote for _, pre_vote in first):
            return [pair for (_, pre_vote), pair in first.items() if pre_vote]
        return list(first.values())


def as_frame(request: Any, pair: Pair) -> bytes | None:
    """The bytes of `request`, sent as the real one; None if it cannot be."""
    head = pair.head
    try:
        return frames.encode_request(
            request, version=head.api_version, correlation_id=head.correlation_id, client_id=head.client_id
        )
    except LocalProtocolError:
        return None


def is_search(request: Any) -> bool:
    """Whether it only asks who leads: a Fetch under nobody's name."""
    return isinstance(request, FetchRequest) and request.replica_state.replica_id < 0


def is_pre_vote(request: Any) -> bool:
    """Whether it is a Vote that binds nothing."""
    return isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote


def append_times(life: Life, node_id: int) -> list[tuple[float, tuple[Batch, ...]]]:
    """When a leader appended what: no later than it first sent it, and no earlier than it had to send it."""
    first: dict[int, tuple[float, Batch]] = {}
    for pair in life.asked_of(node_id):
        if not isinstance(pair.response, FetchResponse) or not pair.response.responses or pair.answered_ms is None:
            continue
        partition = pair.response.responses[0].partitions[0]
        for batch in read_batches(partition.records or b"", drop_incomplete=True):
            if partition.current_leader.leader_id == node_id and batch.epoch == partition.current_leader.leader_epoch:
                known = first.get(batch.base_offset)
                if known is None or known[0] > pair.answered_ms:
                    first[batch.base_offset] = (pair.answered_ms, batch)
    # A batch is there no later than the ones behind it.
    times: dict[float, list[Batch]] = {}
    at_ms = float("inf")
    for offset in sorted(first, reverse=True):
        at_ms = min(at_ms, first[offset][0])
        times.setdefault(at_ms, []).insert(0, first[offset][1])
    return [(at_ms, tuple(batches)) for at_ms, batches in sorted(times.items(), key=lambda item: item[0])]


def snapshot_bytes(life: Life, snapshot_id: OffsetAndEpoch) -> bytes:
    """A snapshot that the controllers made."""
    name = f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"
    return sorted((DATA / life.release).glob(f"n*/*/{name}"))[-1].read_bytes()


def with_chunk(response: Any, data: bytes, position: int, max_bytes: int) -> Any:
    """Put a slice of a snapshot into an answer, as an executor does."""
    (topic,) = response.topics
    (partition,) = topic.partitions
    chunk = data[position : position + max_bytes]
    partition = attrs.evolve(partition, size=len(data), unaligned_records=chunk)
    return attrs.evolve(response, topics=(attrs.evolve(topic, partitions=(partition,)),))
