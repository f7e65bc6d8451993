"""The four codecs: there and back, equal to other implementations, and never larger than allowed."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.compression import Codec, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEBIBYTE = 1024 * 1024
DATA = st.one_of(
    st.binary(max_size=500),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.integers(0, 20_000)),
)


@given(st.sampled_from(Codec), DATA)
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_exactly_the_limit_is_allowed_and_one_more_is_not(codec: Codec) -> None:
    data = bytes(100_000)
    compressed = compress(codec, data)

    assert decompress(codec, compressed, max_bytes=100_000) == data
    with pytest.raises(CorruptBatchError, match="grows beyond the limit of 99999 bytes"):
        decompress(codec, compressed, max_bytes=99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
def test_data_cut_anywhere_is_refused(codec: Codec, data: st.DataObject) -> None:
    compressed = compress(codec, b"cut me " * 20_000)
    cut = data.draw(st.integers(0, len(compressed) - 1))

    if codec is Codec.SNAPPY and cut in xerial_borders(compressed):
        # Whole chunks less: the framing does not tell, the number of records does.
        assert len(decompress(codec, compressed[:cut])) % 32_768 == 0
    else:
        with pytest.raises(CorruptBatchError, match=codec.name.lower()):
            decompress(codec, compressed[:cut])


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
def test_damage_is_refused_or_stays_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    """Not every codec has a checksum of its own: that is what the CRC of the batch is for."""
    compressed = bytearray(compress(codec, b"damage me " * 500))
    for _ in range(data.draw(st.integers(1, 4))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    try:
        out = decompress(codec, bytes(compressed), max_bytes=10_000)
    except CorruptBatchError:
        return
    assert len(out) <= 10_000


@given(st.sampled_from(COMPRESSING), st.binary(max_size=60))
def test_garbage_is_refused_or_stays_within_the_limit(codec: Codec, data: bytes) -> None:
    try:
        out = decompress(codec, data, max_bytes=1_000)
    except CorruptBatchError:
        return
    assert len(out) <= 1_000


# What other writers make --------------------------------------------------------------------------


def xerial(*chunks: bytes) -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(c)) + c for c in chunks)


def xerial_borders(framed: bytes) -> list[int]:
    """Return where a chunk ends, or the framing's own header."""
    borders = [16]
    while borders[-1] < len(framed):
        borders.append(borders[-1] + 4 + struct.unpack_from(">i", framed, borders[-1])[0])
    return borders


def raw_snappy(data: bytes) -> bytes:
    return bytes(snappy.compress_raw(data))


FOREIGN: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip of the standard library": (Codec.GZIP, gzip.compress),
    "gzip with the name of a file": (
        Codec.GZIP,
        lambda data: b"\x1f\x8b\x08\x08\0\0\0\0\0\xff" + b"name\0" + gzip.compress(data)[10:],
    ),
    "snappy in uneven chunks": (Codec.SNAPPY, lambda data: xerial(raw_snappy(data[:7]), raw_snappy(data[7:]))),
    "snappy without framing": (Codec.SNAPPY, raw_snappy),
    "lz4 with its size and checksums": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(
            data, block_linked=False, store_size=True, content_checksum=True, block_checksum=True
        ),
    ),
    "lz4 at a high level in large blocks": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(data, block_linked=False, compression_level=9, block_size=7),
    ),
    "zstd with a checksum": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)),
    "zstd that does not say its size": (
        Codec.ZSTD,
        lambda data: zstandard.ZstdCompressor(level=19, write_content_size=False).compress(data),
    ),
    "zstd as a stream": (
        Codec.ZSTD,
        lambda data: (stream := zstandard.ZstdCompressor().compressobj()).compress(data) + stream.flush(),
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("data", [b"x", b"some words, " * 20_000, bytes(range(256)) * 300])
def test_it_reads(what: str, data: bytes) -> None:
    codec, writer = FOREIGN[what]

    assert decompress(codec, writer(data)) == data


def test_ours_is_read_by_others() -> None:
    data = b"ours " * 30_000

    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, data)) == data


def test_our_lz4_is_what_kafka_wants() -> None:
    """Version 1, independent blocks of 64 KiB, no sizes and no checksums."""
    frame = compress(Codec.LZ4, b"x")

    assert frame[:6].hex() == "04224d186040"


def test_our_snappy_has_chunks_of_32_kib() -> None:
    framed = compress(Codec.SNAPPY, bytes(70_000))

    assert framed[:16].hex() == "82534e41505059000000000100000001"
    chunks = [framed[start + 4 : end] for start, end in pairwise(xerial_borders(framed))]
    assert [len(bytes(snappy.decompress_raw(chunk))) for chunk in chunks] == [32_768, 32_768, 4_464]


# Attacks ------------------------------------------------------------------------------------------


def zstd_frame(content_size: int | None, blocks: bytes, *, window: int) -> bytes:
    """Write a frame by hand; with a content size it has no window of its own."""
    if content_size is None:
        return b"\x28\xb5\x2f\xfd\x00" + bytes([window << 3]) + blocks
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", content_size) + blocks


def zstd_zeros(count: int) -> bytes:
    """Say 128 KiB of zeros, `count` times, in 4 bytes each."""
    return b"".join(struct.pack("<I", (128 * 1024 << 3) | 2 | (index == count - 1)) for index in range(count))


GIGABYTE_BLOCKS = 8_192
BOMBS: dict[str, tuple[Codec, bytes]] = {
    "gzip, 1,000 to 1": (Codec.GZIP, gzip.compress(bytes(64 * MEBIBYTE), compresslevel=1)),
    "snappy in many chunks": (Codec.SNAPPY, xerial(*[raw_snappy(bytes(MEBIBYTE))] * 64)),
    "snappy that claims 4 GiB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00"),
    "snappy chunk that claims 4 GiB": (Codec.SNAPPY, xerial(b"\xff\xff\xff\xff\x0f\x00")),
    "lz4, 242 to 1": (Codec.LZ4, lz4.frame.compress(bytes(64 * MEBIBYTE), block_linked=False, store_size=False)),
    "lz4 that says its size": (Codec.LZ4, lz4.frame.compress(bytes(64 * MEBIBYTE), block_linked=False)),
    "zstd, 32,000 to 1": (Codec.ZSTD, zstd_frame(None, zstd_zeros(GIGABYTE_BLOCKS), window=10)),
    "zstd that says its size": (Codec.ZSTD, zstd_frame(2**30, zstd_zeros(GIGABYTE_BLOCKS), window=0)),
    "zstd with a window of 2 GiB": (Codec.ZSTD, zstd_frame(None, zstd_zeros(GIGABYTE_BLOCKS), window=21)),
    "zstd that claims 2**62 bytes": (Codec.ZSTD, zstd_frame(2**62, zstd_zeros(1), window=0)),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused(what: str) -> None:
    codec, bomb = BOMBS[what]

    with pytest.raises(CorruptBatchError):
        decompress(codec, bomb)


DEFUSE = """
import pathlib, resource, sys
from kraftlib.errors import CorruptBatchError
from kraftlib.records.compression import Codec, compress, decompress

bombs = [(Codec(int(path.name[0])), path.read_bytes()) for path in pathlib.Path(sys.argv[1]).iterdir()]
for codec in Codec:
    decompress(codec, compress(codec, bytes(100)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, bomb in bombs:
    try:
        decompress(codec, bomb)
    except CorruptBatchError:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_no_bomb_costs_more_than_32_mib_of_memory(tmp_path: Path) -> None:
    """In a process of its own, because only the system sees what the codecs' C and Rust ask for."""
    for index, (codec, bomb) in enumerate(BOMBS.values()):
        (tmp_path / f"{codec.value}-{index}").write_bytes(bomb)

    done = subprocess.run(
        [sys.executable, "-c", DEFUSE, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    growth_in_kib = [int(line) for line in done.stdout.split()]

    assert len(growth_in_kib) == len(BOMBS)
    assert max(growth_in_kib) <= 32 * 1024


@pytest.mark.parametrize(
    ("codec", "data", "reason"),
    [
        (Codec.LZ4, lz4.frame.compress(bytes(100_000), block_size=4, block_linked=True), "dependent blocks"),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x61\x40\x82", "needs a dictionary"),
        (Codec.LZ4, b"no frame", "does not begin with a frame"),
        (Codec.LZ4, lz4.frame.compress(b"x", block_linked=False) + b"more", "followed by other bytes"),
        (Codec.ZSTD, zstandard.compress(b"x") + b"more", "zstd"),
        (Codec.ZSTD, zstandard.compress(b"x") * 2, "zstd data is damaged"),
        (Codec.GZIP, gzip.compress(b"x", mtime=0) * 2, "followed by other bytes"),
        (Codec.SNAPPY, xerial(b"") + b"\x00", "snappy chunk of 0 bytes"),
        (Codec.SNAPPY, xerial() + b"\xff\xff\xff\xff", "snappy chunk of -1 bytes"),
        (Codec.SNAPPY, xerial() + b"\x7f\xff\xff\xffabc", "does not fit into 3"),
        (Codec.SNAPPY, b"\x80\x80\x80\x80\x80\x80", "does not say how many bytes"),
        (Codec.SNAPPY, b"", "does not say how many bytes"),
    ],
)
def test_what_kafka_would_not_read_is_refused(codec: Codec, data: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatchError, match=reason):
        decompress(codec, data)


def test_snappy_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)

    with pytest.raises(ConfigError, match=r"pip install 'kraftlib\[snappy\]'"):
        compress(Codec.SNAPPY, b"x")
    with pytest.raises(ConfigError, match=r"pip install 'kraftlib\[snappy\]'"):
        decompress(Codec.SNAPPY, b"x")
