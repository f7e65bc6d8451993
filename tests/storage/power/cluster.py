"""Three replicas, each on a disk of its own, in one process: appends through the quorum, while disks lose power."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import KraftError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage.directory import format_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.names import PARTITION_DIRECTORY
from kraftlib.types import ElectionState
from tests.ports import local_voters
from tests.storage.power.process import Reports

SEGMENT_BYTES = 64 << 10
WRITERS = 6
TIMING = {
    "election_timeout_ms": 150,
    "election_backoff_max_ms": 100,
    "fetch_timeout_ms": 400,
    "fetch_max_wait_ms": 100,
    "request_timeout_ms": 400,
}


@attrs.define
class ClusterPromises:
    """What was acknowledged, over all lives: every value, and the last vote of each replica."""

    values: set[bytes] = attrs.Factory(set)
    epochs: dict[int, int] = attrs.Factory(lambda: {1: 0, 2: 0, 3: 0})

    def take(self, lines: Sequence[Sequence[str]]) -> None:
        """Take note of what a child has reported."""
        for line in lines:
            if line[0] == "committed":
                self.values.add(line[1].encode("ascii"))
            elif line[0] == "voted":
                self.epochs[int(line[1])] = int(line[2])


class ReportingStore(FileQuorumStateStore):
    """Says when an election state is durable."""

    def __init__(self, directory: Path, *, node_id: int, reports: Reports, log_epoch: int) -> None:
        super().__init__(directory, log_epoch=log_epoch)
        self._node_id = node_id
        self._reports = reports

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """Write, then report."""
        super().write(election, kraft_version=kraft_version, voters=voters)
        self._reports.say("voted", self._node_id, election.epoch)


def prepare(directories: Mapping[int, Path]) -> None:
    """Format the directories of a new quorum."""
    for node_id, directory in directories.items():
        format_directory(directory, node_id=node_id, cluster_id="power", static_voters=sorted(directories))


def write(directories: Mapping[int, Path], seed: int, reports: Reports) -> None:
    """Run the quorum and append to it, for ever."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_run(directories, seed, reports))


async def _run(directories: Mapping[int, Path], seed: int, reports: Reports) -> None:
    voters = local_voters(directories)
    clients = [_client(voter, voters, directories[voter.id], seed, reports) for voter in voters]
    await asyncio.gather(*(client.start() for client in clients))
    reports.say("ready")
    numbers = itertools.count()
    await asyncio.gather(*(_append(clients, seed, numbers, reports) for _ in range(WRITERS)))


def _client(
    voter: StaticVoter, voters: tuple[StaticVoter, ...], directory: Path, seed: int, reports: Reports
) -> RaftClient[bytes]:
    partition = directory / PARTITION_DIRECTORY
    log = FileReplicatedLog.open(partition, segment_bytes=SEGMENT_BYTES)
    epochs = [0, *(start.epoch for start in log.epoch_starts())]
    elections = ReportingStore(partition, node_id=voter.id, reports=reports, log_epoch=max(epochs))
    config = RaftConfig(node_id=voter.id, cluster_id="power", voters=voters, engine="inline", **TIMING)
    return RaftClient(config, log=log, elections=elections, random=random.Random(seed * 10 + voter.id))


async def _append(clients: Sequence[RaftClient[bytes]], seed: int, numbers: Iterator[int], reports: Reports) -> None:
    """Append value after value wherever a leader is found; report those that are committed."""
    chance = random.Random(seed)
    at = 0
    while True:
        value = b"%d:%d:" % (seed, next(numbers)) + b"." * chance.randint(1, 700)
        while True:
            try:
                await clients[at % len(clients)].append_one(value)
                reports.say("committed", value.decode("ascii"))
                break
            except KraftError:  # not the leader, or not sure, or its disk has died: ask the next one, with a new value
                at += 1
                value = b"%d:%d:" % (seed, next(numbers)) + b"." * chance.randint(1, 700)
                await asyncio.sleep(0.005)


def losses(directories: Mapping[int, Path], promises: ClusterPromises) -> Iterator[str]:
    """Open all three with the real recovery; yield what a majority does not hold, and votes that went back."""
    holders: Counter[bytes] = Counter()
    for node_id, directory in directories.items():
        partition = directory / PARTITION_DIRECTORY
        log = FileReplicatedLog.open(partition, segment_bytes=SEGMENT_BYTES)
        try:
            values = [bytes(record.value) for batch in log.scan() if not batch.is_control for record in batch.records()]
        finally:
            log.close()
        holders.update(set(values))
        if len(set(values)) != len(values):
            yield f"replica {node_id} holds a record twice"
        epoch = (FileQuorumStateStore(partition).read() or ElectionState()).epoch
        if epoch < promises.epochs[node_id]:
            yield f"replica {node_id} is in epoch {epoch}, it was in {promises.epochs[node_id]}"
        promises.epochs[node_id] = epoch
    lost = [value for value in promises.values if holders[value] < 2]
    if lost:
        yield f"{len(lost)} acknowledged records are not on a majority of disks, first {lost[0][:20]!r}"
