"""A damaged batch costs itself and nothing behind it, as long as its end can be proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.chunks import Chunk, chunks
from kraftlib.analysis.reading import options_of
from kraftlib.analysis.splits import plan
from kraftlib.records.compression import Codec
from tests.analysis.logs import values_batch, write_log

COUNT = 20
HURT = 7


def read_damaged(place: Path, codec: Codec, hurt: dict[int, int], **options: object) -> tuple[list[Chunk], int, int]:
    """Write a log without an index, flip bits of batch `HURT` (byte -> mask), and read it; return its place, too."""
    batches = [values_batch([b"v" * 50, b"w" * 50], base_offset=2 * n, codec=codec) for n in range(COUNT)]
    (path,) = write_log(place, batches)
    start = sum(len(batch.data) for batch in batches[:HURT])
    data = bytearray(path.read_bytes())
    for byte, mask in hurt.items():
        data[start + byte] ^= mask
    path.write_bytes(data)
    asked = options_of(place, mode="PERMISSIVE", **options)
    found = [chunk for group in plan(asked) for split in group for chunk in chunks(split, asked)]
    return found, start, start + len(batches[HURT].data)


def offsets_of(found: list[Chunk]) -> list[int]:
    return [offset for chunk in found for offset in chunk.headers.base_offset.tolist()]


@pytest.mark.parametrize("chunk_bytes", ["1k", "1m"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("byte", "mask"),
    [(8, 0x40), (9, 1), (11, 1), (11, 4), (10, 1), (16, 1), (16, 0x80)],
    ids=["length huge", "length in MiB", "length by 1", "length by 4", "length by 256", "magic 3", "magic below 0"],
)
def test_a_flipped_bit_in_length_or_magic_costs_one_batch(
    tmp_path: Path, byte: int, mask: int, codec: Codec, chunk_bytes: str
) -> None:
    found, start, end = read_damaged(tmp_path, codec, {byte: mask}, chunkBytes=chunk_bytes)

    assert offsets_of(found) == [2 * n for n in range(COUNT) if n != HURT]
    (gap,) = [chunk.gap for chunk in found if chunk.gap is not None]
    assert (gap.start, gap.end, gap.offset) == (start, end, 2 * HURT)
    assert f"; {end - start} bytes are not read" in gap.reason
    assert [problem for chunk in found for problem in chunk.problems.values()] == []


@pytest.mark.parametrize("byte", [17, 21, 26, 30, 60, 61, 70], ids=lambda byte: f"byte {byte}")
def test_a_flipped_bit_that_the_crc_covers_costs_no_batch_behind_it(tmp_path: Path, byte: int) -> None:
    found, _, _ = read_damaged(tmp_path, Codec.ZSTD, {byte: 1})

    assert offsets_of(found) == [2 * n for n in range(COUNT)]
    assert [bool(ok) for chunk in found for ok in chunk.crc_ok] == [n != HURT for n in range(COUNT)]
    assert [chunk.gap for chunk in found if chunk.gap is not None] == []


def test_what_nothing_proves_is_not_read_and_the_bytes_are_counted(tmp_path: Path) -> None:
    found, start, _ = read_damaged(tmp_path, Codec.ZSTD, {9: 0x55, 10: 0xAA, 16: 7})

    size = next(tmp_path.glob("*.log")).stat().st_size
    assert offsets_of(found) == [2 * n for n in range(HURT)]
    (gap,) = [chunk.gap for chunk in found if chunk.gap is not None]
    assert (gap.start, gap.end) == (start, size)
    assert f"; {size - start} bytes are not read" in gap.reason


def test_the_last_batch_is_proven_by_its_own_crc(tmp_path: Path) -> None:
    batch = bytearray(values_batch([b"v" * 50], codec=Codec.ZSTD).data)
    batch[16] ^= 1
    (tmp_path / "00000000000000000000.log").write_bytes(batch)
    asked = options_of(tmp_path, mode="PERMISSIVE")
    (chunk,) = chunks(plan(asked)[0][0], asked)
    assert chunk.gap is not None
    assert (chunk.gap.start, chunk.gap.end) == (0, len(batch))
