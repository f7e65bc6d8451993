"""Wounds: a twin begins a life in which its disk has lost records in several places, and hears of a leader.

The leader answers each Fetch of the twin from some border of its log: where a hole begins or ends, an epoch, a batch.
So a log is cut before, amid and between its holes, which a schedule that loses records in one place hardly does.
"""

from __future__ import annotations

import copy
import random as chance
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.types import METADATA_TOPIC_ID, OffsetRange, ReplicaId
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tools.rules import Referee

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

HOLES_MAX: Final = 3
LONGEST: Final = 4
"""The number of batches in a hole, at most."""


class WoundedDisk:
    """A copy of the disk of a replica after a power loss, which loses records then. It does what a twin asks for."""

    def __init__(self, host: CoreHost, random: chance.Random) -> None:
        self._world: CoreWorld = host.world
        self._host = host
        self._random = random
        store = self._store = copy.copy(host.store)
        store.batches, store.snapshots, store.flushes = [*store.batches], dict(store.snapshots), []
        store.holes, store.latent = [*store.holes, *store.latent], []
        store.crash(random)
        self._borders = [store.start_offset, *(batch.end_offset for batch in store.batches)]

    def begin(self) -> tuple[Referee, list[act.Action]]:
        """Begin a life with what is there."""
        host, store, world = self._host, self._store, self._world
        if self._random.random() < 0.6:
            self._lose()
        if store.holes:
            store.come_upon_damage()
        referee = Referee(
            Replica(
                RaftConfig(node_id=host.number, **world.settings_of(host)),
                key=host.key,
                cluster_id="fuzz",
                log=store.view(world.static_voters),
                election=store.election,
                random=chance.Random(self._random.getrandbits(32)),
                endpoints={world.listener_name: world.place(host.number)},
                kept=None,
            )
        )
        return referee, referee.start(world.now_ms)

    def hurt(self) -> ev.Event | None:
        """Lose records amid the life, at least where none is missing yet; None, where nothing was lost."""
        had = [*self._store.holes]
        if had and self._random.random() < 0.7:
            return None
        self._lose()
        return None if self._store.holes == had else self._store.come_upon_damage()

    def _lose(self) -> None:
        """Lose one to three runs of batches, most often near the end of the log, where it may be cut."""
        store, random = self._store, self._random
        for _ in range(random.randint(1, HOLES_MAX)):
            found = [one for one in store.batches if not _is_amid(one.base_offset, store.holes)]
            if not found:
                return
            first = random.randrange(len(found))
            if random.random() < 0.6:
                first = max(first, len(found) - 1 - random.randrange(8))
            last = first
            while last + 1 < len(found) and random.random() < 1 - 1 / LONGEST:
                if found[last].end_offset != found[last + 1].base_offset:
                    break
                last += 1
            hole = OffsetRange(found[first].base_offset, found[last].end_offset)
            store.holes = sorted([*store.holes, hole], key=lambda hole: hole.start_offset)
            self._borders += [hole.start_offset, hole.end_offset]

    def perform(self, referee: Referee, action: act.Action) -> ev.Event | None:
        """Do what the core asks for; return what it hears of that, if anything. The disk says it first."""
        store = self._store
        match action:
            case act.PersistElection():
                store.election = action.election
            case act.AppendToLog():
                store.append(tuple(action.batches))
            case act.TruncateLog():
                store.truncate(action.end_offset)
                return ev.LogTruncated(store.end_offset)
            case act.WriteRepair():
                return store.write_repair(tuple(action.batches))
            case act.DeleteBefore():
                store.delete_before(action.snapshot_id)
            case act.SendRequest() if isinstance(action.request, FetchRequest):
                state = referee.core.state
                if action.destination == state.leader_id:
                    answer = self._answer(action.request, action.destination, state.epoch)
                    return ev.ResponseReceived(action.correlation_id, answer)
        return None

    def _answer(self, request: FetchRequest, leader_id: ReplicaId, epoch: int) -> FetchResponse:
        """Return what a leader may say: its log has all of this one, or parts from it, or begins behind it."""
        random, store, kind = self._random, self._store, FetchResponse
        border = max(0, random.choice(self._borders) + random.choice((-1, 0, 0, 0, 1)))
        near = random.choice((0, 0, 0, 0, -1, 1))
        border_epoch = max(0, store.epoch_before(border) + near)
        part: dict[str, Any] = {"records": b""}
        drawn = random.random()
        if drawn < 0.55:
            part["diverging_epoch"] = kind.EpochEndOffset(epoch=border_epoch, end_offset=border)
        elif drawn < 0.65:
            part["snapshot_id"] = kind.SnapshotId(epoch=border_epoch, end_offset=border)
        elif drawn < 0.9:
            part["records"] = self._records(request.topics[0].partitions[0].fetch_offset)
        partition = kind.PartitionData(
            high_watermark=random.choice((-1, *self._borders)),
            current_leader=kind.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
            **part,
        )
        return kind(responses=(kind.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),))

    def _records(self, offset: int) -> bytes:
        """Return some of the records from there on that a replica of the run has."""
        found = self._random.choice([*self._world.hosts.values()]).store.readable(offset)
        return b"".join(bytes(batch.data) for batch in found[: self._random.randint(1, 4)])


def _is_amid(offset: int, holes: Sequence[OffsetRange]) -> bool:
    return any(hole.start_offset <= offset < hole.end_offset for hole in holes)
