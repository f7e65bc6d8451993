"""Quorums to be followed by queries: voters in this process, and appends that go wherever they are taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.types import Endpoint
from tests.cli.processes import free_port

PATIENCE_S: Final = 120


@contextmanager
def voters(count: int) -> Iterator[list[RaftClient[bytes]]]:
    """Run so many voters, which keep nothing that a snapshot stands for."""
    places = {number: Endpoint("127.0.0.1", free_port()) for number in range(1, count + 1)}
    quorum = tuple(StaticVoter(number, place) for number, place in places.items())
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                RaftClient(
                    RaftConfig(node_id=number, cluster_id="live", voters=quorum, listen=place, retention_bytes=0)
                )
            )
            for number, place in places.items()
        ]


def append(quorum: list[RaftClient[bytes]], values: list[bytes]) -> int:
    """Append wherever it is taken; return one past the last record."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for client in quorum:
            try:
                return client.append(values, timeout_ms=0).last_offset + 1
            except (NotLeaderError, OutcomeUnknownError):
                continue
        time.sleep(0.01)
    raise AssertionError("nobody leads")
