"""What a replica makes of a damaged directory: it may notice and be repaired, but it is never wrong in silence.

The directory is opened as at a start. Then everything is read that could be served or applied, and compared with what
was acknowledged. What is missing is put back with what the others of a quorum have, as a replica does that has found a
leader; `tests/runtime` has the conversation by which it gets that.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Sequence

import attrs

from kraftlib.errors import CorruptBatchError, KraftError
from kraftlib.records.batch import Batch, read_batch
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage.directory import OpenDirectory, open_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.interface import RepairableLog
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.snapshots.in_memory import MemorySnapshotSource
from kraftlib.types import ElectionState, EpochStart
from tests.storage.images.history import History, config_of
from tests.storage.laid_out import LaidOut
from tools.storage_proof.file_trace import Image

READ_BYTES = 700


class Outcome(enum.Enum):
    """From best to worst."""

    UNHARMED = "unharmed"
    """All is there: the file was a cache, or a mirror stood in, or nobody needs it."""
    REPAIRED = "repaired"
    """It noticed, and all is there again, with the help of a majority."""
    HALTED = "halted"
    """It noticed, and does not start, or does not serve, until somebody helps."""
    WRONG = "wrong"
    """It served, applied or voted on something else than was acknowledged, or has forgotten it without knowing."""


@attrs.frozen
class Found:
    """What became of one image."""

    outcome: Outcome
    why: str = ""
    alone: str = ""
    """What a replica without a majority would do: it must not go on."""


class Examiner(LaidOut):
    """Lays images out and opens them. Watches the storage while it is entered."""

    def examine(self, image: Image, history: History) -> Found:
        """Open an image, read all of it, repair it, and compare."""
        self.lay_out(image)
        before = _open_files()
        found = self._open_and_examine(history)
        left = _open_files() - before
        return Found(Outcome.WRONG, f"{left} files are left open") if left else found

    def _open_and_examine(self, history: History) -> Found:
        try:
            opened = open_directory(config_of(self.directory))
        except KraftError as error:
            return Found(Outcome.HALTED, f"{type(error).__name__}: {error}")
        try:
            return _examine(opened, history)
        finally:
            with contextlib.suppress(KraftError):
                opened.close()


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


def _examine(opened: OpenDirectory, history: History) -> Found:
    log, noticed = opened.log, []
    try:
        election = opened.elections.read() or ElectionState()
    except KraftError as error:
        return Found(Outcome.HALTED, f"{type(error).__name__}: {error}")
    if election.amnesiac:
        noticed.append("the vote is lost")
    elif election != history.election:
        return Found(Outcome.WRONG, f"the vote is {election}, it was {history.election}")
    if log.is_doubtful:
        noticed.append("the end is doubtful")
    elif log.end_offset < history.end_offset:
        return Found(Outcome.WRONG, f"the log ends at {log.end_offset}, {history.end_offset} was acknowledged")
    try:
        wrong = _wrong_in_log(log, history, noticed) or _wrong_in_snapshots(log, history, noticed)
    except StuckError as stuck:
        return Found(Outcome.HALTED, str(stuck))
    if wrong:
        return Found(Outcome.WRONG, wrong)
    return Found(Outcome.REPAIRED, "; ".join(noticed)) if noticed else Found(Outcome.UNHARMED)


class StuckError(Exception):
    """Damage was noticed, and nothing puts it right."""


def _wrong_in_log(log: FileReplicatedLog, history: History, noticed: list[str]) -> str:
    """Read and repair all of the log; return what is wrong with it."""
    _repair(log, history, noticed)
    offset = max(log.start_offset, history.start_offset)
    looked_at = -1
    while offset < min(log.end_offset, history.end_offset):
        try:
            batches = log.read(offset, READ_BYTES)
        except CorruptBatchError as error:
            if offset == looked_at:
                raise StuckError(f"{offset} cannot be read, and looking for damage does not help: {error}") from error
            looked_at = offset
            log.find_damage(offset)
            _repair(log, history, noticed)
            offset = max(offset, log.start_offset)  # a snapshot may have what is missing
            continue
        for batch in batches:
            if history.batches.get(batch.base_offset) != bytes(batch.data):
                return f"the batch at {batch.base_offset} is not the one that was acknowledged"
        offset = batches[-1].end_offset
    if log.end_offset < history.end_offset:  # doubtful: it follows, and gets what it lacks
        log.append([batch for batch in _batches(history) if batch.base_offset >= log.end_offset])
        log.flush()
    if log.end_offset > history.end_offset:
        return f"the log ends at {log.end_offset}, only {history.end_offset} were ever there"
    if log.start_offset > history.start_offset and all(kept.offset < log.start_offset for kept in log.snapshots()):
        return f"the log begins at {log.start_offset}, and no snapshot has what stood before"
    start_offset = max(log.start_offset, history.start_offset)  # where a snapshot covers it, the first segment may go
    begun, expected = _from(start_offset, log.epoch_starts()), _from(start_offset, history.epochs)
    if begun != expected:
        return f"its epochs are {begun}, they were {expected}"
    return ""


def _from(offset: int, starts: Sequence[EpochStart]) -> list[EpochStart]:
    """Return the epochs of a log that begins at `offset`."""
    table = EpochTable(starts)
    table.start_at(offset)
    return list(table.starts())


def _repair(log: FileReplicatedLog, history: History, noticed: list[str]) -> None:
    """Fill the holes with what a leader has."""
    if not isinstance(log, RepairableLog):
        return
    for _ in range(20):
        if not log.holes():
            return
        hole = log.holes()[0]
        noticed.append(f"records {hole.start_offset} to {hole.end_offset} are missing")
        more = [batch for batch in _batches(history) if hole.start_offset <= batch.base_offset < hole.end_offset]
        if not more or more[0].base_offset != hole.start_offset:
            raise StuckError(f"the hole {hole} does not begin where a batch does, or below the leader's log")
        try:
            log.write_repair(more)
        except KraftError as error:
            raise StuckError(f"the repair of {hole} fails: {type(error).__name__}: {error}") from error
    raise StuckError(f"it is not repaired after 20 times: {log.holes()}")


def _batches(history: History) -> Sequence[Batch]:
    return [read_batch(data, 0) for _, data in sorted(history.batches.items())]


def _wrong_in_snapshots(log: FileReplicatedLog, history: History, noticed: list[str]) -> str:
    """Read the snapshots as a listener or a follower would."""
    for snapshot_id in log.snapshots():
        try:
            with SnapshotReader(log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
                records = [(record.offset, record.value) for batch in reader.batches() for record in batch.records()]
        except KraftError as error:
            raise StuckError(f"snapshot {snapshot_id} cannot be read: {error}") from error
        if snapshot_id not in history.snapshots:
            return f"there is a snapshot {snapshot_id} that was never made"
        if records != _records_of(history.snapshots[snapshot_id], snapshot_id.epoch):
            return f"snapshot {snapshot_id} holds something else than was written"
    return ""


def _records_of(data: bytes, epoch: int) -> list[tuple[int, bytes | None]]:
    with SnapshotReader(MemorySnapshotSource(data), epoch=epoch) as reader:
        return [(record.offset, record.value) for batch in reader.batches() for record in batch.records()]
