"""Single faults: each file of a directory, each kind of byte in it, flipped, zeroed, cut, misdirected, or old.

Where a file has fields, each is hit on its own, most of all those that no CRC of Kafka's covers: base offset, length
and epoch of a batch. Sizes of faults are those of bits, sectors and pages.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator

import attrs

from tests.storage.images.history import History
from tools.storage_proof.file_trace import Image

SECTOR, PAGE = 512, 4_096

BATCH_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "timestamps": (27, 16),
    "producer": (43, 14),
    "record count": (57, 4),
    "records": (61, 1 << 30),
}
OUTSIDE_CRC = ("base offset", "length", "epoch")
KINDS = {
    r".*\.log": "segment",
    r".*/quorum-state": "vote",
    r".*/quorum-state\.bak": "mirror of the vote",
    r".*/kraftlib-sync\.json": "sync point",
    r".*/kraftlib-prefix\.json": "known prefix",
    r".*/kraftlib\.json": "marker",
    r".*\.(index|timeindex)": "index",
    r".*\.checkpoint": "snapshot",
    r".*/leader-epoch-checkpoint": "epochs",
    r".*\.snapshot": "producer state",
    r".*/partition\.metadata": "topic",
    r"meta\.properties": "meta.properties",
    r"\.lock": "lock",
    r".*/kraftlib-reserve\.bin": "reserve",
}
SHARE = {"segment": 12, "snapshot": 4, "vote": 4, "mirror of the vote": 2, "sync point": 3, "known prefix": 3}
"""Weights of kinds; 1 for the others."""


@attrs.frozen(kw_only=True)
class Fault:
    """One fault in one file."""

    kind: str
    path: str
    what: str
    """flip, zero, cut, misdirected, old, gone."""
    where: str
    """Which bytes, for people."""
    image: Image

    @property
    def byte_class(self) -> str:
        """Which kind of bytes: the field of a batch, where there are batches."""
        return self.where.partition(" of the batch")[0] if " of the batch" in self.where else "any"


def kind_of(path: str) -> str:
    """Return what kind of file that is."""
    if path == "bootstrap.checkpoint":
        return "bootstrap"
    return next(kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, path))


def faults(history: History, count: int, seed: int, *, kinds: Collection[str] = ()) -> Iterator[Fault]:
    """Yield so many different single faults of a history's files, or of those of some kinds."""
    chance = random.Random(seed)
    paths = [path for path in sorted(history.image.files) if kind_of(path) not in ("lock", "reserve")]
    paths = [path for path in paths if not kinds or kind_of(path) in kinds]
    weights = [SHARE.get(kind_of(path), 1) for path in paths]
    seen: set[tuple[str, bytes | None]] = set()
    attempts = 0
    while len(seen) < count and attempts < 20 * count:
        attempts += 1
        path = chance.choices(paths, weights)[0]
        data = history.image.files[path].data
        what, where, flawed = _flaw(history, path, data, chance)
        if flawed == data or (path, flawed) in seen:
            continue
        seen.add((path, flawed))
        files = dict(history.image.files)
        if flawed is None:
            del files[path]
        else:
            files[path] = attrs.evolve(files[path], data=flawed)
        image = attrs.evolve(history.image, files=files)
        yield Fault(kind=kind_of(path), path=path, what=what, where=where, image=image)


def _flaw(history: History, path: str, data: bytes, chance: random.Random) -> tuple[str, str, bytes | None]:
    match chance.choices(["flip", "zero", "cut", "misdirected", "old", "gone"], [40, 15, 10, 15, 5, 2])[0]:
        case "flip":
            where, begin, end = _some_bytes(path, data, chance)
            if begin >= end:
                return "flip", where, data
            at = chance.randrange(begin, end)
            return ("flip", f"{where}, byte {at}", _flipped(data, at, chance))
        case "zero":
            where, begin, end = _some_bytes(path, data, chance)
            size = chance.choice([1, 8, 64, SECTOR, PAGE])
            if size >= SECTOR:
                begin -= begin % size
            else:
                begin = chance.randrange(begin, end) if begin < end else begin
            size = min(size, len(data) - begin)
            return "zero", f"{where}, {size} bytes at {begin}", data[:begin] + bytes(size) + data[begin + size :]
        case "cut":
            where, begin, end = _some_bytes(path, data, chance)
            at = chance.choice([begin, chance.randrange(begin, end) if begin < end else begin, 0])
            return "cut", f"{where}, at {at}", data[:at]
        case "misdirected":
            source = chance.choice(sorted(history.image.files))
            other = history.image.files[source].data
            size = chance.choice([SECTOR, PAGE])
            begin = chance.randrange(0, len(data) // size + 1) * size
            take = chance.randrange(0, len(other) // size + 1) * size
            piece = other[take : take + size]
            return (
                "misdirected",
                f"{len(piece)} bytes of {source} at {begin}",
                (data[:begin] + piece + data[begin + len(piece) :]),
            )
        case "old":
            before = history.earlier.files.get(path)
            return "old", "", before.data if before is not None else None
        case _:
            return "gone", "", None


def _flipped(data: bytes, at: int, chance: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _some_bytes(path: str, data: bytes, chance: random.Random) -> tuple[str, int, int]:
    """Return a range of bytes: of a field of a batch, where there are batches, and anything else elsewhere."""
    if kind_of(path) not in ("segment", "snapshot", "bootstrap") or not data:
        return "anywhere", 0, len(data)
    starts = list(_batch_starts(data))
    at = chance.choice([starts[0], starts[-1], chance.choice(starts)])
    size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
    name = chance.choice([*BATCH_FIELDS, *OUTSIDE_CRC])
    begin, length = BATCH_FIELDS[name]
    begin = min(begin, size - 1)
    return f"{name} of the batch at {at}", at + begin, at + min(begin + length, size)


def _batch_starts(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        yield at
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
