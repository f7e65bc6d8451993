"""Sockets of a transport: the addresses to listen on, the peers that may connect, and how a dead peer is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import socket
import sys
import termios
from pathlib import Path
from typing import Any, Final

from kraftlib.errors import ConfigError
from kraftlib.runtime.net.unix_sockets import BACKLOG, dial_blocking
from kraftlib.security.addresses import look_up, plain_address
from kraftlib.types import Endpoint, socket_path

_NO_TLS_THERE: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"}
)
"""OpenSSL's reasons for an error when the other side does not speak TLS."""

DEAD_PEER_MS: Final = 30_000
"""Bytes that stay unacknowledged for this long break a connection, and so does an idle peer that does not answer
three probes. The request timeout notices a silent leader long before; this frees what is left."""

DEFER_S: Final = 1

_ACKED_BYTES: Final = slice(120, 128)
"""The place of `tcpi_bytes_acked` in Linux's `struct tcp_info`."""


async def bind(listen: Endpoint, *, encrypted: bool, insecure: bool) -> socket.socket:
    """Return a listening, non-blocking socket.

    Raises: ConfigError, if others could reach it in the clear, or if the address cannot be had.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            listen.host or None, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {listen}: {error.strerror or error}; name an address of this host"
        ) from error
    family, kind, protocol, _, address = found[0]
    if not (encrypted or insecure or is_loopback(str(address[0]))):
        raise ConfigError(
            f"listening on {listen} lets others in without TLS: set tls.cert, tls.key and tls.ca, or [sasl], or give "
            "server_ssl=, or insecure=True, which makes every peer that connects an administrator"
        )
    listener = socket.socket(family, kind, protocol)
    try:
        # A restarted replica takes its port back at once, though old connections still linger there.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        tune(listener)  # accepted connections inherit these options
        _defer(listener)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {listen}: {_remedy(error)}") from error
    return listener


def _defer(listener: socket.socket) -> None:
    """Have a connection accepted with its first bytes, where the system can do so, or after a second without any.

    In every protocol that is spoken here the client speaks first. So the loop wakes once for a newcomer and not twice,
    and a silent one costs it nothing. Silent connections stay in the system's queue of connections that are being made.
    When that is full, Linux sends SYN cookies and defers nothing; where these are turned off, nothing is deferred.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if int(Path("/proc/sys/net/ipv4/tcp_syncookies").read_text()):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_S)


def is_loopback(address: str) -> bool:
    """Whether only this host can reach a numeric address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def tune(connection: socket.socket) -> None:
    """Send small frames at once, and notice a peer that is gone without a word. An option that the system lacks is left
    out."""
    options = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_PEER_MS),
    ]
    for level, name, value in options:
        if (option := getattr(socket, name, None)) is not None:
            # The connection may be gone already, and then its owner hears of it in the usual way.
            with contextlib.suppress(OSError):
                connection.setsockopt(level, option, value)


def on_its_way(connection: Any) -> tuple[int, int]:
    """Return how many bytes are not acknowledged yet, and how many are; zeros, where the system does not tell."""
    try:
        waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
        known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_BYTES.stop)
    except (AttributeError, OSError, ValueError):  # it may be closed by now
        return 0, 0
    return int.from_bytes(waiting, sys.byteorder), int.from_bytes(known[_ACKED_BYTES], sys.byteorder)


def connected(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """Return a blocking connection for a tool. Raises: OSError."""
    path = socket_path(endpoint.host)
    if path is not None:
        return dial_blocking(path, timeout_s)
    return socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)


async def reach(endpoint: Endpoint, patience_s: float) -> dict[str, Any]:
    """Return what asyncio is to connect to: a plain address, or a socket that is connected to one of those of a name.

    Raises: OSError, of an address that has refused if there is one; ValueError and OverflowError, for no such name.
    """
    if plain_address(endpoint.host) is not None:  # no thread looks anything up
        return {"host": endpoint.host, "port": endpoint.port}
    return {"sock": await _dial_name(endpoint, patience_s)}


async def _dial_name(endpoint: Endpoint, patience_s: float) -> socket.socket:
    """Return a connected, non-blocking socket to one of the addresses of a name; each has its share of the time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    found = await look_up(endpoint.host, endpoint.port)
    errors: list[OSError] = []
    for left, place in zip(range(len(found), 0, -1), found, strict=True):
        try:
            return await _dial(place, (deadline - loop.time()) / left)
        except OSError as error:
            errors.append(error)
    raise next(filter(is_refusal, errors), errors[-1])


async def _dial(place: tuple[Any, ...], patience_s: float) -> socket.socket:
    family, kind, protocol, _, address = place
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(patience_s):
            await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def happens_within(event: asyncio.Event, patience_s: float) -> bool:
    """Wait for `event`; return whether it came in time."""
    try:
        await asyncio.wait_for(event.wait(), patience_s)
    except TimeoutError:
        return False
    return True


def address_text(address: Any) -> str:
    """Return a socket address as people write it."""
    if not isinstance(address, tuple):
        return str(address or "unknown")
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_refusal(error: BaseException) -> bool:
    """Whether a host has answered that no process listens there (ECONNREFUSED). A Unix socket may also be gone."""
    return isinstance(error, ConnectionRefusedError | FileNotFoundError)


def handshake_trouble(error: Exception) -> str:
    """Return why a TLS handshake failed, for people."""
    reason = getattr(error, "reason", None)
    if reason in _NO_TLS_THERE:
        return f"one side speaks TLS and the other does not ({reason})"
    return str(error) or type(error).__name__


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is in use; stop the process that has it, or take another port (0 takes a free one)"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this host has no such address; name one that it has"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not permitted; take a port from 1024 on"
    return f"{error.strerror or error}"
