"""Three replicas of one log, and faults in them of which we know where they are."""

from __future__ import annotations

import random
from pathlib import Path

import attrs

from kraftlib.analysis.headers import walk
from kraftlib.records.batch import HEADER_SIZE, Batch, encode_batch, parse_header
from kraftlib.records.checksum import crc32c
from tests.analysis.logs import write_log

KINDS = ("flip", "crc", "epoch", "epoch down", "base", "length", "magic", "replaced")


@attrs.frozen
class Fault:
    """What was done to which replica, and to which batch."""

    replica: str
    kind: str
    start_offset: int
    end_offset: int
    segment: str
    position: int


def make_replicas(root: Path, batches: list[Batch], *, replicas: int = 3, cuts: tuple[int, ...] = ()) -> list[Path]:
    """Write equal replicas in the layout of an archive, with indexes; each has its own segments."""
    places = []
    for number in range(1, replicas + 1):
        place = root / "cluster=c" / f"replica={number}" / "__cluster_metadata-0"
        write_log(place, batches, cuts=cuts[: number - 1], index=True)
        places.append(place)
    return places


def some_batches(count: int, *, records: int = 8, size: int = 700) -> list[Batch]:
    """Return batches large enough for every one to be in the index."""
    chance = random.Random(7)
    return [
        encode_batch(
            [chance.randbytes(size) for _ in range(records)], timestamp_ms=n, base_offset=n * records, epoch=5 + n // 50
        )
        for n in range(count)
    ]


def inject(place: Path, number: int, kind: str, *, chance: random.Random) -> Fault:
    """Damage the batch numbered `number` of the replica at `place`; those before it must be sound."""
    seen = 0
    for path in sorted(place.glob("*.log")):
        starts = walk(path.read_bytes()).headers.start.tolist()
        if number - seen < len(starts):
            return inject_at(path, starts[number - seen], kind, chance=chance)
        seen += len(starts)
    raise IndexError(number)


def inject_at(path: Path, start: int, kind: str, *, chance: random.Random) -> Fault:
    """Damage the batch at byte `start` of a segment, and return what was done."""
    with path.open("r+b") as segment:
        segment.seek(start)
        header = parse_header(segment.read(HEADER_SIZE))
        segment.seek(start)
        data = bytearray(segment.read(header.size))
        damage(data, kind, chance)
        segment.seek(start)
        segment.write(data)
    replica = path.parent.parent.name.removeprefix("replica=")
    return Fault(replica, kind, header.base_offset, header.last_offset + 1, segment=str(path), position=start)


def damage(data: bytearray, kind: str, chance: random.Random) -> None:
    """Damage one batch."""
    match kind:
        case "flip":
            data[chance.randrange(61, len(data))] ^= 1 << chance.randrange(8)
        case "crc":
            data[chance.randrange(17, 21)] ^= 1 << chance.randrange(8)
        case "epoch":
            data[chance.randrange(12, 16)] ^= 1 << chance.randrange(7)
        case "epoch down":
            data[12:16] = bytes(4)
        case "base":
            data[chance.randrange(2, 8)] ^= 1 << chance.randrange(8)
        case "length":
            data[chance.randrange(9, 12)] ^= 1 << chance.randrange(8)
        case "magic":
            data[16] ^= 1 << chance.randrange(8)
        case "replaced":  # by a sound batch
            data[-2] ^= 0xFF
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
