"""The keys of an etcd (3.0 on), from a file that `etcdctl snapshot save` has written, or a copy of `member/snap/db`.

The file is a bbolt database. Its bucket `key` has each change of a key that is not compacted yet, in order:

    key      revision (int64, big-endian), "_", place in the transaction (int64); "t" behind it: the key was deleted
    value    mvccpb.KeyValue, a protobuf: 1 key, 5 value (bytes); 2 created, 3 modified, 4 version, 6 lease (varints)

`etcdctl` and etcd's own Snapshot put the SHA-256 of the database behind it.
"""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path
from typing import Final

import attrs

from kraftlib.compat.etcd.bbolt import Database
from kraftlib.errors import ConfigError

SECTOR: Final = 512
"""The sizes of databases are multiples of it."""

SHA256_BYTES: Final = 32
PIECE: Final = 1 << 20
BUCKET: Final = b"key"
REVISION_BYTES: Final = 17
KEY, VALUE, LEASE = 1, 5, 6
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@attrs.define
class Source:
    """The keys below a prefix that are to stay, with their values."""

    entries: dict[str, bytes] = attrs.field(factory=dict)
    leased: int = 0
    """Keys that are left out, since they would end with a lease of etcd."""
    revision: int = 0
    """Of the last change in the file."""

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, self.entries.values()))


def read_snapshot(path: Path, prefix: str = "") -> Source:
    """Read the keys that begin with `prefix`. Raises: ConfigError, if the file is damaged, or a key is no text."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _source(data, prefix.encode())
    except (OSError, ValueError) as error:  # a ConfigError is a ValueError; so is what mmap says of an empty file
        raise ConfigError(f"{path}: {error}") from error


def _source(data: mmap.mmap, prefix: bytes) -> Source:
    size = len(data)
    if size % SECTOR == SHA256_BYTES:
        size -= SHA256_BYTES
        digest = hashlib.sha256()
        for begin in range(0, size, PIECE):
            digest.update(data[begin : min(begin + PIECE, size)])
        if digest.digest() != data[size:]:
            raise ConfigError("the checksum at its end does not fit: it is damaged, or cut")
    source, found = Source(), dict[bytes, tuple[bytes, bool]]()
    for name, record in Database(data, size).bucket(BUCKET):
        if len(name) not in (REVISION_BYTES, REVISION_BYTES + 1) or name[8:9] != b"_":
            raise ConfigError(f"{name!r} is no revision: this is no database of etcd")
        source.revision = int.from_bytes(name[:8], "big")
        key, value, has_lease = _key_value(record)
        if name[REVISION_BYTES:] == b"t":
            found.pop(key, None)
        elif key.startswith(prefix):
            found[key] = value, has_lease
    for key, (value, has_lease) in found.items():
        if has_lease:
            source.leased += 1
        else:
            source.entries[_text(key)] = value
    return source


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the key {key!r} is no text: import below a --path that leaves it out ({error})") from None


def _key_value(record: bytes) -> tuple[bytes, bytes, bool]:
    """Return key, value and whether there is a lease."""
    at, key, value, lease = 0, b"", b"", 0
    while at < len(record):
        tag, at = _varint(record, at)
        field, kind = tag >> 3, tag & 7
        if kind == VARINT:
            number, at = _varint(record, at)
            lease = number if field == LEASE else lease
            continue
        if kind == BYTES:
            size, at = _varint(record, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ConfigError(f"field {field} of a key-value has the unknown kind {kind}")
        if size > len(record) - at:
            raise ConfigError(f"field {field} of a key-value has {size} bytes, and {len(record) - at} are left")
        key = record[at : at + size] if (field, kind) == (KEY, BYTES) else key
        value = record[at : at + size] if (field, kind) == (VALUE, BYTES) else value
        at += size
    return key, value, lease != 0


def _varint(record: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(record):
            break
        byte = record[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ConfigError("a number of a key-value has no end")
