"""An accepted connection until its first bytes have been looked at. Nothing is built for it before.

To a loop a stranger costs mostly what is built for it: a task, a transport, a protocol with its buffers, the options of
its socket. The first bytes give most strangers away. A stranger may speak another protocol, announce a frame that is
too large, or ask before the login what is served after it. Such a connection costs the system calls that look at its
bytes and close it. The look does not take the bytes (MSG_PEEK), so a connection that may stay finds them where they
were. The connection itself finds what is wrong further on, and it reads first bytes that come one by one.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from kraftlib.frozen import define, immutable
from kraftlib.runtime.net.framing import LENGTH_BYTES, BadFrameError, describe_bad_frame
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.admission import Standing
from kraftlib.security.before_login import may_stand_first, too_early

PEEKED_BYTES: Final = 64
API_KEY_END: Final = LENGTH_BYTES + 2

HANDSHAKE_RECORD: Final = 0x16
"""The first byte of a TLS connection."""

ALERT: Final = bytes.fromhex("15 0303 0002 02 46")
"""The answer of TLS to other bytes: a fatal alert, protocol_version. It tells the client what is spoken here."""


@immutable
class Complaint:
    """Why a connection is closed at its first bytes."""

    kind: str
    """The kind of the notice (`kraftlib.runtime.net.notices`)."""
    reason: str
    attempt: str | None = None
    """The refusal that the audit log is told, `TlsHandshake` or `SaslLogin`."""
    answer: bytes = b""


@immutable(kw_only=True)
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


@define(eq=False)
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
                self.accepted.recv(1 << 16)  # the system would drop the answer if bytes were left unread
                self.accepted.send(answer)
        self.accepted.close()
