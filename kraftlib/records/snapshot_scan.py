"""Verifies a snapshot that arrives in pieces, as in a download."""

from __future__ import annotations

from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, Batch, batch_size, check_kraft_header, read_batch
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import READ_BATCH_MAX_BYTES, check_footer, check_header, decoded_controls


class SnapshotScan:
    """Verifies a snapshot that comes in pieces, by the rules of `SnapshotReader`, with less than a batch in memory."""

    def __init__(self, *, epoch: int, batch_max_bytes: int = READ_BATCH_MAX_BYTES) -> None:
        self.epoch = epoch
        self.position = 0
        """End of the last whole batch: everything before it is verified."""
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self._batch_max_bytes = batch_max_bytes
        self._rest = b""
        self._next_offset = 0
        self._is_complete = False

    def feed(self, data: bytes | memoryview, *, decode: bool = True) -> None:
        """Verify the next bytes; `decode` looks into the records, too. Raises: CorruptBatchError, and then for good."""
        rest = b"".join((self._rest, data))
        at = 0
        while len(rest) - at >= LENGTH_PREFIX_SIZE:
            if self._is_complete:
                raise CorruptBatchError("bytes follow the footer", position=self.position)
            size = batch_size(rest, at)
            if not HEADER_SIZE <= size <= self._batch_max_bytes:
                raise CorruptBatchError(
                    f"the batch at {self.position} claims {size} bytes, possible are {HEADER_SIZE} to "
                    f"{self._batch_max_bytes}",
                    position=self.position,
                )
            if len(rest) - at < size:
                break
            self._take(rest[at : at + size], decode=decode)
            at += size
        self._rest = rest[at:]

    def forget_rest(self) -> None:
        """Forget the bytes behind the last whole batch: they will arrive again."""
        self._rest = b""

    def finish(self) -> None:
        """The snapshot has ended. Raises: CorruptBatchError, if the footer is missing or bytes stand behind it."""
        if self._rest or not self._is_complete:
            what = f"{len(self._rest)} bytes follow the footer" if self._is_complete else "it has no footer"
            raise CorruptBatchError(f"the snapshot ends at {self.position}: {what}", position=self.position)

    def _take(self, data: bytes, *, decode: bool) -> None:
        batch = read_batch(data, origin=self.position)
        check_kraft_header(batch)
        if batch.base_offset != self._next_offset or batch.epoch != self.epoch:
            raise CorruptBatchError(
                f"the batch at {self.position} has base offset {batch.base_offset} and epoch {batch.epoch}, expected "
                f"are {self._next_offset} and {self.epoch}",
                position=self.position,
            )
        if self.position == 0 or batch.is_control:
            self._take_controls(batch)
        elif decode:
            batch.values()
        self.position += batch.size
        self._next_offset = batch.end_offset

    def _take_controls(self, batch: Batch) -> None:
        """Take the header, which is the first batch, or the footer."""
        records = decoded_controls(batch, self.position)
        if self.position:
            check_footer(records, self.position)
            self._is_complete = True
            return
        check_header(records)
        for record in records[1:]:
            if isinstance(record, KRaftVersionRecord):
                self.kraft_version = record.kraft_version
            elif isinstance(record, VotersRecord):
                self.voters = record
