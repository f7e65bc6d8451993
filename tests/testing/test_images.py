"""What is on the disks of nodes."""

from __future__ import annotations

from kraftlib.testing.facts import Chain, Facts
from kraftlib.testing.images import LostDisk, durable_at, ids, is_majority, is_same
from kraftlib.types import ReplicaKey
from tests.testing.logs import batch, image, key

VOTERS = [ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)]


def test_only_what_is_flushed_and_the_same_counts() -> None:
    facts = Facts()
    nodes = {1: image(facts, 1, 1, 2), 2: image(facts, 2, 1, 2, flushed=1), 3: image(facts, 3, 1, 3)}
    first, second = nodes[1].chain.entries

    assert ids(durable_at(first, VOTERS, nodes)) == [1, 2, 3]
    assert ids(durable_at(second, VOTERS, nodes)) == [1]
    assert ids(durable_at(first, [key(2), key(9)], nodes)) == [2]


def test_a_lost_disk_counts_for_what_it_held_and_for_nothing_later() -> None:
    facts = Facts()
    nodes = {number: image(facts, number, 1) for number in (1, 2, 3)}
    voters = [key(1), key(2), key(3)]
    held = nodes[3].chain.entries[0]
    nodes[3].lost_disks.append(LostDisk(nodes[3].key, nodes[3].chain, nodes[3].flushed_offset))
    nodes[3].key, nodes[3].chain = key(99), Chain()
    assert ids(durable_at(held, voters, nodes)) == [1, 2, 3]
    later, _ = facts.entry_of(batch(1, 1), held, 1)
    for number in (1, 3):
        nodes[number].chain.append(later)
        nodes[number].flushed_offset = 2

    assert ids(durable_at(later, voters, nodes)) == [1]
    assert not is_majority([key(1)], voters)
    assert is_majority([key(1), key(2)], voters)


def test_a_static_voter_is_whoever_has_its_id() -> None:
    assert is_same(ReplicaKey(1), key(1))
    assert is_same(key(1), key(1))
    assert not is_same(key(1), ReplicaKey(1, key(2).directory_id))
    assert not is_same(ReplicaKey(1), key(2))
