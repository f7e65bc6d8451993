"""Having the state machine skip a record, in the directory of a stopped replica. See `kraftlib skip-record`."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from kraftlib.errors import ConfigError
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.claim import claim_directory
from kraftlib.storage.log.segment import batches_in
from kraftlib.storage.skips_file import REASON_MAX, SKIPS_MAX, Skip, read_skips, write_skips
from kraftlib.types import Offset


@attrs.frozen(kw_only=True)
class Skipped:
    """A record that was taken out, as it stands in the log."""

    skip: Skip
    timestamp_ms: int
    value: bytes


def skip_record(directory: Path, offset: Offset, *, reason: str, now_ms: int) -> Skipped:
    """Have the record at `offset` left out by the replica of this directory from its next start on.

    Doing it twice is allowed. Raises: ConfigError, if no data record stands there, or the reason is empty or too long;
    NotFormattedError, DirectoryInUseError, CorruptBatchError, StorageError.
    """
    if not reason.strip() or len(reason) > REASON_MAX:
        raise ConfigError(f"reason={reason[:40]!r} must say why, in 1 to {REASON_MAX} characters: the audit log has it")
    claim = claim_directory(directory)
    try:
        partition = directory / names.PARTITION_DIRECTORY
        batch = _batch_with(partition, offset)
        skip = Skip(offset=offset, epoch=batch.epoch, reason=reason, at_ms=now_ms)
        others = [each for each in read_skips(partition) if (each.offset, each.epoch) != (offset, batch.epoch)]
        if len(others) >= SKIPS_MAX:
            raise ConfigError(f"{SKIPS_MAX} records are skipped already: the state machine needs a mend, not this")
        write_skips(partition, sorted([*others, skip], key=lambda each: each.offset))
    finally:
        claim.lock.release()
    return Skipped(skip=skip, timestamp_ms=batch.max_timestamp, value=batch.values()[offset - batch.base_offset])


def _batch_with(partition: Path, offset: Offset) -> Batch:
    bases = sorted(base for path in partition.iterdir() if (base := names.parse_segment_name(path.name)) is not None)
    end = 0
    for base in [base for base in bases if base <= offset][-1:]:
        path = partition / names.segment_name(base)
        with files.opened(path) as descriptor:
            for batch in batches_in(descriptor, path, 0, os.fstat(descriptor).st_size):
                end = batch.last_offset + 1
                if batch.base_offset <= offset < end:
                    if batch.is_control:
                        raise ConfigError(f"offset={offset} is a control record: no state machine is given it")
                    return batch
    raise ConfigError(
        f"offset={offset} is not in the log of {partition}, which has {bases[0] if bases else 0} to {end - 1}: name the"
        " offset that the error of the state machine has"
    )
