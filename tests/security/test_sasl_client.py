"""The connecting side of SASL, against our own server and against servers that lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.security.before_login import SaslError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_client import SaslClient
from kraftlib.security.sasl_server import SaslServer
from kraftlib.security.sasl_users import SaslUsers, load_users
from kraftlib.security.scram import ScramServer, make_verifier
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.frames import decode_request, encode_response
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def users(**options: Any) -> SaslUsers:
    options = {"password": "right", "username": "replica-1", **options}
    return load_users(SaslConfig(**options), 2, encrypted=True, insecure=False)


def run(client: SaslClient, server: SaslServer) -> str | None:
    """Let both talk until the client is content; return whom the server takes it for."""
    user, frame = None, client.start()
    while True:
        step = server.receive(frame)
        if step.check is not None:
            step = step.check.then(step.check.run())
        user = step.user or user
        assert step.answer is not None
        following = client.receive(step.answer)
        if following is None:
            return user
        frame = following


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_client_and_server_agree(mechanism: str) -> None:
    both = users(mechanism=mechanism)
    for _ in range(2):
        assert run(SaslClient(both, client_id="c"), SaslServer(both)) == "replica-1"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_is_said_with_the_user_and_without_the_password(mechanism: str) -> None:
    client = SaslClient(users(mechanism=mechanism, password="my own idea"), client_id="c")
    with pytest.raises(SaslError, match=r"refuses user 'replica-1' with SASL_AUTHENTICATION_FAILED") as refused:
        run(client, SaslServer(users(mechanism=mechanism, username="replica-1")))
    assert "my own idea" not in str(refused.value)


def test_a_server_that_offers_plain_alone_is_not_told_the_password() -> None:
    client, server = SaslClient(users(), client_id="c"), SaslServer(users(mechanism="PLAIN"))
    step = server.receive(client.start())
    assert step.answer is not None
    with pytest.raises(SaslError, match="it accepts 'PLAIN', and \\[sasl\\] mechanism is SCRAM-SHA-512"):
        client.receive(step.answer)


def answered(client: SaslClient, frame: bytes, **fields: Any) -> bytes | None:
    """Give the client an answer of this content to `frame`."""
    request = decode_request(frame)
    kind = SaslHandshakeResponse if isinstance(request.message, SaslHandshakeRequest) else SaslAuthenticateResponse
    return client.receive(
        encode_response(kind(**fields), version=request.api_version, correlation_id=request.correlation_id)
    )


def test_a_server_without_the_password_is_found_out() -> None:
    """It lets everybody in, as somebody would who wants to be taken for the leader."""
    client = SaslClient(users(), client_id="c")
    first = answered(client, client.start(), mechanisms=("SCRAM-SHA-512",)) or b""
    message = decode_request(first).message
    assert isinstance(message, SaslAuthenticateRequest)
    liar = ScramServer("sha512", lambda name: (make_verifier("sha512", b"guess"), True))
    final = answered(client, first, auth_bytes=liar.first(message.auth_bytes)) or b""
    with pytest.raises(SaslError, match="does not know the password either; it is not a replica of ours"):
        answered(client, final, auth_bytes=b"v=" + b"A" * 86 + b"==")


def test_a_server_that_says_done_too_early_is_not_believed() -> None:
    for token in (b"", b"v=AAAA", b"r=x,s=AAAA,i=4096"):
        client = SaslClient(users(), client_id="c")
        first = answered(client, client.start()) or b""
        with pytest.raises(SaslError):
            answered(client, first, auth_bytes=token)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"error_code": ErrorCode.ILLEGAL_SASL_STATE}, "is SASL on at its listener"),
        ({"error_code": 33, "mechanisms": ("A" * 5_000,)}, "it accepts"),
    ],
)
def test_a_refusal_is_said_in_bounds(fields: dict[str, Any], message: str) -> None:
    client = SaslClient(users(), client_id="c")
    with pytest.raises(SaslError, match=message) as refused:
        answered(client, client.start(), **fields)
    assert len(str(refused.value)) < 400


def test_the_answer_to_another_request_is_refused() -> None:
    client = SaslClient(users(), client_id="c")
    client.start()
    with pytest.raises(SaslError, match="answers request 9, not 1"):
        client.receive(encode_response(SaslHandshakeResponse(), version=1, correlation_id=9))


@given(st.binary(max_size=60))
def test_whatever_a_server_sends_is_refused_in_one_way(data: bytes) -> None:
    client = SaslClient(users(), client_id="c")
    client.start()
    try:
        client.receive(data)
    except SaslError:
        return
    assert data[:4] == b"\0\0\0\1"


def test_no_password_stands_in_a_repr() -> None:
    assert "right" not in repr(SaslClient(users(), client_id="c"))
