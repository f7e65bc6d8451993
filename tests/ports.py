"""Ports of this machine on which nobody listens just now, and voters who are reached there."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack

from kraftlib.config import StaticVoter
from kraftlib.types import Endpoint


def free_port() -> int:
    """Return one of them."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many, each another one."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in found]


def local_voters(ids: Iterable[int] = (1, 2, 3)) -> tuple[StaticVoter, ...]:
    """Return voters with these ids, each on a port of its own."""
    numbers = list(ids)
    ports = free_ports(len(numbers))
    return tuple(StaticVoter(number, Endpoint("127.0.0.1", port)) for number, port in zip(numbers, ports, strict=True))
