"""What an all-knowing observer knows."""

from __future__ import annotations

from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.testing.facts import Chain, Facts, named_voters
from kraftlib.types import Endpoint
from tests.testing.logs import batch, image, key


def test_two_logs_with_one_record_at_one_place_share_its_entry() -> None:
    facts = Facts()
    first, second = image(facts, 1, 1, 1, 2), image(facts, 2, 1, 1, 3)

    assert first.chain.entries[1] is second.chain.entries[1]
    assert first.chain.entries[2] is not second.chain.entries[2]
    assert second.chain.entries[2].parent is first.chain.entries[1]


def test_a_chain_finds_the_entry_of_an_offset() -> None:
    facts, chain = Facts(), Chain()
    for place, values in ((0, (b"a", b"b")), (2, (b"c",)), (3, (b"d", b"e", b"f"))):
        chain.append(facts.entry_of(batch(place, 1, *values), chain.tail, 1)[0])
    found = [chain.covering(offset) for offset in range(-1, 8)]

    assert [None if entry is None else entry.base_offset for entry in found] == [None, 0, 0, 2, 3, 3, 3, None, None]
    assert [entry.base_offset for entry in chain.between(2, 6)] == [2, 3]
    assert [entry.base_offset for entry in chain.truncate(4)] == [3]
    assert (chain.end_offset, len(chain)) == (3, 2)


def test_a_chain_begins_anew_behind_a_snapshot() -> None:
    facts = Facts()
    node = image(facts, 1, 1, 1, 1)
    second = node.chain.entries[1]
    node.chain.begin_at(second)

    assert (node.chain.tail, node.chain.end_offset) == (second, 2)
    node.chain.begin_at(None)
    assert (node.chain.tail, node.chain.end_offset) == (None, 0)


def test_commits_grow_along_one_line() -> None:
    facts = Facts()
    node = image(facts, 1, 1, 1, 2)
    assert facts.commit(node.chain.entries[1]) is None
    assert facts.commit(node.chain.entries[2]) is None

    assert (facts.committed_end, facts.committed.entries) == (3, node.chain.entries)


def test_a_commit_that_contradicts_an_earlier_one_is_found() -> None:
    facts = Facts()
    first, second = image(facts, 1, 1, 1), image(facts, 2, 1, 3, 3)
    assert facts.commit(first.chain.entries[1]) is None

    assert facts.commit(second.chain.entries[2]) is not None


def test_voters_are_inherited_until_others_are_named() -> None:
    facts = Facts()
    voters = VoterSet.of(Voter(key=key(n), endpoints={"CONTROLLER": Endpoint("h", n)}) for n in (1, 2))
    naming = encode_control_batch([voters.to_record()], timestamp_ms=0, base_offset=0, epoch=1)
    first, _ = facts.entry_of(naming, None, 1)
    second, _ = facts.entry_of(batch(1, 1), first, 1)

    assert first.voters == second.voters == (key(1), key(2))
    assert named_voters(encode_control_batch([LeaderChangeMessage(leader_id=1)], timestamp_ms=0)) is None
