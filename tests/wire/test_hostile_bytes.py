"""Nothing that a peer sends does more than raise RemoteProtocolError, and nothing makes us allocate on its word."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.codec.declared import read, write
from kraftlib.errors import RemoteProtocolError
from kraftlib.metadata import RECORDS, decode_record, encode_record
from kraftlib.wire.apis import APIS
from kraftlib.wire.bounds import LISTENERS, REQUEST_ELEMENTS, TOPICS
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.declared_messages import any_message

Decode = Callable[[bytes], object]


def samples() -> list[tuple[str, bytes, Decode]]:
    """One frame of every version of every message, and one value of every version of every metadata record."""
    found: list[tuple[str, bytes, Decode]] = []
    for key, entry in APIS.items():
        for version in entry.versions:
            request = encode_request(
                any_message(entry.request, version, seed=7),
                version=version,
                correlation_id=9,
                client_id="raft-client-1",
            )
            response = encode_response(any_message(entry.response, version, seed=7), version=version, correlation_id=9)
            found.append((f"{entry.request.__name__}-{version}", request, decode_request))
            found.append(
                (
                    f"{entry.response.__name__}-{version}",
                    response,
                    lambda data, key=key, version=version: decode_response(data, api_key=key, version=version),  # type: ignore[misc]
                )
            )
    for cls in RECORDS.values():
        for version in cls.valid_versions:
            value = encode_record(any_message(cls, version, seed=7), version)
            found.append((f"{cls.__name__}-{version}", value, decode_record))
    return found


SAMPLES = [pytest.param(data, decode, id=name) for name, data, decode in samples()]


def is_refused(decode: Decode, data: bytes) -> bool:
    """Whether `data` was refused; anything but an answer or RemoteProtocolError fails the test."""
    try:
        decode(data)
    except RemoteProtocolError:
        return True
    return False


@pytest.mark.parametrize(("data", "decode"), SAMPLES)
def test_a_message_cut_anywhere_is_refused(data: bytes, decode: Decode) -> None:
    decode(data)
    for size in range(len(data)):
        assert is_refused(decode, data[:size]), f"{size} of {len(data)} bytes were taken for the whole"


@pytest.mark.parametrize(("data", "decode"), SAMPLES)
def test_flipped_bits_do_no_harm(data: bytes, decode: Decode) -> None:
    chance = random.Random(len(data))
    for position in chance.sample(range(len(data)), min(len(data), 100)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            is_refused(decode, bytes(flipped))


HUGE = [
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x01",
    b"\xff" * 10,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
]


@pytest.mark.parametrize(("data", "decode"), SAMPLES)
def test_huge_sizes_and_counts_are_refused_before_anything_is_made_for_them(data: bytes, decode: Decode) -> None:
    chance = random.Random(len(data))
    tracemalloc.start()
    try:
        for position in chance.sample(range(len(data)), min(len(data), 25)):
            for huge in HUGE:
                is_refused(decode, data[:position] + huge + data[position + len(huge) :])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@settings(max_examples=3 * settings.default.max_examples)
@given(data=st.binary(max_size=80), sample=st.integers(0, len(SAMPLES) - 1))
def test_noise_does_no_harm(data: bytes, sample: int) -> None:
    whole, decode = SAMPLES[sample].values[:2]
    is_refused(decode, data)
    is_refused(decode, whole[:14] + data)


# The limits, one by one ---------------------------------------------------------------------------


def test_more_elements_than_a_message_may_hold_are_refused_however_they_nest() -> None:
    """Three bytes of an array of structs become more than a hundred in memory."""
    topic = CreateTopicsRequest.CreatableTopic(assignments=(CreateTopicsRequest.CreatableReplicaAssignment(),) * 7)
    fits = CreateTopicsRequest(topics=(topic,) * (REQUEST_ELEMENTS // 8))
    frame = encode_request(fits, version=5, correlation_id=1, client_id=None)
    assert decode_request(frame).message == fits

    one_more = CreateTopicsRequest(topics=(*fits.topics, CreateTopicsRequest.CreatableTopic()))
    with pytest.raises(RemoteProtocolError, match="1 more than a message may hold"):
        decode_request(encode_request(one_more, version=5, correlation_id=1, client_id=None))


def test_numbers_and_tags_count_as_elements() -> None:
    """A frame of 100 MiB would else become 26 million numbers."""
    ids = tuple(range(REQUEST_ELEMENTS))
    numbers = CreateTopicsRequest.CreatableReplicaAssignment(broker_ids=ids)
    topic = CreateTopicsRequest.CreatableTopic(assignments=(numbers,))
    with pytest.raises(RemoteProtocolError, match="2 more than a message may hold"):
        decode_request(
            encode_request(CreateTopicsRequest(topics=(topic,)), version=5, correlation_id=1, client_id=None)
        )
    tagged = CreateTopicsRequest.CreatableTopic(unknown_tagged_fields=tuple((tag, b"") for tag in range(1_000)))
    with pytest.raises(RemoteProtocolError, match="more than a message may hold"):
        decode_request(
            encode_request(CreateTopicsRequest(topics=(tagged,) * 3), version=5, correlation_id=1, client_id=None)
        )


@pytest.mark.parametrize(
    ("cls", "field", "element", "most"),
    [
        (FetchRequest, "topics", FetchRequest.FetchTopic(), TOPICS),
        (FetchRequest, "forgotten_topics_data", FetchRequest.ForgottenTopic(), TOPICS),
        (VoteRequest, "topics", VoteRequest.TopicData(), TOPICS),
        (BeginQuorumEpochRequest, "topics", BeginQuorumEpochRequest.TopicData(), TOPICS),
        (BeginQuorumEpochRequest, "leader_endpoints", BeginQuorumEpochRequest.LeaderEndpoint(), LISTENERS),
        (EndQuorumEpochRequest, "topics", EndQuorumEpochRequest.TopicData(), TOPICS),
        (DescribeQuorumRequest, "topics", DescribeQuorumRequest.TopicData(), TOPICS),
        (FetchSnapshotRequest, "topics", FetchSnapshotRequest.TopicSnapshot(), TOPICS),
        (AddRaftVoterRequest, "listeners", AddRaftVoterRequest.Listener(), LISTENERS),
    ],
)
def test_an_array_holds_what_its_message_can_mean(cls: type[Any], field: str, element: object, most: int) -> None:
    """A frame that repeats a topic a hundred thousand times took half a second of the leader's time."""
    version = cls.valid_versions.last

    def frame(count: int) -> bytes:
        return encode_request(cls(**{field: (element,) * count}), version=version, correlation_id=1, client_id=None)

    assert len(getattr(decode_request(frame(most)).message, field)) == most
    with pytest.raises(
        RemoteProtocolError, match=rf"{cls.__name__}\.{field}: {most + 1} elements .* {most} are allowed"
    ):
        decode_request(frame(most + 1))


def test_a_count_must_fit_into_what_is_left() -> None:
    count_of_topics = bytes.fromhex("00 00000001 06")  # five topics of at least three bytes, in fourteen
    with pytest.raises(
        RemoteProtocolError, match=r"VoteRequest\.topics: .* 5 elements of at least 3 bytes, but 14 are"
    ):
        read(VoteRequest, count_of_topics + bytes(14), 2)


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ("ffffffff0f", "4294967295 tagged fields before byte 12, more than 1024"),
        ("810800", "1025 tagged fields"),
        ("02 00 01 01 00 01 01", "tag 0 before byte .* follows tag 0"),
        ("02 05 00 04 00", "tag 4 before byte .* follows tag 5"),
        ("01 05 7f 00", "needs 127 bytes, but 1 are left"),
        ("01 00 05 01 00 00", "tag 0 at byte 10 needs 5 bytes, but 3 are left"),
        ("01 00 02 01 00 00", "tag 0 ends at byte .*, but its size says"),
        ("01 05", "needs 1 bytes, but 0 are left"),
    ],
)
def test_tagged_fields_must_be_few_ascending_and_of_their_size(tags: str, error: str) -> None:
    """Tag 0 of an ApiVersions response is an array; 5 is unknown."""
    body = bytes.fromhex("0000 01 00000000")
    assert read(ApiVersionsResponse, body + bytes.fromhex("01 00 01 01"), 3, expect_end=True).supported_features == ()
    with pytest.raises(RemoteProtocolError, match=error):
        read(ApiVersionsResponse, body + bytes.fromhex(tags), 3)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("02 ff", "BeginQuorumEpochRequest.cluster_id: string at byte 1 is no UTF-8"),
        ("8180 02", r"BeginQuorumEpochRequest.cluster_id: string of 32768 bytes at byte 3 exceeds 32767"),
        ("00 00000001 00", "BeginQuorumEpochRequest.topics: null before byte 6"),
        ("00 00000001 02 00", "BeginQuorumEpochRequest.topics: TopicData.topic_name: null before byte 7"),
    ],
)
def test_an_error_says_which_field_and_where(body: str, error: str) -> None:
    with pytest.raises(RemoteProtocolError, match=error):
        read(BeginQuorumEpochRequest, bytes.fromhex(body) + bytes(40_000 if "8180" in body else 10), 1)


@pytest.mark.parametrize("size", ["fffe", "8000"])
def test_a_negative_size_that_is_not_null_is_refused(size: str) -> None:
    with pytest.raises(RemoteProtocolError, match="at byte 0 is negative and not null"):
        read(BeginQuorumEpochRequest, bytes.fromhex(size) + bytes(10), 0)
    with pytest.raises(RemoteProtocolError, match="at byte 2 is negative and not null"):
        read(BeginQuorumEpochRequest, bytes.fromhex("ffff fffffffe") + bytes(10), 0)


def test_what_a_relay_reads_it_writes_again_unknown_tags_included() -> None:
    body = bytes.fromhex("0000 01 00000000" + "03 00 01 01 05 02 abcd 8001 01 ff")
    response = read(ApiVersionsResponse, body, 3, expect_end=True)

    assert response.unknown_tagged_fields == ((5, b"\xab\xcd"), (128, b"\xff"))
    # Tag 0 has its default, and a tagged field that has its default is not written.
    assert write(response, 3) == bytes.fromhex("0000 01 00000000" + "02 05 02 abcd 8001 01 ff")
