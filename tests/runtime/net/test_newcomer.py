"""Strangers are turned away at their first bytes, and only for what the connection would have closed them for, too."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kraftlib.runtime.net.framing import BadFrameError, FrameReader, framed
from kraftlib.runtime.net.newcomer import Complaint, FirstBytes
from kraftlib.security.before_login import too_early
from kraftlib.security.sasl_server import SaslServer
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.runtime.net.test_sasl_connections import users

MAX = 1_000
HELLO = encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="stranger")


def rules(*, is_encrypted: bool = False, asks_login: bool = False) -> FirstBytes:
    return FirstBytes(is_encrypted=is_encrypted, asks_login=asks_login, frame_max_bytes=MAX)


@given(st.binary(min_size=6, max_size=64))
@example(framed(bytes(MAX)))
@example(framed(bytes(MAX + 1)))
@example(bytes(6))
def test_only_frames_that_the_connection_refuses_are_turned_away(first: bytes) -> None:
    reader = FrameReader(MAX)
    reader.feed(first)
    try:
        reader.next_frame()
    except BadFrameError:
        is_bad = True
    else:
        is_bad = False
    found = rules().complaint(first)
    assert (found is not None) == is_bad
    assert found is None or found.kind == "bad_frame"


@given(st.integers(-(1 << 15), (1 << 15) - 1))
@example(17)
@example(18)
@example(36)
def test_only_requests_that_a_login_refuses_are_turned_away(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + HELLO[2:]
    step = SaslServer(users()).receive(frame)
    is_early = step.failure == too_early(api_key)
    found = rules(asks_login=True).complaint(framed(frame))
    assert found == (Complaint("sasl", too_early(api_key), "SaslLogin") if is_early else None)
    assert step.close or not is_early


def test_first_bytes_that_come_singly_are_left_to_the_connection() -> None:
    for size in range(1, 6):
        assert rules(asks_login=True).complaint(b"\xff" * size) is None
