"""The tool's connection, against what real controllers answered and against what nobody should."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from kraftlib.errors import RemoteProtocolError
from kraftlib.types import Endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import RequestHead, encode_response, refuse_api_versions
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlib.wire_client import UnreachableError, WireClient
from tests.cli.canned import captured, controller, from_table, raw_server


def test_a_real_controllers_answers_are_understood() -> None:
    with controller(from_table(captured(9402))) as endpoint, WireClient(endpoint, timeout_s=10) as client:
        assert client.knows(ApiKey.DESCRIBE_QUORUM)
        answer = client.ask(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)

    assert answer.cluster_id == "KamCna3aR0Ca0-LOI6hKfg"


def test_a_server_that_knows_only_old_versions_is_asked_again_in_one_of_them() -> None:
    def answer(head: RequestHead) -> bytes:
        if head.api_version > 2:
            refusal = bytearray(refuse_api_versions(head.correlation_id))
            refusal[-2:] = b"\0\2"
            return bytes(refusal)
        served = ApiVersionsResponse.ApiVersion(api_key=55, min_version=0, max_version=1)
        return encode_response(
            ApiVersionsResponse(api_keys=(served,)), version=head.api_version, correlation_id=head.correlation_id
        )

    with controller(answer) as endpoint, WireClient(endpoint, timeout_s=10) as client:
        assert client.knows(ApiKey.DESCRIBE_QUORUM)
        with pytest.raises(RemoteProtocolError, match="supports no version of DescribeClusterRequest"):
            client.ask(DescribeClusterRequest(), DescribeClusterResponse)


def test_a_port_on_which_nobody_listens_is_named() -> None:
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        endpoint = Endpoint(*placeholder.getsockname())
        with pytest.raises(UnreachableError, match=f"{endpoint} cannot be reached: Connection refused"):
            WireClient(endpoint, timeout_s=10)


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".example"])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    """A replica may name such a leader."""
    with pytest.raises(UnreachableError, match="cannot be reached"):
        WireClient(Endpoint(host, 9093), timeout_s=10)


def test_a_server_that_says_nothing_is_given_up() -> None:
    with (
        raw_server(lambda connection: connection.recv(1) and None) as endpoint,
        pytest.raises(UnreachableError, match="gave no answer"),
    ):
        WireClient(endpoint, timeout_s=10)


def test_a_server_whose_answer_never_ends_is_given_up() -> None:
    """Each part of it comes in time."""
    given_up = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1_000)
        with contextlib.suppress(OSError):
            while not given_up.wait(0.05):
                connection.sendall(struct.pack(">i", 1_000))

    with raw_server(serve) as endpoint:
        with pytest.raises(UnreachableError, match="gave no answer: it took too long"):
            WireClient(endpoint, timeout_s=0.4)
        given_up.set()


def test_a_server_that_speaks_http_is_recognised() -> None:
    with (
        raw_server(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as endpoint,
        pytest.raises(RemoteProtocolError, match="does not speak Kafka's protocol: it sent HTTP"),
    ):
        WireClient(endpoint, timeout_s=10)


def test_an_answer_to_another_request_is_refused() -> None:
    def answer(head: RequestHead) -> bytes:
        return encode_response(ApiVersionsResponse(), version=4, correlation_id=head.correlation_id + 1)

    with controller(answer) as endpoint, pytest.raises(RemoteProtocolError, match="answers request 2, not 1"):
        WireClient(endpoint, timeout_s=10)


def test_a_refusal_is_named() -> None:
    def answer(head: RequestHead) -> bytes:
        refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return encode_response(refusal, version=4, correlation_id=head.correlation_id)

    with controller(answer) as endpoint, pytest.raises(RemoteProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
        WireClient(endpoint, timeout_s=10)
