"""What is on the disks of nodes."""

from __future__ import annotations

from kraftlib.testing.facts import Facts
from kraftlib.testing.images import durable_at, ids, is_safe, is_same
from kraftlib.types import ReplicaKey
from tests.testing.logs import image, key

VOTERS = [ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)]


def test_only_what_is_flushed_and_the_same_counts() -> None:
    facts = Facts()
    nodes = {1: image(facts, 1, 1, 2), 2: image(facts, 2, 1, 2, flushed=1), 3: image(facts, 3, 1, 3)}
    first, second = nodes[1].chain.entries

    assert ids(durable_at(first, VOTERS, nodes)) == [1, 2, 3]
    assert ids(durable_at(second, VOTERS, nodes)) == [1]
    assert ids(durable_at(first, [key(2), key(9)], nodes)) == [2]


def test_a_majority_is_safe_and_lost_disks_will_never_vote_against_it() -> None:
    facts = Facts()
    nodes = {number: image(facts, number, 1) for number in (1, 2, 3)}
    voters = [key(1), key(2), key(3)]
    assert is_safe(voters[:2], voters, nodes)
    assert not is_safe(voters[:1], voters, nodes)
    nodes[3].key = key(99)  # another disk in the place of the third voter

    assert is_safe(voters[:1], voters, nodes)


def test_a_static_voter_is_whoever_has_its_id() -> None:
    assert is_same(ReplicaKey(1), key(1))
    assert is_same(key(1), key(1))
    assert not is_same(key(1), ReplicaKey(1, key(2).directory_id))
    assert not is_same(ReplicaKey(1), key(2))
