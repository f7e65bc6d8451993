"""Is what a crash left as it must be? The recovery is the real one; what it must find, the ledger says."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import attrs

import tests.storage.crash.every_module  # noqa: F401 - else not all is watched
from kraftlib.errors import CorruptBatchError, KraftError
from kraftlib.records.batch import Batch
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.types import Epoch, EpochStart, Offset
from tests.storage.crash.ledger import Ledger
from tests.storage.laid_out import LaidOut
from tools.storage_proof.file_trace import Image

SEGMENT_BYTES = 2_500
MAGIC_AT = 16
"""Offset, length and epoch stand before, and outside the CRC."""


class Verdict(enum.Enum):
    """What became of a crash state."""

    OPENED = "opened"
    HALTED = "halted by policy"
    """A whole batch stands behind bad bytes, and no exact note: what was never acknowledged looks like damage then."""
    BAD = "bad"


@attrs.frozen
class Judgement:
    """A verdict and its reason."""

    verdict: Verdict
    why: str = ""


@attrs.frozen(kw_only=True)
class Found:
    """What recovery made of a directory."""

    start_offset: Offset
    end_offset: Offset
    batches: Sequence[bytes]
    epochs: Sequence[EpochStart]


class Judge(LaidOut):
    """Lays states out in a directory, opens them and compares. Watches the storage while it is entered."""

    def judge(self, image: Image, ledger: Ledger, *, go_on: bool = True) -> Judgement:
        """Open `image` and compare it with the ledger; then, with `go_on`, append to it and open it once more."""
        self.lay_out(image)
        try:
            log = FileReplicatedLog.open(self.directory, segment_bytes=SEGMENT_BYTES, sync_note=ledger.is_exact)
            election = FileQuorumStateStore(self.directory, log_epoch=0).read()
        except CorruptBatchError as error:
            if not ledger.is_exact and is_ambiguous(image, ledger):
                return Judgement(Verdict.HALTED, str(error))
            return Judgement(Verdict.BAD, f"does not open: {error}")
        except KraftError as error:
            return Judgement(Verdict.BAD, f"does not open: {type(error).__name__}: {error}")
        try:
            if election not in ledger.elections:
                return Judgement(Verdict.BAD, f"the vote is {election}, must be one of {ledger.elections}")
            why = _why_bad(log, ledger, self.directory) or (_why_not_usable(log, self.directory) if go_on else "")
        finally:
            log.close()
        return Judgement(Verdict.BAD, why) if why else Judgement(Verdict.OPENED)


def is_ambiguous(image: Image, ledger: Ledger) -> bool:
    """Whether what was never acknowledged looks like damage: the writes reached the disk out of order.

    Either a batch is whole behind one that is missing, or one was torn just behind its offset or its epoch, which its
    CRC does not cover: it is whole, and in the wrong place.
    """
    segments = [stored.data for path, stored in image.files.items() if path.endswith(".log")]
    missing = False
    for batch in ledger.chain:
        if batch.base_offset < ledger.unflushed_from:
            continue
        is_there = any(batch.data in data for data in segments)
        if missing and is_there:
            return True
        if not is_there and any(bytes(batch.data[MAGIC_AT:]) in data for data in segments):
            return True
        missing = missing or not is_there
    return False


def look(log: FileReplicatedLog) -> Found:
    """Return what a log holds."""
    return Found(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        batches=[bytes(batch.data) for batch in log.scan()],
        epochs=log.epoch_starts(),
    )


def _why_bad(log: FileReplicatedLog, ledger: Ledger, directory: Path) -> str:
    """Return what is wrong with an opened log, or nothing."""
    found = look(log)
    if log.flushed_offset != log.end_offset:
        return f"it opens with {log.flushed_offset} flushed of {log.end_offset}"
    for snapshot_id in log.snapshots():
        path = directory / f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
        if ledger.written.get(snapshot_id) != path.read_bytes():
            return f"snapshot {snapshot_id} is not what was written"
    if found.start_offset == found.end_offset > ledger.end_max and any(
        snapshot_id.offset == found.start_offset for snapshot_id in log.snapshots()
    ):
        return ""  # a snapshot that is beyond the log takes its place: so is what the leader had
    for needed in ledger.needed:
        if needed not in log.snapshots():
            return f"snapshot {needed} is lost; there are {list(log.snapshots())}"
    return _why_not_of_chain(found, ledger)


def _why_not_of_chain(found: Found, ledger: Ledger) -> str:
    if not ledger.floor <= found.end_offset <= ledger.end_max:
        return f"it ends at {found.end_offset}, must be {ledger.floor} to {ledger.end_max}"
    if found.start_offset > ledger.start_max:
        return f"it begins at {found.start_offset}, must not be beyond {ledger.start_max}"
    expected = [
        batch
        for batch in ledger.chain
        if batch.last_offset >= found.start_offset and batch.last_offset < found.end_offset
    ]
    if list(found.batches) != [bytes(batch.data) for batch in expected]:
        return f"its batches are not those that were appended: {len(found.batches)}, {len(expected)} expected"
    if expected and expected[-1].last_offset + 1 != found.end_offset:
        return f"it ends at {found.end_offset} in the midst of a batch"
    epochs = _epochs_of(expected, found.start_offset)
    if list(found.epochs) != epochs:
        return f"its epochs are {list(found.epochs)}, expected {epochs}"
    return ""


def _epochs_of(batches: Sequence[Batch], start_offset: Offset) -> list[EpochStart]:
    table = EpochTable()
    for batch in batches:
        table.assign(batch.epoch, max(batch.base_offset, start_offset))
    return list(table.starts())


def _why_not_usable(log: FileReplicatedLog, directory: Path) -> str:
    """Append to a recovered log, flush, and open it again: the same must be there, and the new batch.

    What a snapshot replaces, too, perhaps: it is forgotten with its segment, and its notes may be gone before.
    """
    from tests.storage.builders import a_batch

    epoch: Epoch = max([1, *(start.epoch for start in log.epoch_starts()), *(s.epoch for s in log.snapshots())])
    before = look(log)
    more = a_batch(log.end_offset, epoch)
    log.append([more])
    log.flush()
    again = FileReplicatedLog.open(directory, segment_bytes=SEGMENT_BYTES)
    try:
        after = look(again)
    finally:
        again.close()
    expected = [*before.batches, bytes(more.data)]
    if list(after.batches[-len(expected) :]) != expected or after.start_offset > before.start_offset:
        return f"after one more append it opens as {after.start_offset} to {after.end_offset}"
    return ""
