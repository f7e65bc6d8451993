"""Real bytes under a simulated log: the remains of its files after a power loss, read again by the real recovery.

`MemoryReplicatedLog.crash` says what should survive; here the files of a log are written as a replica had left them,
the last of them torn at any byte or damaged, and `FileReplicatedLog` opens them. Its findings are the log of the next
life. A sync point lies beside them, as new as the last flush, or older: nothing ever synced it.
"""

from __future__ import annotations

import random as chance
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kraftlib.records.batch import Batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.election.line import encode_line
from kraftlib.storage.log import FileReplicatedLog
from kraftlib.storage.log.sync_point import NOTHING, Mark, SyncPointFile
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import ElectionState

PAGE: Final = 4_096
"""The kernel writes whole pages: the bytes behind the cut in the last one may be anything."""

Damage = Callable[[bytearray, int, chance.Random], None]
"""Changes the bytes of a segment in place; is told where their durable part ends."""


def crash(log: MemoryReplicatedLog, random: chance.Random) -> MemoryReplicatedLog:
    """Return the log as the real recovery finds it after the power went; `log` cannot be used any more."""
    survivor = recovery_of(log, random)
    log.close()
    return survivor


def recovery_of(
    log: MemoryReplicatedLog,
    random: chance.Random,
    *,
    damage: Damage | None = None,
    noted: float = 0.7,
) -> MemoryReplicatedLog:
    """Return the findings of the real recovery after a power loss of `log`, which stays as it is.

    `noted` is how likely the note of the last flush has reached the disk; if not, one of an earlier flush has.

    Raises: CorruptBatchError, if recovery takes what `damage` did for damage.
    """
    with tempfile.TemporaryDirectory(prefix="kraftlib-platter-") as name:
        directory = Path(name)
        torn = leave(log, directory, random, damage=damage, noted=noted)
        survivor = reopened(directory)
    survivor.torn_tail = torn
    return survivor


def leave(
    log: MemoryReplicatedLog,
    directory: Path,
    random: chance.Random,
    *,
    damage: Damage | None = None,
    noted: float = 0.7,
) -> bytes:
    """Write what the disk has of a log into an empty directory; return the part of a batch at its end, if any."""
    for snapshot_id in log.snapshots():
        if snapshot_id.offset > max(log.flushed_offset, log.start_offset):
            # From a commit of others, while our own disk is late. It goes with the log here: with it alone on the disk
            # there is damage to repair, which this does not model (tests/storage/crash does).
            continue
        source = log.open_snapshot(snapshot_id)
        (directory / names.checkpoint_name(snapshot_id)).write_bytes(source.read_at(0, source.size))
    batches = log.batches()
    flushed = [batch for batch in batches if batch.last_offset < log.flushed_offset]
    durable = b"".join(batch.data for batch in flushed)
    pending = b"".join(batch.data for batch in batches[len(flushed) :])
    written = pending[: random.randint(0, len(pending))]
    whole = len(durable) + _whole_size(batches[len(flushed) :], len(written))
    data = bytearray(durable + written)
    if written and len(data) > whole:
        room = -len(data) % PAGE
        data += random.choice((b"", bytes(room), random.randbytes(room)))
    if damage is not None:
        damage(data, len(durable), random)
    path = directory / names.segment_name(log.start_offset)
    path.write_bytes(data)
    known = flushed[: len(flushed) if random.random() < noted else random.randint(0, len(flushed))]
    _note(directory, path, known, log.start_offset)
    epoch = batches[-1].epoch if batches else 0
    (directory / names.QUORUM_STATE).write_bytes(
        encode_line(ElectionState(epoch=epoch), kraft_version=1, voters=(), generation=1)
    )
    return bytes(data[whole:])


def reopened(directory: Path) -> MemoryReplicatedLog:
    """Open the log in a directory, for real, and return it as a log in memory. Raises: StorageError."""
    log = FileReplicatedLog.open(directory)
    try:
        survivor = MemoryReplicatedLog(start_offset=log.start_offset)
        for snapshot_id in log.snapshots():
            source = log.open_snapshot(snapshot_id)
            survivor.store_snapshot(snapshot_id, source.read_at(0, source.size))
            source.close()
        offset = log.start_offset
        while offset < log.end_offset:
            batches = [_copied(batch) for batch in log.read(offset, 1 << 20)]
            survivor.append(batches)
            offset = batches[-1].last_offset + 1
        survivor.flush()
    finally:
        log.close()
    return survivor


def _whole_size(batches: Sequence[Batch], size: int) -> int:
    """Return the size of those batches that lie wholly within the first `size` bytes."""
    whole = 0
    for batch in batches:
        if whole + len(batch.data) > size:
            break
        whole += len(batch.data)
    return whole


def _note(directory: Path, path: Path, known: Sequence[Batch], segment: int) -> None:
    file = SyncPointFile(directory, file_mode=files.FILE_MODE)
    try:
        file.replace(NOTHING)  # as it is when a log is opened
        if known:
            data = b"".join(batch.data for batch in known)
            inode = path.stat().st_ino
            file.write(Mark(segment, inode, len(data), known[-1].last_offset + 1, known[-1].epoch, crc32c(data)))
    finally:
        file.close()


def _copied(batch: Batch) -> Batch:
    """Return the batch with bytes of its own: the file is gone soon."""
    return Batch(
        batch.base_offset, batch.last_offset, batch.epoch, batch.is_control, batch.max_timestamp, bytes(batch.data)
    )


# --- damage to durable parts ------------------------------------------------------------------------------------------


def flip_bit(data: bytearray, durable: int, random: chance.Random) -> None:
    """Flip one bit of the durable part."""
    data[random.randrange(durable)] ^= 1 << random.randrange(8)


def lose_write(data: bytearray, durable: int, random: chance.Random) -> None:
    """Let a sector of the durable part never have been written, though the disk said so."""
    start = random.randrange(durable) // 512 * 512
    end = min(start + 512, durable)
    # Zeros where there had been zeros is no loss.
    data[start:end] = bytes(end - start) if any(data[start:end]) else b"\xff" * (end - start)


def misdirect_write(data: bytearray, durable: int, random: chance.Random) -> None:
    """Let bytes of one place of the durable part lie at another one, too."""
    size = min(64, durable // 2)
    source, target = random.sample(range(durable - size), 2) if durable - size > 1 else (0, 0)
    moved = bytes(data[source : source + size])
    if data[target : target + size] == moved:
        flip_bit(data, durable, random)
    else:
        data[target : target + size] = moved


def cut_durable(data: bytearray, durable: int, random: chance.Random) -> None:
    """Let the end of the durable part be gone, at any byte."""
    del data[random.randrange(durable) :]


DAMAGES: Final[dict[str, Damage]] = {
    "flipped bit": flip_bit,
    "lost write": lose_write,
    "misdirected write": misdirect_write,
    "lost end": cut_durable,
}
