"""An accepted connection until its first bytes have been looked at. Nothing is built for it before.

To a loop a stranger costs mostly what is built for it: a task, a transport, a protocol with its buffers, the options of
its socket. Most strangers give themselves away with their first bytes: they speak another protocol, announce a frame
that nobody may send, or ask for what nobody may ask before authentication. They are closed with the system calls that
look at these bytes. The bytes are not taken (MSG_PEEK): a connection that may stay finds them where they were. What is
wrong further on is found by the connection itself, as are first bytes that come singly.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

import attrs

from kraftlib.runtime.net.framing import LENGTH_BYTES, BadFrameError, describe_bad_frame
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.admission import Standing
from kraftlib.security.sasl_server import may_stand_first, too_early

PEEKED_BYTES: Final = 64
API_KEY_END: Final = LENGTH_BYTES + 2

HANDSHAKE_RECORD: Final = 0x16
"""The first byte of a TLS connection."""

ALERT: Final = bytes.fromhex("15 0303 0002 02 46")
"""The answer of TLS to other bytes: a fatal alert, protocol_version. It tells the client what is spoken here."""


@attrs.frozen
class Complaint:
    """Why a connection is closed at its first bytes."""

    kind: str
    """The kind of the notice (`kraftlib.runtime.net.notices`)."""
    reason: str
    attempt: str | None = None
    """The refusal that the audit log is told, `TlsHandshake` or `SaslLogin`."""
    answer: bytes = b""


@attrs.frozen(kw_only=True)
class FirstBytes:
    """The rules for the first bytes of a connection."""

    is_encrypted: bool
    asks_login: bool
    """Whether only requests of a login are served at first. On an encrypted connection they cannot be seen here."""
    frame_max_bytes: int
    """The largest first frame."""

    def complaint(self, first: bytes) -> Complaint | None:
        """Return why a connection that begins with `first`, at least one byte, is closed; None if it may stay."""
        if self.is_encrypted:
            if first[0] == HANDSHAKE_RECORD:
                return None
            return Complaint("handshake", "one side speaks TLS and the other does not", "TlsHandshake", ALERT)
        if len(first) < API_KEY_END:
            return None
        length = int.from_bytes(first[:LENGTH_BYTES], "big", signed=True)
        if not 0 < length <= self.frame_max_bytes:
            return Complaint("bad_frame", describe_bad_frame(BadFrameError(length, self.frame_max_bytes, first)))
        if self.asks_login:
            api_key = int.from_bytes(first[LENGTH_BYTES:API_KEY_END], "big", signed=True)
            if not may_stand_first(api_key):
                return Complaint("sasl", too_early(api_key), "SaslLogin")
        return None


def first_bytes(accepted: socket.socket) -> bytes | None:
    """Return what waits to be read; nothing if the connection has ended, None if no byte has come yet."""
    try:
        return accepted.recv(PEEKED_BYTES, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


@attrs.define(eq=False)
class Newcomer:
    """A socket, and who has made the connection. It has a slot of the port while it waits for its first bytes."""

    accepted: socket.socket
    """Non-blocking."""
    host: str
    """The address that it shares slots with, on a Unix socket the user of `peer`."""
    peer: Peer
    rules: FirstBytes
    accepted_at: float
    """In s of the loop's time."""
    of_voters: bool = False
    standing: Standing = Standing.NEWCOMER

    def idle_s(self, now: float) -> float:
        """Return 0: it has asked nothing at all."""
        return 0.0

    def close(self, answer: bytes = b"") -> None:
        """Close the connection, after `answer`."""
        with contextlib.suppress(OSError):
            if answer:
                self.accepted.recv(1 << 16)  # bytes that nobody has read would make the system drop the answer
                self.accepted.send(answer)
        self.accepted.close()
