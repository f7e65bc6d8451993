"""What a follower takes of the records that it is sent."""

from __future__ import annotations

import pytest

from kraftlib.consensus.actions import AppendToLog
from kraftlib.consensus.received import acceptable_batches
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from tests.consensus.build import fetch_response, follower, kinds, log_view, reply, voter_set


def data(*batches: Batch) -> bytes:
    """Their bytes, back to back."""
    return b"".join(bytes(batch.data) for batch in batches)


def values(offset: int, epoch: int = 5) -> Batch:
    """One record of the application."""
    return encode_batch([b"x"], timestamp_ms=0, base_offset=offset, epoch=epoch)


def voters(offset: int, *ids: int) -> Batch:
    """A Voters record."""
    return encode_control_batch([voter_set(*ids).to_record()], timestamp_ms=0, base_offset=offset, epoch=5)


@pytest.mark.parametrize(
    ("batches", "taken"),
    [
        ([values(2), values(3)], 2),
        ([values(2), values(4)], 1),
        ([values(2), values(3, epoch=4)], 1),
        ([values(2), values(3, epoch=6)], 1),
        ([values(3)], 0),
    ],
    ids=["contiguous", "gap", "falling epoch", "epoch above ours", "beyond our end"],
)
def test_what_continues_the_log_is_taken(batches: list[Batch], taken: int) -> None:
    """In order, and nothing behind the first that does not."""
    state = follower(1, 1, epoch=5, leader_id=2).state

    assert acceptable_batches(state, data(*batches)) == tuple(batches[:taken])


def test_a_voter_set_must_be_a_neighbour_of_the_one_before_it() -> None:
    """Also of one in the same answer; the first in the log may be any, there is nothing it could be compared with."""
    state = follower(1, 1, epoch=5, leader_id=2, log=log_view(1, 1, voters=voter_set(1, 2, 3))).state
    first, second, third = voters(2, 2, 7, 8), voters(3, 2, 7, 9), voters(4, 3, 4, 9)

    assert acceptable_batches(state, data(first, second, third)) == (first, second)


def test_beside_the_leader_change_of_an_epoch_any_voter_set_is_taken() -> None:
    """A restored log, or one whose majority was lost, goes on so; the next set must be a neighbour again."""
    state = follower(1, 1, epoch=5, leader_id=2, log=log_view(1, 1, voters=voter_set(1, 2, 3))).state
    leads = LeaderChangeMessage(leader_id=7)
    first = voters(2, 1, 2, 3)
    others = encode_control_batch([leads, voter_set(7).to_record()], timestamp_ms=0, base_offset=3, epoch=5)
    alone = encode_control_batch([leads], timestamp_ms=0, base_offset=5, epoch=5)
    foreign = voters(6, 1, 2, 3)

    assert acceptable_batches(state, data(first, others, alone, foreign)) == (first, others, alone)


def test_a_quorum_of_nobody_is_not_believed() -> None:
    """Nobody could ever vote again."""
    state = follower(1, 1, epoch=5, leader_id=2).state
    records = [KRaftVersionRecord(kraft_version=1), voter_set().to_record()]
    batch = encode_control_batch(records, timestamp_ms=0, base_offset=2, epoch=5)

    assert acceptable_batches(state, data(batch)) == ()
    assert state.refused == {"corrupt batch": 1}


@pytest.mark.parametrize("kraft_version", [2, -1])
def test_a_kraft_version_that_is_not_known_is_not_acknowledged(kraft_version: int) -> None:
    """Its rules are not known: this replica would count majorities by those of another version."""
    core = follower(1, 1, epoch=5, leader_id=2)
    record = KRaftVersionRecord(kraft_version=kraft_version)
    batch = encode_control_batch([record], timestamp_ms=0, base_offset=2, epoch=5)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, records=data(batch)))

    assert AppendToLog not in kinds(actions)
    assert (core.kraft_version, core.state.log.end_offset) == (0, 2)
    assert core.status().refused == {"corrupt batch": 1}


@pytest.mark.parametrize(
    ("cut", "taken"), [(data(), 0), (data(values(2), values(3))[:-1], 1)], ids=["empty", "cut short"]
)
def test_an_answer_that_ends_is_nothing_wrong(cut: bytes, taken: int) -> None:
    """Not even in the middle of a batch behind whole ones: a size limit does that."""
    state = follower(1, 1, epoch=5, leader_id=2).state

    assert len(acceptable_batches(state, cut)) == taken
    assert state.refused == {}


@pytest.mark.parametrize(("offset", "believed"), [(-1, True), (0, False), (1, False)])
def test_a_voter_set_must_be_a_neighbour_of_the_one_in_the_log(offset: int, believed: bool) -> None:
    """That of a bootstrap checkpoint, at -1, is no record of the log: each directory was formatted with its own."""
    state = follower(1, 1, epoch=5, leader_id=2).state
    state.log.voters.add(offset, voter_set(1, 2, 3))

    assert len(acceptable_batches(state, data(voters(2, 7, 8, 9)))) == believed
    assert len(acceptable_batches(state, data(voters(2, 1, 2)))) == 1
