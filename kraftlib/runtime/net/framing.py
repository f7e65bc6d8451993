"""Kafka's framing: four bytes of length, then a frame. Out of a stream of chunks come whole frames, in order.

    int32 size (of the frame) | frame

The buffer grows with the bytes that arrived and never with the size that a peer claims, so a lie costs nothing. A chunk
that holds whole frames is cut into them as it is, and only a frame that came in several chunks is gathered. Nothing is
shifted or joined per chunk, so time stays linear in the bytes, however they trickle.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from kraftlib.runtime.net.transport import Frame
from kraftlib.wire.frames import describe_foreign_bytes

LENGTH_BYTES: Final = 4
COPIED_MAX_BYTES: Final = 16 * 1024
"""Frames up to this come as `bytes` of their own: cheaper to work on than a view. Larger ones are not copied."""

JOINED_MAX_BYTES: Final = 64 * 1024
"""Frames up to this are joined with their length and their neighbours into one write: copying more costs more than a
second system call."""

_LENGTH: Final = struct.Struct(">i")


class BadFrameError(Exception):
    """A length that no frame has. The stream cannot be trusted any more: close the connection."""

    def __init__(self, length: int, max_bytes: int, first_bytes: bytes) -> None:
        super().__init__(f"frame of {length} bytes announced")
        self.length = length
        self.max_bytes = max_bytes
        self.first_bytes = first_bytes
        """The four bytes where the length should be: they give a speaker of another protocol away."""


def describe_bad_frame(error: BadFrameError) -> str:
    """Return what a peer did that sent this, for the operator."""
    foreign = describe_foreign_bytes(error.first_bytes)
    size = f"it announced a frame of {error.length} bytes (allowed are 1 to {error.max_bytes})"
    return f"{size}; it sent {foreign}" if foreign else size


class FrameReader:
    """Cuts the bytes of one connection into frames."""

    __slots__ = ("_data", "_gathering", "_max_bytes", "_position", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data: bytes | bytearray = b""
        self._size = 0
        self._position = 0
        # True while `_data` is a bytearray without other readers: only then may it grow in place.
        self._gathering = False

    @property
    def held_bytes(self) -> int:
        """Number of bytes that wait here for the rest of their frame, or to be taken."""
        return self._size - self._position

    def allow(self, max_bytes: int) -> None:
        """Take frames of up to this size from now on."""
        self._max_bytes = max_bytes

    def only_frame(self, data: bytes) -> Frame | None:
        """Return the frame that `data` is, whole and alone and of a common size, if nothing waits here; else None."""
        length = len(data) - LENGTH_BYTES
        if (
            self._position != self._size
            or not 0 < length <= COPIED_MAX_BYTES
            or length > self._max_bytes
            or int.from_bytes(data[:LENGTH_BYTES], "big") != length
        ):
            return None
        return data[LENGTH_BYTES:]

    def feed(self, data: bytes) -> None:
        """Add what arrived. Take the frames with `next_frame` until it returns None."""
        if self._position == self._size:
            self._data, self._size, self._position, self._gathering = data, len(data), 0, False
            return
        if self._gathering and isinstance(self._data, bytearray):
            del self._data[: self._position]  # advances the start of the bytearray, moves nothing
        else:
            # Frames cut from the old data are views of it, so it stays; the unfinished rest moves, once.
            self._data, self._gathering = bytearray(memoryview(self._data)[self._position :]), True
        self._data += data
        self._size, self._position = len(self._data), 0

    def next_frame(self) -> Frame | None:
        """Return the next whole frame; None until more bytes are fed.

        Raises: BadFrameError, if the length that stands next is not in `(0, max_bytes]`.
        """
        start = self._position + LENGTH_BYTES
        if start > self._size:
            return None
        length: int = _LENGTH.unpack_from(self._data, self._position)[0]
        if not 0 < length <= self._max_bytes:
            raise BadFrameError(length, self._max_bytes, bytes(self._data[self._position : self._position + 64]))
        end = start + length
        if end > self._size:
            return None
        if length <= COPIED_MAX_BYTES:
            frame: Frame = bytes(self._data[start:end])
        else:
            frame = memoryview(self._data)[start:end].toreadonly()
            self._gathering = False
        self._position = end
        if end == self._size:
            self.drop()  # an idle connection keeps nothing
        return frame

    def drop(self) -> None:
        """Forget all bytes: the connection is gone."""
        self._data, self._size, self._position, self._gathering = b"", 0, 0, False


def framed(frame: Frame) -> bytes:
    """Return `frame` with its length before it."""
    return len(frame).to_bytes(LENGTH_BYTES, "big") + frame


class ByteSink(Protocol):
    """The asyncio transport that a FrameWriter writes to."""

    def write(self, data: bytes | memoryview) -> None:
        """Send, or keep until it can be sent."""
        ...


class FrameWriter:
    """Sends frames over one connection: at once, or gathered into one write.

    A lone frame leaves at once, since its reader waits for it. Where more may follow in the same turn of the event loop
    the owner calls `gather` first and `flush` when the turn ends, which makes one system call of many frames.
    """

    __slots__ = ("_parts", "_sink", "gathering")

    def __init__(self) -> None:
        self._sink: ByteSink | None = None
        self._parts: list[bytes] = []
        self.gathering = True
        """Whether frames wait for `flush`, as they do until there is a connection."""

    def attach(self, sink: ByteSink) -> None:
        """Take `sink` for all frames, first for those that have waited for it."""
        self._sink = sink
        self.flush()

    def detach(self) -> None:
        """Forget the connection: frames go nowhere from now on."""
        self._sink = None
        self._parts.clear()

    def gather(self) -> None:
        """Keep frames until `flush`."""
        self.gathering = True

    def flush(self) -> None:
        """Write what was gathered; further frames leave at once."""
        if self._sink is None:
            return
        self.gathering = False
        if self._parts:
            parts, self._parts = self._parts, []
            self._sink.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def write(self, frame: Frame) -> None:
        """Send `frame` with its length, in order."""
        if len(frame) > JOINED_MAX_BYTES and self._sink is not None:
            self._parts.append(len(frame).to_bytes(LENGTH_BYTES, "big"))
            was_gathering = self.gathering
            self.flush()
            self._sink.write(frame)
            self.gathering = was_gathering
        elif self.gathering:
            self._parts.append(framed(frame))
        elif self._sink is not None:
            self._sink.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
