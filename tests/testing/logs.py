"""Logs of simulated nodes, built by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import attrs

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.testing.facts import Chain, Facts
from kraftlib.testing.images import LostDisk
from kraftlib.testing.violation import Complaint
from kraftlib.types import ReplicaKey


def batch(offset: int, epoch: int, *values: bytes) -> Batch:
    """A batch at its place; its one value says where it stands, unless others are given."""
    return encode_batch(list(values) or [b"%d@%d" % (offset, epoch)], timestamp_ms=0, base_offset=offset, epoch=epoch)


def key(number: int) -> ReplicaKey:
    """The key of a node."""
    return ReplicaKey(number, uuid.UUID(int=number))


@attrs.define
class Image:
    """A node as the invariants see it."""

    key: ReplicaKey
    chain: Chain = attrs.field(factory=Chain)
    flushed_offset: int = 0
    lost_disks: list[LostDisk] = attrs.field(factory=list)


def image(facts: Facts, number: int, *epochs: int, flushed: int | None = None) -> Image:
    """A node whose log *looks* like `epochs`, one record each; all of it durable unless said otherwise."""
    node = Image(key(number))
    for offset, epoch in enumerate(epochs):
        entry, _ = facts.entry_of(batch(offset, epoch), node.chain.tail, number)
        node.chain.append(entry)
    node.flushed_offset = len(epochs) if flushed is None else flushed
    return node


def assert_complains(function: Callable[..., Complaint], good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    """Expect that an invariant complains of the bad case, briefly, and not of the good one."""
    assert function(*good) is None
    complaint = function(*bad)
    assert complaint is not None
    assert len(complaint) < 600
