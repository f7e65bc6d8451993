"""The four codecs of Kafka's record batches, each with a limit on the decompressed size.

KRaft itself never compresses; its readers accept compressed data batches, and so do ours. A few compressed bytes can
claim gigabytes (zstd 32,000 : 1), so nothing is taken on trust: output comes out in steps and stops at the limit, and
what a block claims to hold is compared with the limit before memory is asked for.

The packages load at first use: most processes never need them.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from kraftlib.errors import ConfigError, CorruptBatchError

DECOMPRESSED_MAX_BYTES: Final = 8 * 1024 * 1024
"""Default limit of the decompressed records of one batch: the largest batch of KRaft."""

_STEP: Final = 256 * 1024
_GZIP_WINDOW: Final = 31  # 15 bits of window, plus 16: a gzip member
_ZSTD_LEVEL: Final = 1
_ZSTD_WINDOW_MAX: Final = 8 * 1024 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_XERIAL_CHUNK: Final = 32 * 1024
_INT: Final = struct.Struct(">i")


class Codec(enum.IntEnum):
    """The compression of the records of a batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """Return `data` compressed as Kafka's readers expect it, at a fast level.

    Raises: ConfigError for snappy, if its package is not installed.
    """
    return _COMPRESS[codec](data)


def decompress(codec: Codec, data: bytes, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes:
    """Return what `data` holds, at most `max_bytes`; never asks for much more memory than that.

    Raises: CorruptBatchError, if it is damaged, cut short or grows beyond the limit; ConfigError for snappy, if its
    package is not installed.
    """
    return _DECOMPRESS[codec](data, max_bytes)


def _too_large(codec: str, max_bytes: int) -> CorruptBatchError:
    return CorruptBatchError(f"{codec} data grows beyond the limit of {max_bytes} bytes")


# --- none


def _store(data: bytes) -> bytes:
    return data


def _unstore(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large("uncompressed", max_bytes)
    return data


# --- gzip: one member of RFC 1952


def _gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    member = zlib.decompressobj(wbits=_GZIP_WINDOW)
    try:
        out = member.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise CorruptBatchError(f"gzip data is damaged: {error}") from error
    if len(out) > max_bytes:
        raise _too_large("gzip", max_bytes)
    if not member.eof or member.unused_data:
        raise CorruptBatchError("gzip data is cut short" if not member.eof else "gzip data is followed by other bytes")
    return out


# --- lz4: one frame of independent blocks


def _lz4(data: bytes) -> bytes:
    import lz4.frame

    # Kafka's reader wants independent blocks, which is not the package's default.
    compressed: bytes = lz4.frame.compress(
        data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False
    )
    return compressed


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    import lz4.frame

    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise CorruptBatchError("lz4 data does not begin with a frame")
    flags = data[4]
    if not flags & 0x20:
        raise CorruptBatchError("lz4 frame has dependent blocks, which Kafka does not read")
    if flags & 0x01:
        raise CorruptBatchError("lz4 frame needs a dictionary")
    frame = lz4.frame.LZ4FrameDecompressor()
    out = bytearray()
    source = data
    try:
        while not frame.eof and len(out) <= max_bytes:
            piece = frame.decompress(source, max_length=min(_STEP, max_bytes + 1 - len(out)))
            if not piece:
                break
            out += piece
            source = b""
    except (RuntimeError, EOFError) as error:
        raise CorruptBatchError(f"lz4 data is damaged: {error}") from error
    if len(out) > max_bytes:
        raise _too_large("lz4", max_bytes)
    if not frame.eof or frame.unused_data:
        raise CorruptBatchError("lz4 data is cut short" if not frame.eof else "lz4 frame is followed by other bytes")
    return bytes(out)


# --- zstd: one frame


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    import zstandard

    try:
        claim = zstandard.frame_content_size(data)
        # Where the frame states a size, the package believes it and ignores the limit: so it is compared here.
        if claim > max_bytes:
            raise _too_large("zstd", max_bytes)
        decompressor = zstandard.ZstdDecompressor(max_window_size=max(_ZSTD_WINDOW_MAX, max_bytes))
        return decompressor.decompress(data, max_output_size=max_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        # Without a stated size the package cannot tell these apart.
        raise CorruptBatchError(
            f"zstd data is damaged, cut short or grows beyond the limit of {max_bytes} bytes: {error}"
        ) from error


# --- snappy: raw blocks in the framing of the Java library "xerial"


def _snappy(data: bytes) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    out = bytearray(_XERIAL_MAGIC + _XERIAL_VERSIONS)
    for start in range(0, len(data), _XERIAL_CHUNK):
        block = bytes(compress_raw(data[start : start + _XERIAL_CHUNK]))
        out += _INT.pack(len(block))
        out += block
    return bytes(out)


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    cramjam = _cramjam()
    out = bytearray()
    for block in _snappy_blocks(data):
        if len(out) + _snappy_claim(block) > max_bytes:
            raise _too_large("snappy", max_bytes)
        try:
            out += bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise CorruptBatchError(f"snappy data is damaged: {error}") from error
    return bytes(out)


def _snappy_blocks(data: bytes) -> list[bytes]:
    """Return the raw blocks: the chunks of the framing, or all of it where other clients left the framing out."""
    if not data.startswith(_XERIAL_MAGIC):
        return [data]
    blocks = []
    position = len(_XERIAL_MAGIC) + len(_XERIAL_VERSIONS)
    while position != len(data):
        if position + 4 > len(data):
            raise CorruptBatchError("snappy data is cut short")
        size = _INT.unpack_from(data, position)[0]
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptBatchError(f"snappy chunk of {size} bytes does not fit into {len(data) - position}")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _snappy_claim(block: bytes) -> int:
    """Return how many bytes a raw block says that it holds: an unsigned varint of 32 bits."""
    claim = 0
    for index, byte in enumerate(block[:5]):
        claim |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:
            return claim
    raise CorruptBatchError("snappy block does not say how many bytes it holds")


def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError as error:
        raise ConfigError("snappy needs a package of its own: pip install 'kraftlib[snappy]'") from error
    return cramjam


_COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.NONE: _store,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[Codec, Callable[[bytes, int], bytes]]] = {
    Codec.NONE: _unstore,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
