"""Hands an encrypted connection no more than it can send, so that bytes which its peer does not read are counted.

The TLS protocols of asyncio and uvloop encrypt all that they are given, at once, and pass it to the socket's transport.
Bytes that wait there stand in no write buffer that they tell of: an answer of 8 MiB that the peer does not read looks
as if it had been sent, and is held as a copy. So a large answer waits here, not yet encrypted, and goes on in pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

PIECE_BYTES: Final = 64 * 1024
"""As much as asyncio's transports buffer before they say that it is enough."""

TURN_PIECES: Final = 4
"""The number of pieces in one turn of the loop: encryption takes time, and a peer that is gone shows with the next turn
only."""


class TlsSink:
    """The sink of one encrypted connection, in place of its `transport`. Call `begin` first.

    Its owner passes `pause_writing` and `resume_writing` on. As a transport does with its own limits, it calls
    `stalled` once `max_bytes` wait, and `relieved` once it is a quarter of that.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        max_bytes: int,
        loop: asyncio.AbstractEventLoop,
        *,
        stalled: Callable[[], None],
        relieved: Callable[[], None],
    ) -> None:
        self._transport: Final = transport
        self._max_bytes: Final = max_bytes
        self._loop: Final = loop
        self._stalled: Final = stalled
        self._relieved: Final = relieved
        self._waiting: Final[deque[memoryview]] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        self._goes_on = False
        self._is_stalled = False
        self._closes = False

    def begin(self) -> None:
        """Have the transport say at once that it cannot send: within this call if a handshake still leaves."""
        self._transport.set_write_buffer_limits(high=1, low=0)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the peer has not read, except those in its socket and in one piece."""
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def write(self, data: bytes | memoryview) -> None:
        """Send, or keep until it can be sent."""
        if not self._waiting and not self._is_paused and len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        self._waiting.append(memoryview(data))
        self._waiting_bytes += len(data)
        self._send()
        if not self._is_stalled and self.get_write_buffer_size() > self._max_bytes:
            self._is_stalled = True
            self._stalled()

    def pause_writing(self) -> None:
        """Note that the transport cannot send."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send on in the next turn, now that the transport can: it may be in the midst of a write of its own."""
        self._is_paused = False
        self._go_on()

    def close(self) -> None:
        """Close once all has left."""
        self._closes = True
        self._send()

    def drop(self) -> None:
        """Let go of the bytes that have not left: the connection is gone."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def _go_on(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._goes_on = False
        self._send()
        if self._is_stalled and self.get_write_buffer_size() <= self._max_bytes // 4:
            self._is_stalled = False
            self._relieved()

    def _send(self) -> None:
        if self._goes_on:
            return
        pieces = 0
        while self._waiting and not self._is_paused and not self._transport.is_closing():
            if pieces == TURN_PIECES:
                self._go_on()
                return
            pieces += 1
            first = self._waiting.popleft()
            if len(first) > PIECE_BYTES:
                self._waiting.appendleft(first[PIECE_BYTES:])
                first = first[:PIECE_BYTES]
            self._waiting_bytes -= len(first)
            self._transport.write(first)
        # Once only: a second call makes asyncio's transport forget its protocol, and then nothing can end it.
        if self._closes and not self._waiting and not self._transport.is_closing():
            self._transport.close()
