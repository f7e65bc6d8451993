"""Templates are a short cut: whatever they do, the general codec would have done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.codec import declared
from kraftlib.errors import KraftError, LocalProtocolError
from kraftlib.types import METADATA_TOPIC_ID
from kraftlib.wire import fetch_template, frames
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tests.captured import RELEASES, pairs
from tests.declared_messages import any_message

SEEDS = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
DIRECTORY_ID = uuid.UUID(int=12345)


@pytest.fixture(autouse=True)
def nothing_learned() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    for memory in (
        fetch_template._request_templates,
        fetch_template._request_examples,
        fetch_template._response_templates,
        fetch_template._response_examples,
    ):
        memory.clear()


def request(version: int = 18, **partition: Any) -> FetchRequest:
    values = {"replica_directory_id": DIRECTORY_ID, "high_watermark": 0 if version > 17 else 2**63 - 1, **partition}
    return FetchRequest(
        cluster_id="cluster-1",
        replica_state=FetchRequest.ReplicaState(replica_id=3),
        max_wait_ms=500,
        max_bytes=1_048_576,
        topics=(
            FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(FetchRequest.FetchPartition(**values),)),
        ),
    )


def response(**partition: Any) -> FetchResponse:
    values = {"aborted_transactions": (), "records": b"", **partition}
    return FetchResponse(
        responses=(
            FetchResponse.FetchableTopicResponse(
                topic_id=METADATA_TOPIC_ID, partitions=(FetchResponse.PartitionData(**values),)
            ),
        ),
        node_endpoints=(FetchResponse.NodeEndpoint(node_id=1, host="localhost", port=9093),),
    )


def general_request(message: FetchRequest, version: int, correlation_id: int, client_id: str) -> bytes:
    head = b"\0\1" + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big", signed=True)
    return head + len(client_id).to_bytes(2, "big") + client_id.encode() + b"\0" + declared.write(message, version)


def general_response(message: FetchResponse, version: int, correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big", signed=True) + b"\0" + declared.write(message, version)


# The same as the general codec --------------------------------------------------------------------


@pytest.mark.parametrize("version", fetch_template.VERSIONS)
@given(numbers=st.lists(st.tuples(INT32, INT32, INT64, INT32, INT64), min_size=1, max_size=5))
def test_requests_that_differ_in_their_numbers_come_from_one_template(version: int, numbers: list[Any]) -> None:
    forget()
    frames.encode_request(request(version), version=version, correlation_id=0, client_id="a")
    for correlation_id, epoch, offset, last_epoch, high_watermark in numbers:
        message = request(version, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch)
        if version > 17 and high_watermark != 2**63 - 1:
            message = request(
                version,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                high_watermark=high_watermark,
            )
        frame = frames.encode_request(message, version=version, correlation_id=correlation_id, client_id="a")
        assert frame == general_request(message, version, correlation_id, "a")
        again = frames.decode_request(memoryview(frame))
        assert (again.api_version, again.correlation_id, again.client_id) == (version, correlation_id, "a")
        assert again.message == message
    assert len(fetch_template._request_templates) == len(fetch_template._request_examples) == 1 + (version > 17 and 0)


@pytest.mark.parametrize("version", fetch_template.VERSIONS)
def test_requests_with_a_tag_of_ours_have_templates_of_their_own(version: int) -> None:
    """So a Fetch to an upstream costs no more than one to a leader."""
    for tags in ((), ((10_002, b""),), ((10_000, b"\0\0\0\1"),)):
        for offset in (5, 6):
            message = attrs.evolve(request(version, fetch_offset=offset), unknown_tagged_fields=tags)
            frame = frames.encode_request(message, version=version, correlation_id=7, client_id="a")
            assert frame == general_request(message, version, 7, "a")
            assert frames.decode_request(memoryview(frame)).message == message
    assert len(fetch_template._request_templates) == len(fetch_template._request_examples) == 3


@pytest.mark.parametrize("version", fetch_template.VERSIONS)
@given(answers=st.lists(st.tuples(INT32, INT64, INT64, st.integers(0, 300)), min_size=1, max_size=5))
def test_answers_that_differ_in_their_numbers_and_records_come_from_one_template(
    version: int, answers: list[Any]
) -> None:
    forget()
    frames.encode_response(response(records=b"first"), version=version, correlation_id=0)
    for correlation_id, high_watermark, log_start_offset, size in answers:
        message = response(high_watermark=high_watermark, log_start_offset=log_start_offset, records=b"r" * size)
        frame = frames.encode_response(message, version=version, correlation_id=correlation_id)
        assert frame == general_response(message, version, correlation_id)
        bare = response(high_watermark=high_watermark, log_start_offset=log_start_offset)
        for pieces in ([b"r" * size], [memoryview(b"r" * (size // 2)), b"", b"r" * (size - size // 2)]):
            assert frame == frames.encode_fetch_response(
                bare, version=version, correlation_id=correlation_id, pieces=pieces
            )
        assert frames.decode_response(memoryview(frame), api_key=1, version=version) == (correlation_id, message)
    assert len(fetch_template._response_templates) == len(fetch_template._response_examples) == 1


@pytest.mark.parametrize("version", [16, 17, 18])
@settings(max_examples=2 * settings.default.max_examples)
@given(seeds=st.lists(SEEDS, min_size=2, max_size=4), variants=st.lists(st.integers(0, 9), min_size=2, max_size=6))
def test_whatever_is_sent_and_in_whatever_order_the_general_codec_agrees(
    version: int, seeds: list[int], variants: list[int]
) -> None:
    """Any messages at all, twice each, mixed with regular ones that differ in one value: none passes for another."""
    requests = [any_message(FetchRequest, version, seed) for seed in seeds] + [variant(version, n) for n in variants]
    for message in requests * 2:
        frame = frames.encode_request(message, version=version, correlation_id=7, client_id="a")
        assert frame == general_request(message, version, 7, "a")
        assert frames.decode_request(frame).message == declared.read(FetchRequest, frame[12:], version)

    answers = [any_message(FetchResponse, version, seed) for seed in seeds] + [answer(n) for n in variants]
    for message in answers * 2:
        frame = frames.encode_response(message, version=version, correlation_id=7)
        assert frame == general_response(message, version, 7)
        assert frames.decode_response(frame, api_key=1, version=version)[1] == declared.read(
            FetchResponse, frame[5:], version
        )


def variant(version: int, number: int) -> FetchRequest:
    """A regular request with one value changed."""
    message = request(version)
    topic = message.topics[0]
    partition = topic.partitions[0]
    match number:
        case 0:
            return message
        case 1:
            return attrs.evolve(message, max_wait_ms=0)
        case 2:
            return attrs.evolve(message, rack_id="r")
        case 3:
            return attrs.evolve(message, unknown_tagged_fields=((9, b"x"),))
        case 4:
            return attrs.evolve(message, topics=(topic, topic))
        case 5:
            partition = attrs.evolve(partition, unknown_tagged_fields=((9, b"12345678"),))
        case 6:
            partition = attrs.evolve(partition, high_watermark=2**63 - 1)
        case 7:
            partition = attrs.evolve(partition, replica_directory_id=uuid.UUID(int=0))
        case 8:
            partition = attrs.evolve(partition, log_start_offset=5)
        case _:
            partition = attrs.evolve(partition, replica_directory_id=uuid.UUID(int=6))
    return attrs.evolve(message, topics=(attrs.evolve(topic, partitions=(partition,)),))


def answer(number: int) -> FetchResponse:
    """A regular answer with one value changed."""
    changes: list[dict[str, Any]] = [
        {},
        {"records": None},
        {"aborted_transactions": None},
        {"aborted_transactions": (FetchResponse.AbortedTransaction(producer_id=1),)},
        {"current_leader": FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)},
        {"diverging_epoch": FetchResponse.EpochEndOffset(epoch=1, end_offset=2)},
        {"snapshot_id": FetchResponse.SnapshotId(epoch=1, end_offset=2)},
        {"unknown_tagged_fields": ((9, b"x"),)},
        {"error_code": 6},
        {"records": b"x" * 200},
    ]
    return response(**changes[number])


@pytest.mark.parametrize("release", RELEASES)
def test_most_of_what_a_real_quorum_says_comes_from_templates(release: str) -> None:
    """And is byte for byte what was captured: tests/wire/test_frames.py sees to that."""
    made = read = fetches = 0
    for pair in pairs(release, "life"):
        if pair["api_key"] != 1 or not pair["response"]:
            continue
        fetches += 1
        read += fetch_template.decode_request(pair["request"]) is not None
        asked = frames.decode_request(pair["request"])
        _, answered = frames.decode_response(pair["response"], api_key=1, version=asked.api_version)
        assert isinstance(answered, FetchResponse)
        partition = answered.responses[0].partitions[0]
        made += pair["response"] == fetch_template.encode_response(
            answered, version=asked.api_version, correlation_id=asked.correlation_id, pieces=(partition.records,)
        )
    assert made > 0.99 * fetches
    assert read > 0.95 * fetches


# Limits -------------------------------------------------------------------------------------------


def test_strangers_do_not_make_us_remember_more_and_more() -> None:
    for number in range(3 * fetch_template.MAX_TEMPLATES):
        message = attrs.evolve(request(), cluster_id=f"cluster-{number}")
        frame = frames.encode_request(message, version=18, correlation_id=number, client_id="a")
        assert frames.decode_request(frame).message == message
        reply = frames.encode_response(response(error_code=number), version=18, correlation_id=number)
        assert frames.decode_response(reply, api_key=1, version=18)[0] == number
    assert len(fetch_template._request_examples) <= fetch_template.MAX_TEMPLATES
    assert len(fetch_template._response_examples) <= fetch_template.MAX_TEMPLATES


def test_a_frame_with_an_endless_name_in_it_is_no_example() -> None:
    message = attrs.evolve(request(), rack_id="r" * fetch_template.EXAMPLE_MAX_BYTES)
    frame = frames.encode_request(message, version=18, correlation_id=1, client_id="a")
    assert frames.decode_request(frame).message == message
    endpoint = FetchResponse.NodeEndpoint(node_id=1, host="h" * fetch_template.EXAMPLE_MAX_BYTES, port=9)
    frames.encode_response(attrs.evolve(response(), node_endpoints=(endpoint,)), version=18, correlation_id=1)

    assert not fetch_template._request_examples
    assert not fetch_template._response_examples


def test_an_example_does_not_keep_records_alive() -> None:
    frames.encode_response(response(records=b"x" * 100_000), version=18, correlation_id=1)
    (example,) = fetch_template._response_examples.values()
    assert example.responses[0].partitions[0].records == b""


@pytest.mark.parametrize("correlation_id", [0, 2**31])
def test_a_number_that_is_too_large_is_named_as_the_general_codec_names_it(correlation_id: int) -> None:
    frames.encode_request(request(), version=18, correlation_id=0, client_id="a")
    message = request(fetch_offset=2**63) if correlation_id == 0 else request()
    with pytest.raises(LocalProtocolError, match=r"fetch_offset: 9223372036854775808|correlation id 2147483648"):
        frames.encode_request(message, version=18, correlation_id=correlation_id, client_id="a")

    frames.encode_response(response(), version=18, correlation_id=0)
    reply = response(high_watermark=2**63) if correlation_id == 0 else response()
    with pytest.raises(LocalProtocolError, match=r"high_watermark: 9223372036854775808|correlation id 2147483648"):
        frames.encode_response(reply, version=18, correlation_id=correlation_id)


def test_a_learned_frame_cut_anywhere_or_changed_anywhere_is_read_as_without_templates() -> None:
    frame = frames.encode_request(request(fetch_offset=5), version=18, correlation_id=1, client_id="raft-client-1")
    reply = frames.encode_response(response(records=b"abc"), version=18, correlation_id=1)
    candidates = [(frame[:size], reply[:size]) for size in range(max(len(frame), len(reply)))]
    for position in range(max(len(frame), len(reply))):
        for change in (0x01, 0x80, 0xFF):
            candidates.append((changed(frame, position, change), changed(reply, position, change)))
    for changed_frame, changed_reply in candidates:
        learned = outcome(changed_frame, changed_reply)
        forget()
        assert learned == outcome(changed_frame, changed_reply)
        frames.decode_request(frame)
        frames.decode_response(reply, api_key=1, version=18)


def changed(frame: bytes, position: int, change: int) -> bytes:
    out = bytearray(frame)
    if position < len(out):
        out[position] ^= change
    return bytes(out)


def outcome(frame: bytes, reply: bytes) -> list[object]:
    found: list[object] = []
    for decode in (lambda: frames.decode_request(frame), lambda: frames.decode_response(reply, api_key=1, version=18)):
        try:
            found.append(decode())
        except KraftError as error:
            found.append(str(error))
    return found
