"""Frames come out whole and in order, however the bytes arrive; a lying length is found at once."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlib.runtime.net.framing import (
    COPIED_MAX_BYTES,
    JOINED_MAX_BYTES,
    BadFrameError,
    FrameReader,
    FrameWriter,
    framed,
)

MAX = 100_000
sizes_of_frames = st.integers(1, 40) | st.sampled_from(
    [COPIED_MAX_BYTES - 1, COPIED_MAX_BYTES, COPIED_MAX_BYTES + 1, MAX]
)
frames_of_all_sizes = st.lists(sizes_of_frames, max_size=6).map(
    lambda sizes: [bytes([number % 256]) * size for number, size in enumerate(sizes)]
)


def read_all(chunks: list[bytes], max_bytes: int = MAX) -> list[bytes]:
    """Feed chunk by chunk; take what is whole after each."""
    reader, frames = FrameReader(max_bytes), []
    for chunk in chunks:
        reader.feed(chunk)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    # Only now: what was handed out earlier must not have changed since.
    return [bytes(frame) for frame in frames]


@given(frames_of_all_sizes, st.lists(st.integers(0, 300_000), max_size=8), st.binary(max_size=3))
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(
    frames: list[bytes], cuts: list[int], rest: bytes
) -> None:
    stream = b"".join(map(framed, frames)) + rest
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]

    assert read_all(chunks) == frames


def test_frames_come_out_whole_if_every_byte_comes_alone() -> None:
    frames = [b"a", b"bc" * 9_000, b"d" * 3]
    stream = b"".join(map(framed, frames))

    assert read_all([bytes([byte]) for byte in stream]) == frames


@given(st.lists(st.integers(0, 12), min_size=1, max_size=20))
def test_frames_may_be_taken_later_than_their_bytes_arrive(takes: list[int]) -> None:
    reader, fed, taken = FrameReader(MAX), [], []
    for number, count in enumerate(takes):
        frames = [f"{number}.{part}".encode() * (1 + number * part * 397) for part in range(3)]
        fed += frames
        # The last frame of this chunk is cut, its end comes with the next one.
        reader.feed(b"".join(map(framed, frames)))
        for _ in range(count):
            if (frame := reader.next_frame()) is not None:
                taken.append(bytes(frame))
    while (frame := reader.next_frame()) is not None:
        taken.append(bytes(frame))

    assert taken == fed
    assert reader.held_bytes == 0


@pytest.mark.parametrize("length", [0, -1, -(2**31), MAX + 1, 2**31 - 1])
def test_a_length_that_no_frame_has_is_found_before_its_bytes_come(length: int) -> None:
    reader = FrameReader(MAX)
    reader.feed(framed(b"good") + length.to_bytes(4, "big", signed=True) + b"what follows")
    assert reader.next_frame() == b"good"

    with pytest.raises(BadFrameError) as caught:
        reader.next_frame()

    assert caught.value.length == length
    assert caught.value.first_bytes.endswith(b"what follows")


def test_what_waits_is_what_has_arrived_not_what_was_announced() -> None:
    reader = FrameReader(2**30)
    reader.feed((2**30).to_bytes(4, "big") + b"only this")

    assert reader.next_frame() is None
    assert reader.held_bytes == 4 + len(b"only this")


def test_a_stream_that_never_ends_at_the_end_of_a_frame_keeps_only_its_rest() -> None:
    reader, frame = FrameReader(MAX), framed(b"x" * 90)
    reader.feed(frame[:50])
    for _ in range(10_000):
        reader.feed(frame[50:] + frame[:50])
        assert reader.next_frame() == b"x" * 90
        assert reader.next_frame() is None

    assert reader.held_bytes == 50
    assert len(reader._data) < 1_000  # the bytes that were served are gone


class Sink:
    """Takes notes of every write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(bytes(data))


def test_a_lone_frame_leaves_at_once_in_one_write() -> None:
    writer, sink = FrameWriter(), Sink()
    writer.attach(sink)

    writer.write(b"frame")

    assert sink.writes == [framed(b"frame")]


def test_gathered_frames_leave_in_one_write() -> None:
    writer, sink = FrameWriter(), Sink()
    writer.attach(sink)
    writer.gather()
    for frame in (b"a", b"b", b"c"):
        writer.write(frame)
    assert sink.writes == []

    writer.flush()

    assert sink.writes == [framed(b"a") + framed(b"b") + framed(b"c")]


def test_frames_wait_for_the_connection() -> None:
    writer, sink = FrameWriter(), Sink()
    writer.write(b"a")
    writer.flush()

    writer.attach(sink)

    assert sink.writes == [framed(b"a")]


@given(st.lists(st.sampled_from([1, 5, JOINED_MAX_BYTES, JOINED_MAX_BYTES + 1, 400_000]), max_size=5), st.booleans())
def test_frames_keep_their_order_whatever_their_size(sizes: list[int], gather: bool) -> None:
    writer, sink = FrameWriter(), Sink()
    if not gather:
        writer.attach(sink)
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    for frame in frames:
        writer.write(frame)
    writer.attach(sink)

    assert b"".join(sink.writes) == b"".join(map(framed, frames))


def test_frames_of_a_lost_connection_go_nowhere() -> None:
    writer, sink = FrameWriter(), Sink()
    writer.attach(sink)
    writer.detach()

    writer.write(b"a")
    writer.flush()

    assert sink.writes == []


@given(st.binary(max_size=9), st.lists(st.binary(max_size=9), max_size=3))
@example(data=framed(b"x" * COPIED_MAX_BYTES), before=[])
@example(data=framed(b"x" * (COPIED_MAX_BYTES + 1)), before=[])
@example(data=framed(b"x" * 9), before=[])
@example(data=framed(b"x" * 8), before=[b"\0"])
@example(data=framed(b"x" * 8) + b"\0", before=[])
@pytest.mark.parametrize("max_bytes", [8, MAX])
def test_only_frame_returns_what_next_frame_would_and_leaves_the_reader_as_it_was(
    max_bytes: int, data: bytes, before: list[bytes]
) -> None:
    reader, plain = FrameReader(max_bytes), FrameReader(max_bytes)
    with contextlib.suppress(BadFrameError):
        for chunk in before:
            reader.feed(chunk)
            plain.feed(chunk)
            while plain.next_frame() is not None:
                reader.next_frame()
    held = reader.held_bytes

    found = reader.only_frame(data)

    assert reader.held_bytes == held
    if found is not None:
        plain.feed(data)
        assert (plain.next_frame(), plain.next_frame(), held) == (found, None, 0)
    elif data == framed(data[4:]) and not held:
        assert not 0 < len(data[4:]) <= min(max_bytes, COPIED_MAX_BYTES), "this one could have been taken"
