"""Reads the file of a bbolt database: keys and values of a bucket, in order. Nothing is written.

    page           id (uint64), flags (uint16), count (uint16), overflow (uint32), elements; it goes on for `overflow`
                   pages more
    branch element pos, ksize (uint32), page (uint64)
    leaf element   flags, pos, ksize, vsize (uint32); key and value lie `pos` bytes behind the element's own place
    bucket         the value of a leaf element with flag 1: its root page, a sequence (uint64); with root page 0 the
                   page itself follows
    meta           pages 0 and 1: magic, version, page size, flags (uint32), the root bucket, free list, end of the
                   pages, transaction (uint64), and FNV-1a of all this; that with the greater transaction counts

Numbers are little-endian. Each offset, size and page number is checked before it is followed, and each page is read
once, so that a damaged file ends in an error and not in a loop. Source: page.go, bucket.go, meta.go of
go.etcd.io/bbolt.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftlib.errors import ConfigError

MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
PAGE_SIZES: Final = tuple(1 << power for power in range(9, 17))
"""Sizes that are tried where the first meta page is damaged."""

BRANCH, LEAF = 0x01, 0x02
IS_BUCKET: Final = 0x01
DEPTH_MAX: Final = 64

_PAGE: Final = struct.Struct("<QHHI")
_BRANCH: Final = struct.Struct("<IIQ")
_LEAF: Final = struct.Struct("<IIII")
_BUCKET: Final = struct.Struct("<QQ")
_META: Final = struct.Struct("<IIIIQQQQQ")
_SUM: Final = struct.Struct("<Q")


Bytes = bytes | mmap.mmap
"""A slice of either is bytes."""


class Meta(NamedTuple):
    """A meta page that is whole."""

    transaction: int
    page_size: int
    root: int
    end_page: int


class Database:
    """The newest whole state in the bytes of a database."""

    def __init__(self, data: Bytes, size: int) -> None:
        """The first `size` bytes are the database. Raises: ConfigError, if they are none, or end too early."""
        self._data = data
        found = [meta for place in (0, *PAGE_SIZES) if (meta := _meta(data, place)) is not None]
        if not found:
            raise ConfigError("this is no database of bbolt: neither of its two first pages is whole")
        self._meta = max(found)
        if self._meta.end_page * self._meta.page_size > size:
            raise ConfigError(f"it is cut: {size} bytes are less than {self._meta.end_page} pages")
        self._seen: set[int] = set()

    def bucket(self, name: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a bucket. Raises: ConfigError, if there is none, or a page is damaged."""
        self._seen = set()
        for key, value, is_bucket in self._walk(*self._page(self._meta.root), depth=0):
            if is_bucket and key == name:
                if len(value) < _BUCKET.size:
                    raise ConfigError(f"bucket {name!r} is damaged")
                root, _ = _BUCKET.unpack_from(value)
                page = (value[_BUCKET.size :], 0) if root == 0 else self._page(root)
                yield from ((key, value) for key, value, _ in self._walk(*page, depth=0))
                return
        raise ConfigError(f"the database has no bucket {name!r}")

    def _page(self, number: int) -> tuple[bytes, int]:
        """Return a page with those that it overflows into, and its number."""
        size, end = self._meta.page_size, self._meta.end_page
        if not 2 <= number < end or number in self._seen:
            raise ConfigError(f"page {number} of {end} is damaged: it cannot stand where it is named")
        self._seen.add(number)
        named, _, _, overflow = _PAGE.unpack_from(self._data, number * size)
        if named != number or number + overflow >= end:
            raise ConfigError(f"page {number} is damaged: it calls itself {named}, with {overflow} more")
        return self._data[number * size : (number + overflow + 1) * size], number

    def _walk(self, page: bytes, number: int, *, depth: int) -> Iterator[tuple[bytes, bytes, bool]]:
        """Yield key, value and whether that is a bucket, of all leaves below a page."""
        if len(page) < _PAGE.size or depth > DEPTH_MAX:
            raise ConfigError(f"page {number} is damaged")
        _, flags, count, _ = _PAGE.unpack_from(page)
        element = {BRANCH: _BRANCH, LEAF: _LEAF}.get(flags)
        if element is None or _PAGE.size + count * element.size > len(page):
            raise ConfigError(f"page {number} is damaged: flags {flags:#x} with {count} elements")
        for place in range(_PAGE.size, _PAGE.size + count * element.size, element.size):
            if flags == BRANCH:
                _, _, child = _BRANCH.unpack_from(page, place)
                yield from self._walk(*self._page(child), depth=depth + 1)
                continue
            kind, pos, key_size, value_size = _LEAF.unpack_from(page, place)
            begin, end = place + pos, place + pos + key_size + value_size
            if end > len(page):
                raise ConfigError(f"page {number} is damaged: an element ends at {end}, behind {len(page)} bytes")
            key, value = page[begin : begin + key_size], page[begin + key_size : end]
            yield key, value, bool(kind & IS_BUCKET)


def _meta(data: Bytes, place: int) -> Meta | None:
    """Return the meta page at `place`, if it is there and whole."""
    begin = place + _PAGE.size
    if len(data) < begin + _META.size + _SUM.size:
        return None
    magic, version, page_size, _, root, _, _, end_page, transaction = _META.unpack_from(data, begin)
    (checksum,) = _SUM.unpack_from(data, begin + _META.size)
    if magic != MAGIC or version != VERSION or page_size not in PAGE_SIZES or place not in (0, page_size):
        return None
    if checksum != _fnv_1a(data[begin : begin + _META.size]):
        return None
    return Meta(transaction, page_size, root, end_page)


def _fnv_1a(data: bytes) -> int:
    found = 0xCBF29CE484222325
    for byte in data:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found
