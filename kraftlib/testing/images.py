"""What can be seen of nodes from outside: who they are, and what would survive a crash of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kraftlib.testing.facts import Chain, LogEntry
from kraftlib.types import Offset, ReplicaId, ReplicaKey


class DiskImage(Protocol):
    """What can be seen of a node from outside: its identity and its disk."""

    @property
    def key(self) -> ReplicaKey:
        """Who it is."""
        ...

    @property
    def chain(self) -> Chain:
        """What stands in its log."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash."""
        ...


def durable_at(entry: LogEntry, voters: Sequence[ReplicaKey], nodes: Mapping[ReplicaId, DiskImage]) -> list[ReplicaKey]:
    """Return the voters on whose disks `entry`, and so everything before it, would survive a crash of all."""
    holding = []
    for voter in voters:
        node = nodes.get(voter.id)
        if (
            node is not None
            and is_same(voter, node.key)
            and node.flushed_offset >= entry.end_offset
            and node.chain.covering(entry.base_offset) is entry
        ):
            holding.append(node.key)
    return holding


def is_safe(holding: Sequence[ReplicaKey], voters: Sequence[ReplicaKey], nodes: Mapping[ReplicaId, DiskImage]) -> bool:
    """Whether a majority holds something, those left out whose disks were taken away: they will never vote again."""
    gone = [voter for voter in voters if voter.id not in nodes or not is_same(voter, nodes[voter.id].key)]
    return 2 * (len(holding) + len(gone)) > len(voters)


def is_same(voter: ReplicaKey, key: ReplicaKey) -> bool:
    """Whether `key` is this voter; a static quorum does not know directory ids. The code under test is not asked."""
    return voter.id == key.id and voter.directory_id in (None, key.directory_id)


def ids(keys: Iterable[ReplicaKey]) -> list[ReplicaId]:
    """Return the ids of keys, for messages."""
    return [key.id for key in keys]
