"""The door: every event and every message has its handler, and nothing a peer sends stops a replica."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.consensus import replica as replica_module
from kraftlib.consensus.actions import SendResponse
from kraftlib.consensus.events import Event, RequestReceived, ResponseReceived, TimeoutReached
from kraftlib.consensus.roles import Role
from kraftlib.types import ElectionState
from kraftlib.wire.messages.envelope import EnvelopeRequest
from tests.consensus.build import (
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    follower,
    leader,
    replica,
    vote_request,
)


def test_every_event_has_a_handler() -> None:
    """The union and the table are one list."""
    assert set(replica_module.EVENTS) == {typing.get_origin(member) or member for member in typing.get_args(Event)}


def test_a_request_that_is_not_ours_closes_the_connection() -> None:
    """And is counted."""
    core = replica()

    assert core.handle(RequestReceived(1, EnvelopeRequest(), 0), 0) == [SendResponse(1, None)]
    assert core.state.refused == {"foreign request": 1}


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    """By its correlation id."""
    core = follower(1, epoch=5, leader_id=2)
    response = fetch_response(epoch=5, leader_id=2, diverging=(0, 0))

    assert core.handle(ResponseReceived(12_345, response), 0) == []
    assert core.state.log.end_offset == 1


def test_time_does_not_run_backwards() -> None:
    """An event with an older time is handled at the newest known."""
    core = follower(1, epoch=5, leader_id=2, now_ms=1_000)
    core.handle(TimeoutReached(), 10)

    assert core.state.now_ms == 1_000


def test_status_is_a_picture_of_the_moment() -> None:
    """A leader knows how far the others are; a follower does not."""
    core = leader(1, 1)
    status = core.status()

    assert (status.role, status.epoch, status.leader_id, status.log_end_offset) == (Role.LEADER, 2, 1, 3)
    assert [progress.key.id for progress in status.voter_progress] == [2, 3]
    assert follower(1, epoch=5, leader_id=2).status().voter_progress == ()


epochs = st.integers(-2, 12)
ids = st.integers(-1, 5)
offsets = st.integers(-2, 8)
messages = st.one_of(
    st.builds(
        lambda epoch, who, last, pre: vote_request(epoch=epoch, replica_id=who, last=last, pre_vote=pre),
        epochs, ids, st.tuples(offsets, epochs), st.booleans(),
    ),
    st.builds(lambda epoch, who: begin_request(epoch=epoch, leader_id=who), epochs, st.integers(-1, 5)),
    st.builds(
        lambda epoch, who, row: end_request(epoch=epoch, leader_id=who, candidates=tuple(row)),
        epochs, ids, st.lists(ids, max_size=4),
    ),
    st.builds(
        lambda epoch, offset, last, who: fetch_request(epoch=epoch, offset=offset, last_epoch=last, replica_id=who),
        epochs, offsets, epochs, ids,
    ),
)  # fmt: skip
answers = st.builds(
    lambda epoch, who, high, diverging, snapshot, error, records: fetch_response(
        epoch=epoch, leader_id=who, high_watermark=high, diverging=diverging, snapshot=snapshot, error=error,
        records=records,
    ),
    epochs, ids, offsets, st.none() | st.tuples(offsets, epochs), st.none() | st.tuples(offsets, epochs),
    st.sampled_from([0, 0, 0, 6, 8, 42, 74, 75, 125, -1, 999]), st.binary(max_size=80),
)  # fmt: skip


@pytest.mark.parametrize("role", ["leader", "follower", "resigned", "unattached"])
@given(st.lists(st.one_of(messages, answers, st.integers(0, 3_000)), max_size=12))
def test_nothing_that_a_peer_sends_stops_a_replica_or_lowers_its_epoch(role: str, script: list[object]) -> None:
    """Hostile values in every field, in any order, with answers to whatever is outstanding (scenario L17)."""
    core = {
        "leader": lambda: leader(1, 1, election=ElectionState(epoch=4)),
        "follower": lambda: follower(1, 1, epoch=5, leader_id=2),
        "resigned": lambda: replica(1, 1, election=ElectionState(epoch=5, leader_id=1)),
        "unattached": lambda: replica(1, 1, election=ElectionState(epoch=5)),
    }[role]()
    now_ms = core.state.now_ms
    for number, step in enumerate(script):
        epoch, committed = core.epoch, core.state.committed_offset
        if isinstance(step, int):
            now_ms += step
            core.handle(TimeoutReached(), now_ms)
        elif type(step).__name__.endswith("Request"):
            core.handle(RequestReceived(number, step, 1), now_ms)
        else:
            for outstanding in list(core.state.connections._outstanding.values()):
                if type(outstanding.request).__name__ == "FetchRequest":
                    core.handle(ResponseReceived(outstanding.correlation_id, step), now_ms)
        assert core.epoch >= epoch
        assert core.state.committed_offset >= committed
        assert core.state.log.end_offset >= core.state.committed_offset
