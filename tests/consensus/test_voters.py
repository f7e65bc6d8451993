"""Majorities, against counting them out."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlib.consensus.voters import History, Tally, Voter, VoterSet, majority_offset
from kraftlib.errors import InvariantError, RemoteProtocolError
from kraftlib.plain_values import parse_voters
from kraftlib.records.control_messages import VotersRecord
from kraftlib.types import Endpoint, ReplicaKey
from tests.consensus.build import voter_set


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=9))
def test_majority_offset_agrees_with_counting(end_offsets: list[int]) -> None:
    """The fast way takes the middle of a sorted list; the slow one counts who has reached each offset."""
    expected = max(o for o in range(-1, 21) if sum(end >= o for end in end_offsets) > len(end_offsets) / 2)

    assert majority_offset(end_offsets) == expected


def test_no_voters_have_no_majority() -> None:
    """An empty quorum would commit everything."""
    with pytest.raises(InvariantError):
        majority_offset([])


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20))
def test_tally_agrees_with_the_last_answer_of_each_voter(count: int, answers: list[tuple[int, bool]]) -> None:
    """Each voter counts once, with its last answer; others never."""
    tally = Tally(voter_set(*range(1, count + 1)))
    last: dict[int, bool] = {}
    for voter_id, granted in answers:
        tally.record(voter_id, granted)
        if voter_id <= count:
            last[voter_id] = granted
    granted_count = sum(last.values())
    open_count = count - len(last)

    assert tally.won == (granted_count > count / 2)
    assert tally.lost == (granted_count + open_count <= count / 2)
    assert tally.unanswered() == [voter_id for voter_id in range(1, count + 1) if voter_id not in last]


DISK, OTHER_DISK = uuid.UUID(int=1_000), uuid.UUID(int=2_000)


def test_a_voter_of_unknown_disk_matches_any_disk_and_a_known_one_only_itself() -> None:
    """Static quorums know no directory ids; dynamic ones must not mistake a new disk for the old voter."""
    static, dynamic = voter_set(1), voter_set(ReplicaKey(1, DISK))

    assert ReplicaKey(1, DISK) in static
    assert ReplicaKey(1, DISK) in dynamic
    assert ReplicaKey(1, OTHER_DISK) not in dynamic
    assert ReplicaKey(1) not in dynamic
    assert ReplicaKey(2, DISK) not in static


def test_a_record_carries_the_whole_set() -> None:
    """What is written into the log is what is read from it."""
    voters = VoterSet.of(
        Voter(
            key=ReplicaKey(number, uuid.UUID(int=1_000 + number)),
            endpoints={"CONTROLLER": Endpoint("localhost", 9000 + number), "EXTRA": Endpoint("::1", 1)},
            min_kraft_version=0,
            max_kraft_version=1,
        )
        for number in (3, 1, 2)
    )

    assert VoterSet.from_record(voters.to_record()) == voters
    assert voters.ids == (1, 2, 3)


def test_a_record_that_names_an_id_twice_is_refused_and_not_a_bug_of_ours() -> None:
    """It came from a peer: it must not stop the replica."""
    voter = VotersRecord.Voter(voter_id=1, voter_directory_id=DISK)

    with pytest.raises(RemoteProtocolError, match="once only"):
        VoterSet.from_record(VotersRecord(voters=(voter, voter)))


def test_a_static_set_comes_from_the_configuration() -> None:
    """`id@host:port`, with listener names in upper case."""
    voters = VoterSet.static(parse_voters("2@b:2,1@a:1"), listener_name="controller")

    assert [(voter.key, dict(voter.endpoints)) for voter in voters] == [
        (ReplicaKey(1), {"CONTROLLER": Endpoint("a", 1)}),
        (ReplicaKey(2), {"CONTROLLER": Endpoint("b", 2)}),
    ]


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_majority_is_more_than_half(count: int, majority: int) -> None:
    """Two majorities of one set always share a voter."""
    assert voter_set(*range(count)).majority == majority


def test_adding_and_removing_touch_one_voter() -> None:
    """Neighbouring sets differ by one key."""
    voters = voter_set(1, 2)
    added = voters.with_voter(Voter(key=ReplicaKey(3), endpoints={}))

    assert added.ids == (1, 2, 3)
    assert added.without(ReplicaKey(3)) == voters
    assert voters.without(ReplicaKey(9)) == voters


@given(st.lists(st.integers(-1, 30), unique=True).map(sorted), st.integers(-1, 35), st.integers(0, 35))
def test_history_agrees_with_a_plain_list(offsets: list[int], cut: int, asked: int) -> None:
    """Adding and truncating, against keeping everything and filtering."""
    history: History[str] = History("default")
    for offset in offsets:
        history.add(offset, f"value {offset}")
    kept = [offset for offset in offsets if offset < cut]
    history.truncate(cut)
    expected = [offset for offset in kept if offset <= asked]

    assert history.latest == (f"value {kept[-1]}" if kept else "default")
    assert history.latest_offset == (kept[-1] if kept else None)
    assert history.at(asked) == (f"value {expected[-1]}" if expected else "default")
    later = [f"value {offset}" for offset in kept if offset > asked]
    assert history.since(asked) == [history.at(asked), *later]


@given(st.lists(st.integers(-1, 30), unique=True).map(sorted), st.integers(0, 35), st.integers(0, 35))
@example(offsets=[-1, 10], start_offset=10, cut=10)
def test_a_history_keeps_what_was_in_force_where_the_log_begins(
    offsets: list[int], start_offset: int, cut: int
) -> None:
    """Whatever is truncated then: a record at the very beginning of the log is not committed yet, perhaps."""
    history, whole = History("default"), History("default")
    for offset in offsets:
        history.add(offset, f"value {offset}")
        whole.add(offset, f"value {offset}")
    history.forget_before(start_offset)
    for offset in range(start_offset - 1, 36):
        assert history.at(offset) == whole.at(offset)
        assert history.since(offset) == whole.since(offset)
    in_force = max((offset for offset in offsets if offset < start_offset), default=-1)
    assert {history.at(offset) for offset in range(-1, in_force)} <= {"default"}, "what is older is forgotten"

    for one in (history, whole):
        one.truncate(max(cut, start_offset))
    assert history.latest == whole.latest
    assert [history.at(offset) for offset in range(start_offset - 1, 36)] == [
        whole.at(offset) for offset in range(start_offset - 1, 36)
    ]


def test_history_refuses_to_go_back() -> None:
    """A record below the latest would be a bug of ours."""
    history: History[int] = History(0)
    history.add(5, 1)

    with pytest.raises(InvariantError):
        history.add(5, 2)


def test_a_record_that_names_nobody_is_refused() -> None:
    """A quorum without voters could decide nothing any more."""
    with pytest.raises(RemoteProtocolError, match="there must be a voter"):
        VoterSet.from_record(VotersRecord(voters=()))


@pytest.mark.parametrize(
    ("ours", "theirs", "neighbours"),
    [
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (1, 2), True),
        ((1, 2), (1, 2, 3), True),
        ((1, 2, 3), (1, 2, 4), True),
        ((1, 2, 3, 4), (1, 2), False),
        ((1, 2), (1, 2, 3, 4), False),
    ],
)
def test_neighbours_differ_by_one_voter_that_comes_and_one_that_goes(
    ours: tuple[int, ...], theirs: tuple[int, ...], neighbours: bool
) -> None:
    assert voter_set(*ours).is_neighbour_of(voter_set(*theirs)) is neighbours


def test_the_others_are_all_but_oneself_whatever_the_disk() -> None:
    assert [voter.key.id for voter in voter_set(1, 2, 3).others(ReplicaKey(2, DISK))] == [1, 3]
