from __future__ import annotations

import json
import uuid
from contextlib import suppress

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.storage.election.line import election_of, encode_line, parse_line
from kraftlib.storage.notes import NoteError
from kraftlib.types import ElectionState, ReplicaKey, uuid_text

VOTE = ElectionState(epoch=5, voted_key=ReplicaKey(2, uuid.UUID(int=0x00010203_04050607_08090A0B_0C0D0E0F)))

KEYS = st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.none() | st.uuids().filter(lambda u: u.int > 0))
STATES = st.builds(
    ElectionState,
    epoch=st.integers(0, 2**31 - 1),
    leader_id=st.none() | st.integers(0, 2**31 - 1),
    voted_key=st.none() | KEYS,
    amnesiac=st.booleans(),
)


def test_the_line_begins_as_kafka_writes_it() -> None:
    """And ends with two keys that Kafka ignores."""
    static = encode_line(ElectionState(epoch=5, leader_id=1), kraft_version=0, voters=[1, 2, 3], generation=9)
    dynamic = encode_line(VOTE, kraft_version=1, voters=(), generation=9)

    assert static.startswith(
        b'{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0,"generation":9,"crc":'
    )
    assert dynamic.startswith(
        b'{"leaderId":-1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw",'
        b'"data_version":1,"generation":9,"crc":'
    )
    assert b"\n" not in static + dynamic


@given(STATES, st.integers(0, 2), st.integers(0, 99))
def test_what_is_encoded_is_parsed(state: ElectionState, kraft_version: int, generation: int) -> None:
    fields = parse_line(encode_line(state, kraft_version=kraft_version, voters=[1], generation=generation))
    if kraft_version == 0 and state.voted_key is not None:  # which has no place for the directory id
        state = attrs.evolve(state, voted_key=ReplicaKey(state.voted_key.id))

    assert election_of(fields) == state
    assert fields["generation"] == generation


@pytest.mark.parametrize("voters", ["7", '[{"voterId":"1"}]', "[1]", '[{"id":1}]'])
def test_a_list_of_voters_that_is_none_is_damage(voters: str) -> None:
    line = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        f'"currentVoters":{voters},"data_version":0}}'
    )
    with pytest.raises(NoteError, match=r"currentVoters|voterId"):
        parse_line(line.encode())


def test_a_vote_without_directory_id_is_the_zero_id_in_the_file() -> None:
    line = encode_line(ElectionState(epoch=1, voted_key=ReplicaKey(3)), kraft_version=1, voters=(), generation=1)

    assert json.loads(line)["votedDirectoryId"] == uuid_text(uuid.UUID(int=0))


LINE = encode_line(VOTE, kraft_version=1, voters=(), generation=3)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.integers(0, len(LINE) * 8 - 1))
def test_no_flipped_bit_makes_another_vote(bit: int) -> None:
    """Not even one in the key `crc`: then it would look like a file of Kafka, but for the other keys of ours."""
    data = bytearray(LINE)
    data[bit // 8] ^= 1 << bit % 8
    with suppress(NoteError):
        assert election_of(parse_line(bytes(data))) == VOTE
