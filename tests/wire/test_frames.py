from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kraftlib.codec.json_form import to_json
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.wire import frames
from kraftlib.wire.apis import api
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import RELEASES, pairs

PARSED = [
    pytest.param(pair, id=f"{release[6:]}-{pair['api_key']}-{number}")
    for release in RELEASES
    for number, pair in enumerate(pairs(release, "wire"))
]


# Real Kafka ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PARSED)
def test_a_captured_frame_reads_as_kafka_read_it_and_is_written_alike(pair: dict[str, Any]) -> None:
    request = frames.decode_request(pair["request"])
    version = request.api_version

    assert (request.api_key, version) == (pair["api_key"], pair["api_version"])
    assert (request.client_id, request.correlation_id) == (pair["client_id"], pair["correlation_id"])
    assert to_json(request.message, version) == pair["request_json"]
    assert list(to_json(request.message, version)) == list(pair["request_json"])
    assert pair["request"] == frames.encode_request(
        request.message, version=version, correlation_id=request.correlation_id, client_id=request.client_id
    )

    correlation_id, response = frames.decode_response(pair["response"], api_key=request.api_key, version=version)
    assert correlation_id == request.correlation_id
    assert to_json(response, version) == pair["response_json"]
    assert pair["response"] == frames.encode_response(response, version=version, correlation_id=correlation_id)


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_a_real_quorum_ever_said_is_read_and_written_alike(release: str) -> None:
    strangers: Counter[int] = Counter()
    for pair in pairs(release, "life"):
        if api(pair["api_key"]) is None:
            strangers[pair["api_key"]] += 1
            continue
        request = frames.decode_request(pair["request"])
        version = request.api_version
        assert pair["request"] == frames.encode_request(
            request.message, version=version, correlation_id=request.correlation_id, client_id=request.client_id
        )
        if pair["response"]:
            correlation_id, response = frames.decode_response(
                pair["response"], api_key=pair["api_key"], version=version
            )
            assert pair["response"] == frames.encode_response(response, version=version, correlation_id=correlation_id)
    # Metadata, CreateTopics, DeleteTopics, DescribeConfigs, IncrementalAlterConfigs: asked of the broker by a client.
    assert set(strangers) <= {3, 19, 20, 32, 44}
    assert sum(strangers.values()) < 30


# What we do not know ------------------------------------------------------------------------------


def test_api_versions_of_an_unknown_version_is_answered_as_kafka_answers_it() -> None:
    with pytest.raises(frames.UnknownApiError, match="version 99 of API_VERSIONS") as caught:
        frames.decode_request(bytes.fromhex("0012 0063 00000005 0004 74657374 00 0102 0304"))

    head = caught.value.head
    assert (head.api_key, head.api_version, head.correlation_id, head.client_id) == (18, 99, 5, "test")
    assert frames.refuse_api_versions(head.correlation_id) == bytes.fromhex("00000005 0023 00000001 0012 0000 0005")


@pytest.mark.parametrize(("api_key", "version"), [(0, 9), (1, 3), (1, 19), (52, 3), (52, -1), (999, 0), (-1, 0)])
def test_an_unknown_request_says_what_it_is_and_from_whom(api_key: int, version: int) -> None:
    frame = b"".join(n.to_bytes(2, "big", signed=True) for n in (api_key, version)) + bytes.fromhex("0000002a ffff 00")
    with pytest.raises(frames.UnknownApiError) as caught:
        frames.decode_request(frame)
    assert caught.value.head == frames.decode_request_head(frame)
    assert (caught.value.head.api_key, caught.value.head.api_version) == (api_key, version)
    assert (caught.value.head.correlation_id, caught.value.head.client_id) == (42, None)


def test_a_response_that_we_never_asked_for_is_our_mistake() -> None:
    for api_key, version in ((0, 0), (52, 3)):
        with pytest.raises(LocalProtocolError, match="never asked"):
            frames.decode_response(b"\0" * 20, api_key=api_key, version=version)


# Headers ------------------------------------------------------------------------------------------


def test_the_header_of_an_api_versions_response_never_has_tags() -> None:
    response = ApiVersionsResponse()
    for version in ApiVersionsResponse.valid_versions:
        frame = frames.encode_response(response, version=version, correlation_id=7)
        assert frame[:6] == bytes.fromhex("00000007 0000")
        assert frames.decode_response(frame, api_key=18, version=version) == (7, response)


@pytest.mark.parametrize("tags", ["00", "01 05 02 abcd", "02 00 00 81 01 01 ff"])
def test_tags_in_a_header_are_passed_over(tags: str) -> None:
    body = frames.encode_request(VoteRequest(), version=2, correlation_id=7, client_id="a")[12:]
    frame = bytes.fromhex("0034 0002 00000007 0001 61" + tags) + body
    request = frames.decode_request(frame)
    assert (request.message, request.correlation_id, request.client_id) == (VoteRequest(), 7, "a")

    correlation_id, response = frames.decode_response(
        bytes.fromhex("00000007" + tags + "0000 01 00"), api_key=52, version=2
    )
    assert (correlation_id, response.kind) == (7, "response")


def test_a_client_id_may_be_missing_and_is_never_compact() -> None:
    frame = frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id=None)
    assert frame == bytes.fromhex("0012 0000 00000001 ffff")
    assert frames.decode_request(frame).client_id is None
    with pytest.raises(LocalProtocolError, match="40000 bytes is too long"):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="x" * 40_000)
    with pytest.raises(LocalProtocolError, match="has no UTF-8"):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="\udc00")
    with pytest.raises(RemoteProtocolError, match="-2 bytes"):
        frames.decode_request(bytes.fromhex("0012 0000 00000001 fffe"))


def test_a_correlation_id_that_fits_no_header_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="4294967296"):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=2**32, client_id=None)


def test_bytes_behind_a_message_are_tolerated_as_kafka_tolerates_them() -> None:
    frame = frames.encode_request(VoteRequest(), version=2, correlation_id=7, client_id="a")
    assert frames.decode_request(frame + b"more").message == VoteRequest()


def test_the_records_of_a_response_are_a_view_of_its_frame() -> None:
    partition = FetchResponse.PartitionData(records=b"x" * 1000)
    response = FetchResponse(responses=(FetchResponse.FetchableTopicResponse(partitions=(partition,)),))
    frame = frames.encode_response(response, version=18, correlation_id=1)

    _, again = frames.decode_response(frame, api_key=1, version=18)

    assert again == response
    view = again.responses[0].partitions[0].records  # type: ignore[attr-defined]
    assert isinstance(view, memoryview)
    assert view.obj is frame


# Other protocols ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_bytes", "named"),
    [
        (bytes.fromhex("16030100c8010000c40303"), "TLS"),
        (bytes.fromhex("15030300020228"), "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /v1", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6", "SSH"),
    ],
)
def test_another_protocol_is_recognised_and_could_never_be_a_length(first_bytes: bytes, named: str) -> None:
    assert named in str(frames.describe_foreign_bytes(first_bytes))
    assert named in str(frames.describe_foreign_bytes(first_bytes[:4]))
    assert int.from_bytes(first_bytes[:4], "big") > frames.MAX_FRAME_BYTES


@pytest.mark.parametrize("first_bytes", [b"", b"\0", b"\x06\x40\x00\x00", b"\xff\xff\xff\xff", b"abcd"])
def test_what_is_not_recognised_has_no_name(first_bytes: bytes) -> None:
    assert frames.describe_foreign_bytes(first_bytes) is None
