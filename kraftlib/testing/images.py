"""The view of nodes from outside: their identities, and the state that would survive a crash of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from kraftlib.testing.facts import Chain, LogEntry
from kraftlib.types import Offset, ReplicaId, ReplicaKey


class Disk(Protocol):
    """A disk, as far as it can be seen from outside."""

    @property
    def key(self) -> ReplicaKey:
        """The replica of the disk."""
        ...

    @property
    def chain(self) -> Chain:
        """The batches in its log."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash."""
        ...


class DiskImage(Disk, Protocol):
    """The view of a node from outside: its identity, its disk, and its earlier disks."""

    @property
    def lost_disks(self) -> Sequence[Disk]:
        """Disks that were taken away, as they were then."""
        ...


@attrs.frozen
class LostDisk:
    """A disk that was taken away: it counts for records that were committed while it was there, and for nothing
    later."""

    key: ReplicaKey
    chain: Chain
    flushed_offset: Offset


def durable_at(entry: LogEntry, voters: Sequence[ReplicaKey], nodes: Mapping[ReplicaId, DiskImage]) -> list[ReplicaKey]:
    """Return the voters on whose disks `entry` and everything before it is durable, or was when taken away."""
    holding = []
    for voter in voters:
        node = nodes.get(voter.id)
        if node is None:
            continue
        disk = next((disk for disk in (node, *node.lost_disks) if is_same(voter, disk.key)), None)
        if disk is None or disk.flushed_offset < entry.end_offset:
            continue
        if disk.chain.covering(entry.base_offset) is entry:
            holding.append(disk.key)
    return holding


def is_majority(holding: Sequence[ReplicaKey], voters: Sequence[ReplicaKey]) -> bool:
    """Whether these are more than half of the voters."""
    return 2 * len(holding) > len(voters)


def is_same(voter: ReplicaKey, key: ReplicaKey) -> bool:
    """Whether `key` is this voter; a static quorum does not know directory ids. The code under test is not asked."""
    return voter.id == key.id and voter.directory_id in (None, key.directory_id)


def ids(keys: Iterable[ReplicaKey]) -> list[ReplicaId]:
    """Return the ids of keys, for messages."""
    return [key.id for key in keys]
