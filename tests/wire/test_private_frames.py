"""The bytes of the private requests, as docs/reference/client-protocol.md describes them."""

from __future__ import annotations

import pytest

from kraftlib.codec.declared import Message
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages.call import CallRequest, CallResponse
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse
from kraftlib.wire.messages.query import QueryRequest, QueryResponse
from kraftlib.wire.messages.watch import WatchRequest, WatchResponse

REQUESTS = [
    pytest.param(
        ProposeRequest(cluster_id="blue", timeout_ms=5_000, level=3, values=(b"one", b"")),
        # key, version, correlation id, client id "me", tags | "blue", 5000 ms, level 3, two values, tags
        "7533 0000 00000007 0002 6d65 00  05 626c7565 00001388 03 03 04 6f6e65 01 00",
        id="Propose",
    ),
    pytest.param(
        CallRequest(timeout_ms=5_000, command=b"do"), "7534 0000 00000007 0002 6d65 00  00001388 03 646f 00", id="Call"
    ),
    pytest.param(
        QueryRequest(timeout_ms=5_000, consistency=1, offset=10, question=b"what"),
        "7535 0000 00000007 0002 6d65 00  00001388 01 000000000000000a 05 77686174 00",
        id="Query",
    ),
    pytest.param(
        WatchRequest(max_wait_ms=2_000, max_bytes=4_096, watches=(WatchRequest.Watch(selector=b"all", since=-2),)),
        # 2000 ms, 4096 bytes, one watch: its selector, since, tags; tags
        "7536 0000 00000007 0002 6d65 00  000007d0 00001000 02 04 616c6c fffffffffffffffe 00 00",
        id="Watch",
    ),
]
RESPONSES = [
    pytest.param(
        ProposeResponse(base_offset=10, last_offset=11, epoch=4, results=(b"\x01yes", b"\x00")),
        # correlation id, tags | no error, no text, leader -1 in epoch -1 at "":0, tags, 10, 11, 4, two results, tags
        "00000007 00  0000 00 ffffffff ffffffff 01 00000000 00 000000000000000a 000000000000000b 00000004"
        "03 05 01796573 02 00 00",
        id="Propose",
    ),
    pytest.param(
        ProposeResponse(
            error_code=6,
            error_message="no",
            current_leader=ProposeResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=5, host="b", port=9093),
        ),
        "00000007 00  0006 03 6e6f 00000002 00000005 02 62 00002385 00ffffffffffffffff ffffffffffffffff ffffffff 01 00",
        id="Propose, refused",
    ),
    pytest.param(
        CallResponse(offset=10, epoch=4, result=b"did"),
        "00000007 00  0000 00 000000000000000a 00000004 04 646964 00",
        id="Call",
    ),
    pytest.param(
        QueryResponse(offset=10, answer=b"that"), "00000007 00  0000 00 000000000000000a 05 74686174 00", id="Query"
    ),
    pytest.param(
        WatchResponse(
            found=(
                WatchResponse.Found(
                    next_since=12, changes=(WatchResponse.Change(offset=11, full=True, data=b"state"),)
                ),
            )
        ),
        # no error, no text, one watch: no error, no text, next since, one change: offset, full, data, tags; tags; tags
        "00000007 00  0000 00 02 0000 00 000000000000000c 02 000000000000000b 01 06 7374617465 00 00 00",
        id="Watch",
    ),
]


@pytest.mark.parametrize(("message", "text"), REQUESTS)
def test_a_request_has_these_bytes(message: Message, text: str) -> None:
    frame = bytes.fromhex(text)
    assert encode_request(message, version=0, correlation_id=7, client_id="me") == frame
    assert decode_request(frame).message == message


@pytest.mark.parametrize(("message", "text"), RESPONSES)
def test_a_response_has_these_bytes(message: Message, text: str) -> None:
    frame = bytes.fromhex(text)
    assert encode_response(message, version=0, correlation_id=7) == frame
    assert decode_response(frame, api_key=message.api_key, version=0) == (7, message)
