"""Conversations between replicas as scripts: commands, `---`, the exact outcome.

A script drives real cores over a fake wire. Nothing moves but what a command moves, so that the trace is what a
reader would draw on paper. `KRAFTLIB_REWRITE=1 pytest tests/consensus` writes the outcomes anew; the diff is reviewed
like code.

Commands (key=value arguments; an id is a replica):

    cluster voters=1,2,3 [observers=4] [log=[0@1 1@1]] [log:3=[...]] [election:2=epoch/leader/vote[/lost]]
            [manual_flush=yes] [hole:3=1-3]    the third has lost the records from 1 to before 3
    start [ids]              start all, or these
    elect id=1 [of=1,2]      start all that are not (or these), and let this one become leader; leaves no trace
    timeout id=2             let the clock run to what this replica waits for, and tell it
    sleep ms=100 [id=2]      let the clock run, and tell all (or one) that were due
    deliver [from=1] [to=2] [kind=Vote] [count=1]    deliver what is under way, once
    stabilize                deliver everything until nothing is under way
    drop [from=1] [to=2]     lose what is under way
    cut id=3 | heal id=3     lose everything from and to this replica, until it is healed
    run ms=2000              let time pass and deliver everything; Fetches leave no trace
    append id=1 [count=2]    submit records to the leader
    flush id=1               let an outstanding flush of manual_flush=yes finish
    lose id=2 peer=1 [refused=yes]     the connection of 2 to 1 is gone
    restart id=1             crash (unflushed records are lost) and start again
    forget id=2              lose the election file; restart it then
    resign id=1 | shutdown id=1
    read id=2 [ms=1000]      ask for a read barrier
    status                   a line per replica
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator
from typing import Any

import attrs

from kraftlib.config import RaftConfig
from kraftlib.consensus.actions import (
    AcceptAppends,
    Action,
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendToLog,
    BeginEpoch,
    FlushLog,
    PassReadBarrier,
    PersistElection,
    RefuseAppends,
    RefuseReadBarrier,
    SendRecords,
    SendRequest,
    SendResponse,
    ShutdownComplete,
    TruncateLog,
    WriteRepair,
)
from kraftlib.consensus.events import (
    ConnectionLost,
    Failure,
    Flushed,
    LogTruncated,
    ReadBarrierRequested,
    RecordsSubmitted,
    Repaired,
    RepairWritten,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    StateMachineFailed,
    TimeoutReached,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.outstanding import FIRST_LANE
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.types import ElectionState, Endpoint, EpochStart, OffsetRange, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from tests.consensus.build import pending_requests

LISTENER = "CONTROLLER"
VERSIONS = {
    "Vote": 2,
    "BeginQuorumEpoch": 1,
    "EndQuorumEpoch": 1,
    "Fetch": 18,
    "FetchSnapshot": 1,
    "UpdateRaftVoter": 0,
}


def api_of(message: Any) -> str:
    """`VoteRequest` -> `Vote`."""
    return re.sub(r"(Request|Response)$", "", type(message).__name__)


@attrs.define
class Envelope:
    """A message under way."""

    source: int
    target: int
    message: Any
    correlation_id: int


@attrs.define
class Node:
    """One core and what its disk holds."""

    key: ReplicaKey
    replica: Replica | None = None
    batches: list[Batch] = attrs.field(factory=list)
    flushed: int = 0
    hole: OffsetRange | None = None
    election: ElectionState | None = None
    flushes: list[tuple[int, int]] = attrs.field(factory=list)
    requests: dict[int, Envelope] = attrs.field(factory=dict)

    @property
    def end(self) -> int:
        """Log end offset on disk, flushed or not."""
        return self.batches[-1].end_offset if self.batches else 0

    def epoch_starts(self) -> list[EpochStart]:
        """Epochs on disk, and where they start."""
        starts: list[EpochStart] = []
        for batch in self.batches:
            if not starts or starts[-1].epoch != batch.epoch:
                starts.append(EpochStart(epoch=batch.epoch, start_offset=batch.base_offset))
        return starts


class Script:
    """Runs one script; `lines` is its trace."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.wire: list[Envelope] = []
        self.lines: list[str] = []
        self.now_ms = 0
        self.manual_flush = False
        self.voters = VoterSet()
        self._next_request_id = 0
        self._next_read = 0
        self._cut: set[int] = set()

    # --- commands ----------------------------------------------------------------------------------------------------

    def run(self, text: str) -> list[str]:
        """Perform each line of `text`; return the trace."""
        for line in text.splitlines():
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            words = re.findall(r"[\w:]+=\[[^\]]*\]|\S+", line)
            arguments = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            plain = [word for word in words[1:] if "=" not in word]
            if words[0] != "cluster":
                self.lines.append(f"> {line}")
            getattr(self, f"do_{words[0]}")(
                *plain, **{key.replace(":", "_"): value for key, value in arguments.items()}
            )
        return self.lines

    def do_cluster(self, voters: str, observers: str = "", manual_flush: str = "no", **more: str) -> None:
        """Lay out replicas; `log_3` etc. give one of them an own log."""
        ids = [int(text) for text in voters.split(",")]
        self.manual_flush = manual_flush == "yes"
        self.voters = VoterSet.of(
            Voter(key=ReplicaKey(voter_id), endpoints={LISTENER: Endpoint("localhost", 9000 + voter_id)})
            for voter_id in ids
        )
        for replica_id in [*ids, *(int(text) for text in observers.split(",") if text)]:
            node = self.nodes[replica_id] = Node(ReplicaKey(replica_id, uuid.UUID(int=1_000 + replica_id)))
            text = more.get(f"log_{replica_id}", more.get("log", ""))
            for offset, epoch in re.findall(r"(\d+)@(\d+)", text):
                node.batches.append(encode_batch([b"x"], timestamp_ms=0, base_offset=int(offset), epoch=int(epoch)))
            node.flushed = node.end
            if lost := more.get(f"hole_{replica_id}"):
                node.hole = OffsetRange(*map(int, lost.split("-")))
            recorded = more.get(f"election_{replica_id}", more.get("election", ""))
            if recorded:
                epoch, leader, vote, *lost = recorded.split("/")
                node.election = ElectionState(
                    epoch=int(epoch),
                    leader_id=None if leader == "-" else int(leader),
                    voted_key=None if vote == "-" else ReplicaKey(int(vote)),
                    amnesiac=lost == ["lost"],
                )

    def do_start(self, *ids: str) -> None:
        """Start replicas from what their disks hold."""
        for replica_id in [int(text) for text in ids] or list(self.nodes):
            node = self.nodes[replica_id]
            starts = node.epoch_starts()
            view = LogView.build(end_offset=node.end, epoch_starts=starts, static_voters=self.voters)
            view.holes = [node.hole] if node.hole is not None else []
            node.replica = Replica(
                RaftConfig(node_id=replica_id),
                key=node.key,
                cluster_id="cluster",
                log=view,
                election=node.election,
                random=random.Random(replica_id),
                endpoints={LISTENER: Endpoint("localhost", 9000 + replica_id)},
            )
            self.perform(node, node.replica.start(self.now_ms))

    def do_elect(self, id: str, of: str = "") -> None:
        """Bring up a leader that everybody follows, without a word of how: other scripts tell that."""
        trace, self.lines = self.lines, []
        ids = [int(text) for text in of.split(",") if text] or list(self.nodes)
        self.do_start(*(str(replica_id) for replica_id in ids if self.nodes[replica_id].replica is None))
        self.wire.clear()
        node = self.nodes[int(id)]
        assert node.replica is not None
        if node.replica.leader_and_epoch.leader_id != node.key.id:
            self.do_timeout(id)
            self.do_drop(kind="Fetch")
        self.do_stabilize()
        self.do_sleep(ms="2")
        self.do_stabilize()
        assert node.replica.leader_and_epoch.leader_id == node.key.id, "\n".join(self.lines)
        self.lines = trace

    def do_timeout(self, id: str) -> None:
        """Run the clock to the deadline of one replica."""
        node = self.nodes[int(id)]
        assert node.replica is not None
        deadline = node.replica.deadline_ms()
        self.now_ms = max(self.now_ms, deadline if deadline is not None else self.now_ms)
        self.tell(node, TimeoutReached())

    def do_sleep(self, ms: str, id: str = "") -> None:
        """Run the clock, then wake all that are due."""
        self.now_ms += int(ms)
        for replica_id, node in self.nodes.items():
            if node.replica is not None and (not id or int(id) == replica_id):
                deadline = node.replica.deadline_ms()
                if deadline is not None and deadline <= self.now_ms:
                    self.tell(node, TimeoutReached())

    def do_deliver(self, count: str = "", kind: str = "", to: str = "", **more: str) -> None:
        """Deliver what is under way now, answers not included."""
        source = more.get("from", "")
        taken = [
            envelope
            for envelope in self.wire
            if (not source or envelope.source == int(source))
            and (not to or envelope.target == int(to))
            and (not kind or api_of(envelope.message) == kind)
        ][: int(count) if count else None]
        for envelope in taken:
            self.wire.remove(envelope)
            self.hand_over(envelope)

    def do_drop(self, to: str = "", kind: str = "", **more: str) -> None:
        """Lose what is under way."""
        source = more.get("from", "")
        self.wire = [
            envelope
            for envelope in self.wire
            if (source and envelope.source != int(source))
            or (to and envelope.target != int(to))
            or (kind and api_of(envelope.message) != kind)
        ]

    def do_cut(self, id: str) -> None:
        """Lose everything from and to a replica."""
        self._cut.add(int(id))

    def do_heal(self, id: str) -> None:
        """Deliver to and from a replica again."""
        self._cut.discard(int(id))

    def do_run(self, ms: str) -> None:
        """Let time pass from deadline to deadline."""
        end_ms, first_line = self.now_ms + int(ms), len(self.lines)
        for _ in range(5_000):
            self.do_stabilize()
            due = [
                (deadline, replica_id)
                for replica_id, node in self.nodes.items()
                if node.replica is not None and (deadline := node.replica.deadline_ms()) is not None
            ]
            deadline, replica_id = min(due)
            if deadline > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.tell(self.nodes[replica_id], TimeoutReached())
        else:
            raise AssertionError("the conversation never sleeps")
        self.now_ms = end_ms
        self.lines[first_line:] = [line for line in self.lines[first_line:] if " Fetch" not in line]

    def do_stabilize(self) -> None:
        """Deliver until nothing is under way."""
        for _ in range(500):
            if not self.wire:
                return
            self.hand_over(self.wire.pop(0))
        raise AssertionError("the conversation does not end")

    def do_append(self, id: str, count: str = "1") -> None:
        """Submit one batch to a leader."""
        node = self.nodes[int(id)]
        assert node.replica is not None
        batch = encode_batch([b"x"] * int(count), timestamp_ms=0, base_offset=node.end, epoch=node.replica.epoch)
        self.tell(node, RecordsSubmitted((batch,), node.replica.epoch))

    def do_flush(self, id: str) -> None:
        """Let the oldest outstanding flush finish."""
        node = self.nodes[int(id)]
        end, version = node.flushes.pop(0)
        node.flushed = max(node.flushed, min(end, node.end))
        self.tell(node, Flushed(end, version))

    def do_lose(self, id: str, peer: str, refused: str = "no") -> None:
        """Break a connection: what is outstanding on it fails first."""
        node = self.nodes[int(id)]
        lost = [envelope for envelope in self.wire if {envelope.source, envelope.target} == {int(id), int(peer)}]
        self.wire = [envelope for envelope in self.wire if envelope not in lost]
        assert node.replica is not None
        for outstanding in pending_requests(node.replica):
            if outstanding.destination == int(peer):
                self.tell(node, RequestFailed(outstanding.correlation_id, Failure.DISCONNECTED))
        self.tell(node, ConnectionLost(int(peer), refused == "yes"))

    def do_restart(self, id: str) -> None:
        """Crash and start from the disk; connections to it are forgotten by the wire only."""
        node = self.nodes[int(id)]
        node.batches = [batch for batch in node.batches if batch.end_offset <= node.flushed]
        node.flushes.clear()
        node.requests.clear()
        self.wire = [envelope for envelope in self.wire if int(id) not in (envelope.source, envelope.target)]
        self.do_start(id)

    def do_forget(self, id: str) -> None:
        """Lose what a replica has written of its votes: it starts again with the epoch of its log, and knows it."""
        node = self.nodes[int(id)]
        epoch = node.batches[-1].epoch if node.batches else 0
        node.election = ElectionState(epoch=epoch, amnesiac=True)

    def do_resign(self, id: str) -> None:
        """The application resigns."""
        node = self.nodes[int(id)]
        assert node.replica is not None
        self.tell(node, ResignRequested(node.replica.epoch))

    def do_fail(self, id: str) -> None:
        """The state machine of a replica stops for good."""
        self.tell(self.nodes[int(id)], StateMachineFailed())

    def do_shutdown(self, id: str) -> None:
        """The host shuts down gracefully."""
        self.tell(self.nodes[int(id)], ShutdownRequested(5_000))

    def do_read(self, id: str, ms: str = "1000") -> None:
        """The application of a replica asks from where it may read."""
        self._next_read += 1
        self.tell(self.nodes[int(id)], ReadBarrierRequested(self._next_read, int(ms)))

    def do_status(self) -> None:
        """Print each replica."""
        for replica_id, node in self.nodes.items():
            if node.replica is None:
                continue
            state = node.replica.state
            self.lines.append(
                f"{replica_id} {state.role} epoch={state.epoch} leader={state.leader_id or '-'}"
                f" end={state.log.end} flushed={state.log.flushed_offset}"
                f" high_watermark={'-' if state.high_watermark is None else state.high_watermark}"
            )

    # --- performing --------------------------------------------------------------------------------------------------

    def tell(self, node: Node, event: Any) -> None:
        """Hand an event to a core and perform what it says."""
        assert node.replica is not None
        self.perform(node, node.replica.handle(event, self.now_ms))

    def hand_over(self, envelope: Envelope) -> None:
        """Deliver one message."""
        node = self.nodes.get(envelope.target)
        if node is None or node.replica is None or self._cut & {envelope.source, envelope.target}:
            return
        if type(envelope.message).__name__.endswith("Request"):
            self._next_request_id += 1
            node.requests[self._next_request_id] = envelope
            version = VERSIONS.get(api_of(envelope.message), 0)
            self.tell(node, RequestReceived(self._next_request_id, envelope.message, version))
        else:
            self.tell(node, ResponseReceived(envelope.correlation_id, envelope.message))

    def perform(self, node: Node, actions: list[Action]) -> None:
        """Carry out actions in order, each leaving its line."""
        follow_up: list[Any] = []
        for action in actions:
            line = self.perform_one(node, action, follow_up)
            if line:
                self.lines.append(f"{node.key.id} {line}")
        for event in follow_up:
            self.tell(node, event)

    def perform_one(self, node: Node, action: Action, follow_up: list[Any]) -> str | None:
        """Carry out one action; return its trace."""
        match action:
            case PersistElection(election):
                node.election = election
                vote = "-" if election.voted_key is None else election.voted_key.id
                return (
                    f"PersistElection epoch={election.epoch} leader={election.leader_id or '-'} vote={vote}"
                    + " lost" * election.amnesiac
                )
            case BeginEpoch():
                return None
            case AppendToLog(batches):
                node.batches.extend(batches)
                return "AppendToLog " + " ".join(
                    f"{batch.base_offset}..{batch.last_offset}@{batch.epoch}" for batch in batches
                )
            case FlushLog(log_version):
                if self.manual_flush:
                    node.flushes.append((node.end, log_version))
                    return "FlushLog"
                node.flushed = node.end
                follow_up.append(Flushed(node.end, log_version))
                return None
            case TruncateLog(end_offset):
                node.batches = [batch for batch in node.batches if batch.end_offset <= end_offset]
                node.flushed = min(node.flushed, node.end)
                follow_up.insert(0, LogTruncated(node.end))
                return f"TruncateLog end_offset={end_offset}"
            case WriteRepair(batches):
                assert node.hole is not None
                last, wanted = batches[-1], node.hole.end_offset
                written = RepairWritten(end_offset=last.end_offset, epoch=last.epoch)
                follow_up.append(written if last.end_offset < wanted else self.repaired(node))
                return f"WriteRepair {batches[0].base_offset}..{batches[-1].last_offset}"
            case SendRequest(correlation_id, destination, _, request):
                destination = FIRST_LANE - destination if destination <= FIRST_LANE else destination
                self.wire.append(Envelope(node.key.id, destination, request, correlation_id))
                return f"-> {destination} {describe(request)}"
            case SendResponse(request_id, response):
                return self.respond(node, request_id, response)
            case SendRecords(request_id, response, start_offset, _):
                records = b"".join(bytes(batch.data) for batch in node.batches if batch.end_offset > start_offset)
                topic = response.responses[0]
                partition = attrs.evolve(topic.partitions[0], records=records)
                response = attrs.evolve(response, responses=(attrs.evolve(topic, partitions=(partition,)),))
                return self.respond(node, request_id, response, f" records=[{start_offset}, {node.end})")
            case AdvanceHighWatermark(high_watermark):
                return f"AdvanceHighWatermark {high_watermark}"
            case AcceptAppends(epoch, base_offset):
                return f"AcceptAppends epoch={epoch} base_offset={base_offset}"
            case RefuseAppends(epoch):
                return f"RefuseAppends epoch={epoch}"
            case AnnounceLeader(leader):
                return f"AnnounceLeader {'-' if leader.leader_id is None else leader.leader_id}@{leader.epoch}"
            case PassReadBarrier(number, offset):
                return f"PassReadBarrier {number} offset={offset}"
            case RefuseReadBarrier(number, error):
                return f"RefuseReadBarrier {number} {error.name}"
            case ShutdownComplete():
                return "ShutdownComplete"
            case _:
                return str(action)

    def repaired(self, node: Node) -> Repaired:
        """Let nothing be missing any more."""
        node.hole = None
        return Repaired(holes=(), end_offset=node.end, epoch_starts=tuple(node.epoch_starts()), control_batches=())

    def respond(self, node: Node, request_id: int, response: Any, more: str = "") -> str:
        """Send an answer back to whoever asked."""
        asked = node.requests.pop(request_id)
        if response is None:
            return f"-> {asked.source} closes the connection"
        self.wire.append(Envelope(node.key.id, asked.source, response, asked.correlation_id))
        return f"-> {asked.source} {describe(response)}{more}"


def describe(message: Any) -> str:
    """Say what matters of a message, in one line."""
    return " ".join([type(message).__name__, *_details(message)])


def _details(message: Any) -> Iterator[str]:
    name = type(message).__name__
    if getattr(message, "error_code", 0):
        yield f"error={ErrorCode(message.error_code).name}"
        return
    if name == "ReadBarrierResponse":
        yield f"offset={message.offset}"
    topics = getattr(message, "topics", None) or getattr(message, "responses", ())
    for topic in topics:
        for partition in topic.partitions:
            if getattr(partition, "error_code", 0):
                yield f"error={ErrorCode(partition.error_code).name}"
            if name == "VoteRequest":
                kind = "pre_vote" if partition.pre_vote else "vote"
                yield f"{kind} epoch={partition.replica_epoch}"
                yield f"last={partition.last_offset}@{partition.last_offset_epoch}"
            elif name == "VoteResponse":
                yield f"epoch={partition.leader_epoch} {'granted' if partition.vote_granted else 'refused'}"
            elif name == "FetchRequest":
                yield (
                    f"epoch={partition.current_leader_epoch} fetch_offset={partition.fetch_offset}"
                    f" last_fetched_epoch={partition.last_fetched_epoch} high_watermark={partition.high_watermark}"
                )
            elif name == "FetchResponse":
                yield f"epoch={partition.current_leader.leader_epoch} high_watermark={partition.high_watermark}"
                if partition.diverging_epoch.epoch >= 0:
                    yield f"diverging={partition.diverging_epoch.end_offset}@{partition.diverging_epoch.epoch}"
                if partition.snapshot_id.epoch >= 0:
                    yield f"snapshot={partition.snapshot_id.end_offset}@{partition.snapshot_id.epoch}"
            elif hasattr(partition, "leader_epoch"):
                yield f"epoch={partition.leader_epoch}"
            leader = getattr(partition, "current_leader", partition)
            if hasattr(leader, "leader_id"):
                yield f"leader={'-' if leader.leader_id < 0 else leader.leader_id}"
            if getattr(partition, "preferred_candidates", ()):
                yield f"successors={','.join(str(row.candidate_id) for row in partition.preferred_candidates)}"
