"""Three replicas of which one has a damaged directory, in a real quorum: what is promised, and what becomes of it.

Replica 1 has real files, with one fault in them. Replica 2 led it and has everything; replica 3 lacks the newest
batches, which only 1 and 2 have acknowledged: if 1 forgot them without knowing, 1 and 3 would lose them. Replica 2
stood once more, got the vote of 1, and went down before it led. Clients, executors, cores, appliers and wire are the
real ones; the clock jumps (`hurried`), and the others keep their logs in memory.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import KraftError
from kraftlib.records.batch import Batch, read_batch
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Destination, Frame
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.storage.snapshots.in_memory import MemorySnapshotSource
from kraftlib.types import METADATA_TOPIC, ElectionState, Endpoint, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.storage.images.history import CLUSTER, SEGMENT_BYTES, History

HURT, WHOLE, BEHIND = 1, 2, 3
IDS = (HURT, WHOLE, BEHIND)
TIMING: dict[str, Any] = {
    "election_timeout_ms": 150,
    "election_backoff_max_ms": 100,
    "fetch_timeout_ms": 900,
    "fetch_max_wait_ms": 300,
    "request_timeout_ms": 900,
    "snapshot_interval_bytes": 0,
    "snapshot_interval_ms": 0,
    "scrub_interval_ms": 1_000,
    "retention_interval_ms": 1_000,
    "disk_reserve_bytes": 0,
    "engine": "inline",
}


@attrs.define
class Truth:
    """What was acknowledged, and everything that contradicts it."""

    values: dict[int, bytes]
    """By offset, what was acknowledged, or applied somewhere first."""
    snapshots: list[list[bytes]]
    lonely: bool = True
    """Whether the damaged replica has nobody: it must not lead then."""
    wrong: list[str] = attrs.Factory(list)

    @classmethod
    def of(cls, past: History) -> Truth:
        """Return what a history has promised."""
        values: dict[int, bytes] = {}
        for data in past.batches.values():
            batch = read_batch(data, 0)
            if not batch.is_control:
                values.update((record.offset, bytes(record.value or b"")) for record in batch.records())
        return cls(values, [values_of(data, snapshot_id.epoch) for snapshot_id, data in past.snapshots.items()])

    def acknowledged(self, offset: int, value: bytes) -> None:
        """Take note of a commit."""
        if self.values.setdefault(offset, value) != value:
            self.wrong.append(f"{value[:20]!r} was acknowledged at {offset}, where something else was")


class Machine(StateMachine):
    """Applies nothing but what is true."""

    def __init__(self, node_id: int, truth: Truth) -> None:
        self._node_id = node_id
        self._truth = truth
        self._next_offset = 0

    def apply(self, record: CommittedRecord) -> None:
        """Compare a record with what was acknowledged there."""
        truth = self._truth
        if record.offset < self._next_offset:
            truth.wrong.append(f"replica {self._node_id} applies {record.offset} again")
        self._next_offset = record.offset + 1
        if truth.values.setdefault(record.offset, bytes(record.value)) != record.value:
            truth.wrong.append(f"replica {self._node_id} applies {bytes(record.value)[:20]!r} at {record.offset}")

    def snapshot(self) -> Iterable[bytes]:
        """Have none."""
        return ()

    def restore(self, values: Iterable[bytes]) -> None:
        """Compare a snapshot with those that were written."""
        found = [bytes(value) for value in values]
        if found not in self._truth.snapshots:
            self._truth.wrong.append(f"replica {self._node_id} restores a snapshot that nobody wrote: {found!r:.60}")
        self._next_offset = 0

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """See who leads whom."""
        if self._truth.lonely and self._node_id == leader.leader_id == HURT:
            self._truth.wrong.append("it leads, and nobody was there to elect it")


class Trio:
    """The three of them. Those that were never started cannot be reached."""

    def __init__(
        self, past: History, directory: Path, truth: Truth, *, behind: int, epoch: int | None, seed: int
    ) -> None:
        """`behind` is how many batches replica 3 lacks, `epoch` one in which it has already stood itself."""
        self.truth = truth
        self.clients: dict[int, RaftClient[bytes]] = {}
        self._past = past
        self._directory = directory
        self._seed = seed
        self._hub = MemoryHub()
        batches = [read_batch(data, 0) for _, data in sorted(past.batches.items())]
        newest = past.election.epoch
        led = max(batch.epoch for batch in batches)
        self.logs = {WHOLE: self._log(batches), BEHIND: self._log(batches[: len(batches) - behind])}
        self._elections = {
            WHOLE: MemoryQuorumStateStore(ElectionState(epoch=newest, voted_key=ReplicaKey(WHOLE))),
            BEHIND: MemoryQuorumStateStore(
                ElectionState(epoch=led, leader_id=WHOLE)
                if epoch is None
                else ElectionState(epoch=epoch, voted_key=ReplicaKey(BEHIND))
            ),
        }

    def _log(self, batches: Sequence[Batch]) -> MemoryReplicatedLog:
        log = MemoryReplicatedLog()
        log.append(batches)
        log.flush()
        for snapshot_id, data in self._past.snapshots.items():
            log.store_snapshot(snapshot_id, data)
            if self._past.start_offset:
                log.delete_before(snapshot_id)
        return log

    async def start(self, node_id: int) -> RaftClient[bytes]:
        """Start one. Raises: KraftError."""
        voters = tuple(StaticVoter(number, Endpoint("replica", number)) for number in IDS)
        config = RaftConfig(
            node_id=node_id,
            voters=voters,
            cluster_id=CLUSTER,
            directory=self._directory if node_id == HURT else None,
            retention_ms=0 if self._past.start_offset else -1,
            **TIMING,
        )
        object.__setattr__(config, "segment_bytes", SEGMENT_BYTES)  # smaller than anybody may ask for
        client: RaftClient[bytes] = RaftClient(
            config,
            log=self.logs.get(node_id),
            elections=self._elections.get(node_id),
            transport=MemoryTransport(self._hub, Endpoint("replica", node_id)),
            state_machine=Machine(node_id, self.truth),
            random=random.Random(self._seed * 10 + node_id),
        )
        await client.start()
        self.clients[node_id] = client
        return client

    def applied_offset(self, node_id: int) -> int:
        """Return how far one has applied."""
        return self._node(node_id).applier.applied_offset

    def abstains(self, node_id: int) -> str | None:
        """Return why one does not vote, None if it does."""
        return self._node(node_id).core.status().abstains

    def scrubs(self, node_id: int) -> int:
        """Return how often one has read all that it stores."""
        return self._node(node_id).housekeeping.scrubber.counts.completed

    def _node(self, node_id: int) -> Node:
        return self.clients[node_id]._engine.node

    async def stop(self, node_id: int) -> None:
        """Stop one, as if it were killed."""
        try:
            await self.clients.pop(node_id).shutdown(timeout_ms=0)
        finally:
            wait_for_releases()

    async def stop_all(self) -> None:
        """Stop all that run."""
        for node_id in list(self.clients):
            await self.stop(node_id)

    async def commit(self, value: bytes, *, within_ms: int) -> bool:
        """Append a value wherever somebody leads, again and again; return whether it was acknowledged in time."""
        deadline = asyncio.get_running_loop().time() + within_ms / 1_000
        while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            for client in self.clients.values():
                if client.leader_and_epoch().leader_id != client.node_id:
                    continue
                try:
                    async with asyncio.timeout(left_s):
                        appended = await client.append_one(value)
                except (KraftError, TimeoutError):
                    continue
                self.truth.acknowledged(appended.base_offset, value)
                return True
            await asyncio.sleep(0.05)
        return False

    async def until(self, reached: Callable[[], bool], *, within_ms: int) -> bool:
        """Wait for something; return whether it came."""
        deadline = asyncio.get_running_loop().time() + within_ms / 1_000
        while not reached() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - time costs nothing here
            await asyncio.sleep(0.05)
        return reached()

    async def grants(self, *, epoch: int, last_epoch: int, end_offset: int) -> bool:
        """Ask replica 1 for its vote, in the name of replica 3; return whether it was granted."""
        partition = VoteRequest.PartitionData(
            replica_epoch=epoch, replica_id=BEHIND, last_offset_epoch=last_epoch, last_offset=end_offset, pre_vote=False
        )
        topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = VoteRequest(cluster_id=CLUSTER, voter_id=HURT, topics=(topic,))
        frame = encode_request(request, version=2, correlation_id=7, client_id="a candidate")
        transport = MemoryTransport(self._hub, Endpoint("candidate", 1))
        answer: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()
        await transport.start(_Deaf())
        try:
            transport.send(Destination(HURT, Endpoint("replica", HURT)), frame, answer.set_result)
            reply = await answer
        finally:
            await transport.close()
        if reply is None:
            return False
        _, response = decode_response(reply, api_key=request.api_key, version=2)
        if not isinstance(response, VoteResponse) or not response.topics:
            return False
        return response.topics[0].partitions[0].vote_granted


def wait_for_releases() -> None:
    """Wait until every replica that was closed has let go of its directory and its log.

    That happens on a thread of its own. In a hurry the patience of a close is over before this thread has even begun.
    """
    for thread in threading.enumerate():
        if thread.name == "kraftlib-release":
            thread.join()


class _Deaf:
    """Nobody calls a candidate that is not there."""

    def request_received(self, frame: Frame, reply: Any, peer: Any) -> None:
        reply(None)

    def connection_lost(self, destination: Destination, refused: bool) -> None:
        pass


def values_of(data: bytes, epoch: int) -> list[bytes]:
    """Return the values in a snapshot."""
    with SnapshotReader(MemorySnapshotSource(data), epoch=epoch) as reader:
        return [bytes(value) for batch in reader.batches() if not batch.is_control for value in batch.values()]
