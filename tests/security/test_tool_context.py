"""Tools speak to replicas only, whoever else has a certificate of the authority."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography import x509

from kraftlib.coordination.net.client import connect
from kraftlib.coordination.net.connection import LostError
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.types import Endpoint
from kraftlib.wire_client import Login, UnreachableError, WireClient
from tests.runtime.quorum import PATIENCE_S
from tests.runtime.wired import engine
from tests.security.authority import Authority

ANN = "https://ops/ann"


NO_TEXT = x509.UnrecognizedExtension(
    x509.ObjectIdentifier("2.5.29.17"), b"\x30\x0a\x87\x04\x7f\x00\x00\x01\x86\x02\xff\xfe"
)
"""The address 127.0.0.1, and a URI whose bytes are no UTF-8."""


@pytest.mark.parametrize(
    ("uri", "host", "options", "is_replica"),
    [
        ("kraft://blue/3", "127.0.0.1", {}, True),
        ("kraft://blue/3", "10.9.9.9", {}, False),
        ("kraft://blue/3", "10.9.9.9", {"check_hostname": False}, True),
        (ANN, "10.9.9.9", {"check_hostname": False}, False),
        (ANN, "127.0.0.1", {}, False),
        (ANN, "127.0.0.1", {"unnamed_replicas": True}, True),
        ("kraft://blue", "127.0.0.1", {"unnamed_replicas": True}, False),
    ],
)
async def test_a_server_is_taken_for_a_replica_by_its_certificate(
    tmp_path: Path, uri: str, host: str, options: dict[str, bool], is_replica: bool
) -> None:
    authority = Authority(tmp_path)
    tls = authority.files("ann", authority.issue(ANN), **options)
    there = TcpTransport(Endpoint("127.0.0.1", 0), **authority.contexts(uri, host=host))
    async with asyncio.timeout(PATIENCE_S), engine(there, cluster_id="blue") as server:

        def ask() -> None:
            with WireClient(server.endpoint, timeout_s=PATIENCE_S, login=Login(tls=tls)):
                pass

        why = "certificate verify failed" if host == "10.9.9.9" and not options else "this is no replica"
        if is_replica:
            await asyncio.to_thread(ask)
            why = "serves no clients"
        else:
            with pytest.raises(UnreachableError, match=why):
                await asyncio.to_thread(ask)
        async with connect([server.endpoint], tls=tls) as visitor:
            with pytest.raises(LostError, match=why):
                await visitor.connection()


async def test_a_server_whose_certificate_cannot_be_read_is_an_error_as_any_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.files("ann", authority.issue(ANN))
    there = TcpTransport(Endpoint("127.0.0.1", 0), **authority.contexts(extensions=[NO_TEXT]))
    async with asyncio.timeout(PATIENCE_S), engine(there, cluster_id="blue") as server:
        with pytest.raises(UnreachableError, match="no UTF-8"):
            await asyncio.to_thread(WireClient, server.endpoint, timeout_s=PATIENCE_S, login=Login(tls=tls))
        async with connect([server.endpoint], tls=tls) as visitor:
            with pytest.raises(LostError, match="no UTF-8"):
                await visitor.connection()
