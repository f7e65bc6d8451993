"""Row 22 of the security checklist: requests that wait cost no more memory than a replica spends on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from kraftlib import Endpoint, RaftConfig
from kraftlib.coordination.net.replica import open as open_replica
from kraftlib.plain_values import parse_voter
from kraftlib.runtime.net.framing import framed
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_client import SaslClient
from kraftlib.security.sasl_users import load_users
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.query import QueryRequest
from tests.ports import free_port
from tests.runtime.quorum import PATIENCE_S

MEBIBYTE = 1024 * 1024
PIPELINED = 32
USERS = {"replica-1": "correct horse battery", "grafana": "another password"}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def question_of(size: int) -> bytes:
    """Return a Query that waits for a record that nobody writes, with a question that is larger than it may be."""
    query = QueryRequest(timeout_ms=30_000, consistency=1, offset=2**60)
    head = encode_request(query, version=0, correlation_id=1, client_id="x").removesuffix(b"\1\0")
    length, digits = size + 1, bytearray()
    while length >= 0x80:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return framed(head + bytes((*digits, length)) + bytes(size) + b"\0")


async def test_row_22_large_questions_of_a_user_that_wait_take_no_memory() -> None:
    """Any user could hold a quarter of a gigabyte for half a minute, with one connection."""
    port = free_port()
    sasl = SaslConfig(password=USERS["replica-1"], users=USERS)
    voters = (parse_voter(f"1@127.0.0.1:{port}"),)
    config = RaftConfig(
        node_id=1, voters=voters, listen=Endpoint("127.0.0.1", port), cluster_id="x", engine="inline", sasl=sasl
    )
    grafana = SaslConfig(username="grafana", password=USERS["grafana"])
    async with asyncio.timeout(3 * PATIENCE_S), open_replica(config) as replica:
        await replica.client.wait_for_leader()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        login = SaslClient(load_users(grafana, 9, encrypted=False, insecure=False), client_id="x")
        frame: bytes | None = login.start()
        while frame is not None:
            writer.write(framed(frame))
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = login.receive(await reader.readexactly(size))
        question = question_of(8 * MEBIBYTE)
        before = resident_bytes()
        with contextlib.suppress(ConnectionError):
            for _ in range(PIPELINED):
                writer.write(question)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        assert resident_bytes() - before < PIPELINED * MEBIBYTE
        writer.close()
