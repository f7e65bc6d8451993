"""The bytes of the private requests, as docs/reference/client-protocol.md describes them."""

from __future__ import annotations

import pytest

from kraftlib.codec.declared import Message
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse

REQUESTS = [
    pytest.param(
        ProposeRequest(cluster_id="blue", timeout_ms=5_000, level=3, values=(b"one", b"")),
        # key, version, correlation id, client id "me", tags | "blue", 5000 ms, level 3, two values, tags
        "7533 0000 00000007 0002 6d65 00  05 626c7565 00001388 03 03 04 6f6e65 01 00",
        id="Propose",
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
