"""Envelopes: what is in them, and who has sent it. `tests/controller/test_service.py` has them over sockets."""

from __future__ import annotations

import struct

import pytest

from kraftlib.codec.declared import write
from kraftlib.errors import ProtocolError
from kraftlib.runtime.net.request_handler import client_of, is_for_the_active_controller, open_envelope
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.access import PRINCIPAL_MAX
from kraftlib.wire.apis import ApiKey, ErrorCode, error_answer
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest

TOPICS = CreateTopicsRequest(topics=tuple(CreateTopicsRequest.CreatableTopic(name=str(number)) for number in range(9)))


BROKER = Peer("10.0.0.9:5", ("User:broker",))


def envelope(name: str = "ann", *, kind: str = "User", address: bytes = b"\x0a\0\0\1") -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=encode_request(TOPICS, version=7, correlation_id=3, client_id="c"),
        request_principal=struct.pack(">h", 0) + write(DefaultPrincipalData(type=kind, name=name), 0),
        client_host_address=address,
    )


@pytest.mark.parametrize(
    ("name", "address", "principals", "shown"),
    [
        ("ann", b"\x0a\0\0\1", ("User:ann",), "10.0.0.1:0"),
        ("ANONYMOUS", b"\x7f\0\0\1", ("User:ANONYMOUS",), "127.0.0.1:0"),
        ("ann", bytes(15) + b"\1", ("User:ann",), "0" * 31 + "1:0"),
    ],
)
def test_the_sender_is_the_one_that_the_broker_names(
    name: str, address: bytes, principals: tuple[str, ...], shown: str
) -> None:
    sent, forwardable = envelope(name, address=address), frozenset({ApiKey.CREATE_TOPICS})
    request, peer = open_envelope(sent, forwardable=forwardable, elements_max=100), client_of(sent, BROKER)
    assert peer.forwarded_by is BROKER
    assert (request.message, request.correlation_id, request.api_version) == (TOPICS, 3, 7)
    assert (peer.principals, peer.address) == (principals, shown)


@pytest.mark.parametrize("address", [b"", b"abc", bytes(5), bytes(1 << 20)])
def test_a_client_has_an_address_of_ip(address: bytes) -> None:
    """It stands in log lines, so it must not be as long as a frame can be."""
    with pytest.raises(ProtocolError, match="address of its client"):
        client_of(envelope(address=address), BROKER)


def test_what_is_not_forwardable_or_too_large_is_refused() -> None:
    with pytest.raises(ProtocolError, match="never forwarded"):
        open_envelope(envelope(), forwardable=frozenset(), elements_max=100)
    with pytest.raises(ProtocolError):
        open_envelope(envelope(), forwardable=frozenset({ApiKey.CREATE_TOPICS}), elements_max=5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("unix", "0"),
        ("kraft", "//blue/3"),
        ("cert", "CN=ann"),
        ("https", "//ops.example/ann"),
        ("user", "ann"),
        ("", "ann"),
        ("User", ""),
        ("User", "a" * PRINCIPAL_MAX),
    ],
)
def test_a_broker_vouches_for_users_only(kind: str, name: str) -> None:
    """Else it could name the own user of the replica on its Unix socket, or the certificate of a voter."""
    with pytest.raises(ProtocolError, match="its principal must be User:NAME"):
        client_of(envelope(name, kind=kind), BROKER)


def test_not_controller_is_seen_wherever_it_stands() -> None:
    for request in (TOPICS, UnregisterBrokerRequest(broker_id=1)):
        assert is_for_the_active_controller(error_answer(request, ErrorCode.NOT_CONTROLLER))
        assert not is_for_the_active_controller(error_answer(request, ErrorCode.INVALID_REQUEST))
