"""Older copies of a replica's directory: in its place, in its place by half, and beside it (scenarios S1, S14, M13)."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Any, Final

from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.copies import Copy, copy_of, end_of_mixed, is_older_part, lost_with, may_go_back, put_back
from kraftlib.testing.damage import DamagedLog
from kraftlib.testing.fault_parts import spared_voter
from kraftlib.testing.network import Port
from kraftlib.testing.network_faults import Undo, any_node
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.types import METADATA_TOPIC_ID, ZERO_UUID, OffsetRange
from kraftlib.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from kraftlib.testing.world import World

CLONE_ID: Final = 950
"""Number of the machine that a cloned disk runs on."""

ATTEMPTS: Final = 40
"""The number of looks at whether the others can do without what a copy lacks."""


def stale_copy(world: World, random: chance.Random) -> Undo | None:
    """Copy the directory of a replica, and put the copy in its place later, as soon as the quorum can do without (S14).

    That is what becomes of a machine whose image is restored: log and votes go back in time together.
    """
    node = any_node(world, random)
    copy = None if node is None else copy_of(node)
    if node is None or copy is None:
        return None
    pause_us = max(1, node.config.fetch_timeout_ms * MILLISECOND // ATTEMPTS)

    def attempt(left: int) -> None:
        if node.process is not None or copy.key != node.key:
            return  # another strike has started it, or taken its disk away
        if may_go_back(world, node, copy):
            put_back(world, node, copy)
        elif left:
            world.timeline.after(pause_us, attempt, left - 1)
            return
        node.start()

    def undo() -> None:
        node.end(Ending.POWER_LOST)
        attempt(ATTEMPTS)

    return undo


def mixed_copy(world: World, random: chance.Random) -> Undo | None:
    """Put a copy in the place of a voter's directory that was made while it ran: the log first, all else later (S1).

    The note of the durable end is newer than the log then, so the start finds that records are missing.
    """
    node = spared_voter(world, random)
    copy = None if node is None else copy_of(node)
    if node is None or copy is None:
        return None

    def undo() -> None:
        if copy.key == node.key and spared_voter(world, random) is not None:
            node.end(Ending.POWER_LOST)
            _put_mixed(world, node, copy, random)
        node.start()

    return undo


def _put_mixed(world: World, node: SimulatedNode, copy: Copy, random: chance.Random) -> None:
    """Have the real recovery judge it; records that it finds missing are missing from now on."""
    committed = world.checker.facts.committed
    if isinstance(node.log, DamagedLog) or not is_older_part(node, copy):
        return
    if any(committed.covering(entry.base_offset) is not entry for entry in lost_with(node, copy)):
        return  # it may be cut off, and the missing records with it
    if any(snapshot_id.offset > copy.end_offset for snapshot_id in node.log.snapshots()):
        return  # that stands in for the missing records
    world.deeds["copy of a live directory put back"] += 1
    end_offset = node.log.end_offset
    found = end_of_mixed(node.log, copy.log.size_bytes)
    if found is None:
        node.log = DamagedLog(node.log, OffsetRange(copy.end_offset, end_offset), latent=False)
        return
    what = f"{node.key} opens a copy up to {found} without a word, and had noted that {end_offset} is durable"
    world.violated("S1", what)


class Clone:
    """A replica on a copy of a disk that runs elsewhere: it fetches under the same identity. A `Receiver`.

    No replica connects to it, for its id leads to the original. It does not stand: two that stand under one identity
    can vote twice in one epoch, and no protocol of this kind can tell them from one. Nor does it get ahead of the
    original or of the high watermark: the disks of two are no majority of three.
    """

    node_id = CLONE_ID

    def __init__(self, world: World, node: SimulatedNode, copy: Copy) -> None:
        self.running = True
        self._world = world
        self._node = node
        self._key = copy.key
        self._entries = list(copy.entries)
        self._port = Port(world.network, self)
        self._number = 0

    def fetch(self) -> None:
        """Fetch from the leader, if there is one, and go on with that."""
        if not self.running or self._node.key != self._key:
            return
        world, node = self._world, self._node
        pause_us = max(1, node.config.fetch_timeout_ms * MILLISECOND // 8)
        world.timeline.after(pause_us, self.fetch)
        leader, committed = world.leader(), world.checker.facts.committed
        while self._entries and not self._is_harmless(node, self._entries[-1]):
            self._entries.pop()
        if leader is None or leader is node or node.is_impaired or not self._entries:
            return
        world.deeds["fetched by a clone"] += 1
        self._number += 1
        self._port.send(self._number, leader.key.id, leader.endpoint, self._request(leader.leads or 0))
        following = committed.covering(self._entries[-1].end_offset)
        if following is not None:
            self._entries.append(following)  # for the next one

    def _is_harmless(self, node: SimulatedNode, entry: Any) -> bool:
        is_committed = self._world.checker.facts.committed.covering(entry.base_offset) is entry
        return is_committed and node.has(entry) and entry.end_offset <= node.flushed_offset

    def _request(self, epoch: int) -> FetchRequest:
        last = self._entries[-1]
        partition = FetchRequest.FetchPartition(
            current_leader_epoch=epoch,
            fetch_offset=last.end_offset,
            last_fetched_epoch=last.epoch,
            replica_directory_id=self._key.directory_id or ZERO_UUID,
        )
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
        return FetchRequest(
            cluster_id=self._world.cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=self._key.id),
            max_wait_ms=self._number % 2 * self._node.config.fetch_max_wait_ms,
            topics=(topic,),
        )

    # --- Receiver ----------------------------------------------------------------------------------------------------

    def request_received(self, *_: Any) -> None:
        """Never called: no replica knows its address."""

    def response_received(self, *_: Any) -> None:
        """It takes the records of the response; the log of the original decides which."""

    def request_failed(self, *_: Any) -> None:
        """It asks again."""

    def connection_lost(self, *_: Any) -> None:
        """The next request makes a new one."""


def cloned_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a copy of a replica's directory run on another machine, behind the original (M13)."""
    node = any_node(world, random)
    copy = None if node is None else copy_of(node)
    if node is None or copy is None or len(world.nodes) < 2:
        return None
    clone = Clone(world, node, copy)
    world.timeline.after(node.config.fetch_timeout_ms * MILLISECOND // 4, clone.fetch)

    def undo() -> None:
        clone.running = False

    return undo
