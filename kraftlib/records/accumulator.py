"""Gathers the appends of a leader into batches: fewer and larger writes, and offsets that are assigned at once.

    append, append_one, append_control, prepare_append
        -> the open batch      values in a list; one batch takes all values of one call, so a call is atomic
        -> completed batches   full, or followed by control records, or by something prepared
        -> drain               each is encoded once, with the offsets and the epoch that it was promised
        -> release             its bytes are committed and make room for others

An accumulator lives as long as one leadership: its first offset is the end of the log at the election. An append that
fails after its offset was promised would leave a hole, so everything is checked before anything is taken.

Pure: no clock and no lock. Time comes in as `now_ms`; a caller with several threads must lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from kraftlib.errors import BacklogFullError, ConfigError, InvariantError, NotLeaderError, RecordTooLargeError
from kraftlib.frozen import define
from kraftlib.records.batch import CONTROL, HEADER_SIZE, Batch, assemble, encode_batch
from kraftlib.records.control import ControlRecord, encode_control_block
from kraftlib.records.serde import as_bytes
from kraftlib.records.values import RECORD_OVERHEAD_MAX, block_size
from kraftlib.types import Epoch, LeaderAndEpoch, Offset, ReplicaId

BATCH_MAX_BYTES: Final = 8 * 1024 * 1024
BACKLOG_MAX_BYTES: Final = 64 * 1024 * 1024
UNDRAINED_MAX_BATCHES: Final = 10


@define
class _Completed:
    """A batch to which nothing is added any more; `block` holds control records, `values` anything else."""

    base_offset: int
    last_offset: int
    size_bound: int
    values: list[bytes] = attrs.Factory(list)
    block: bytes = b""


class BatchAccumulator:
    """The records that the leader of one epoch has accepted and not yet written, in batches.

    `base_offset` is the log end offset at the election. `linger_ms` is how long the first value after a drain may wait
    for company. A batch never exceeds `batch_max_bytes`, and takes no further call beyond `grow_max_bytes`; everything
    that is not released never exceeds `max_bytes`; and not more than `max_undrained_batches` completed batches wait for
    a drain.
    """

    def __init__(
        self,
        *,
        epoch: Epoch,
        base_offset: Offset,
        leader_id: ReplicaId | None = None,
        linger_ms: int = 0,
        batch_max_bytes: int = BATCH_MAX_BYTES,
        grow_max_bytes: int = BATCH_MAX_BYTES,
        max_bytes: int = BACKLOG_MAX_BYTES,
        max_undrained_batches: int = UNDRAINED_MAX_BATCHES,
    ) -> None:
        self.epoch = epoch
        self.next_offset = base_offset
        self._leader_id = leader_id
        self._linger_ms = linger_ms
        self._batch_max_bytes = min(batch_max_bytes, max_bytes)
        self._grow_max_bytes = min(grow_max_bytes, self._batch_max_bytes)
        self._max_bytes = max_bytes
        self._max_undrained_batches = max_undrained_batches
        self._completed: deque[_Completed] = deque()
        self._completed_bound = 0
        self._unreleased = 0
        self._deadline_ms = 0
        self._held_from: Offset | None = None
        self._closed = False
        self._open: list[bytes] = []
        self._open_bound = self._measured_size = HEADER_SIZE
        self._measured_count = 0
        self._room = 0

    # --- appending

    def append(self, values: Sequence[bytes], *, epoch: Epoch, now_ms: int = 0) -> Offset:
        """Take `values` into one batch, all or nothing; return the offset promised to the last of them.

        Raises, and then nothing was appended: NotLeaderError for an older epoch or after `close`; ConfigError for a
        newer epoch, no values or an empty value; TypeError for anything but bytes; RecordTooLargeError, if they do not
        fit into one batch; BacklogFullError, if too much waits already.
        """
        if len(values) == 1:
            return self.append_one(values[0], epoch=epoch, now_ms=now_ms)
        return self._append(values, epoch, now_ms)

    def append_one(self, value: bytes, *, epoch: Epoch, now_ms: int = 0) -> Offset:
        """Append one value, as `append` does."""
        if type(value) is not bytes or not value or epoch != self.epoch:
            return self._append((value,), epoch, now_ms)  # most likely says why not
        added = len(value) + RECORD_OVERHEAD_MAX
        if self._open_bound + added > self._room:
            added = self._make_room((value,), added, now_ms)
        self._open.append(value)
        self._open_bound += added
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def _append(self, values: Sequence[bytes], epoch: Epoch, now_ms: int) -> Offset:
        self._check_epoch(epoch)
        _check_values(values)
        added = sum(map(len, values)) + RECORD_OVERHEAD_MAX * len(values)
        if self._open_bound + added > self._room:
            added = self._make_room(values, added, now_ms)
        self._open += values
        self._open_bound += added
        self.next_offset += len(values)
        return self.next_offset - 1

    def append_control(self, records: Sequence[ControlRecord], *, epoch: Epoch, now_ms: int = 0) -> Offset:
        """Take control records as a batch of their own, behind what is there; due at once, linger or not.

        Returns the offset of the last record. Raises NotLeaderError and ConfigError as `append` does. There is always
        room: the protocol's own records are few and small, they are not retried, and a change of voters may be the
        remedy for a full backlog.
        """
        self._check_epoch(epoch)
        if not records:
            raise ConfigError("a control batch holds at least one record")
        block = encode_control_block(records)
        size = HEADER_SIZE + len(block)
        self._complete_open()
        self.next_offset += len(records)
        self._completed.append(_Completed(self.next_offset - len(records), self.next_offset - 1, size, block=block))
        self._completed_bound += size
        self._deadline_ms = now_ms
        return self.next_offset - 1

    def prepare_append(self, values: Sequence[bytes], *, epoch: Epoch, now_ms: int = 0) -> Offset:
        """Promise offsets to `values` as `append` does, but let neither them nor what comes later go before
        `schedule_prepared_append`.
        """
        if self._held_from is None and self._open:
            # Earlier appends must not wait for it.
            self._check_backlog(batches=1, size=0)
            self._complete_open()
        last_offset = self.append(values, epoch=epoch, now_ms=now_ms)
        if self._held_from is None:
            self._held_from = last_offset + 1 - len(values)
        return last_offset

    def schedule_prepared_append(self) -> None:
        """Let go what was prepared."""
        self._held_from = None

    # --- draining

    @property
    def next_deadline_ms(self) -> int | None:
        """When `drain` is next due; None, if nothing waits, or only what is prepared and not scheduled."""
        first = self._completed[0].base_offset if self._completed else self._open_base_offset
        may_go = first < self.next_offset and (self._held_from is None or first < self._held_from)
        return self._deadline_ms if may_go else None

    def ready(self, now_ms: int) -> bool:
        """Whether `drain` would return something."""
        deadline_ms = self.next_deadline_ms
        return deadline_ms is not None and deadline_ms <= now_ms

    def drain(self, now_ms: int, *, timestamp_ms: int, max_bytes: int = BACKLOG_MAX_BYTES) -> list[Batch]:
        """Return the batches in order, stamped as promised, if the first of them is due; else none.

        Once anything is due all goes that is not held, since one flush serves all; but not more than `max_bytes`,
        unless the first batch is larger: the others stay due. `timestamp_ms` is wall clock time.
        """
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or deadline_ms > now_ms:
            return []
        end = self.next_offset if self._held_from is None else self._held_from
        batches: list[Batch] = []
        room = max_bytes
        while self._completed and self._completed[0].base_offset < end:
            room -= self._completed[0].size_bound
            if room < 0 and batches:
                break
            completed = self._completed.popleft()
            self._completed_bound -= completed.size_bound
            batches.append(self._encode(completed, timestamp_ms))
        base_offset = self.next_offset - len(self._open)
        if base_offset < end and not self._completed and (self._open_bound <= room or not batches):
            batches.append(
                encode_batch(self._open, timestamp_ms=timestamp_ms, base_offset=base_offset, epoch=self.epoch)
            )
            self._begin_batch()
        for batch in batches:
            self._unreleased += len(batch.data)
        if self._open:
            self._room = self._largest_bound()
        return batches

    def release(self, size: int) -> None:
        """Give back the room of drained batches, `size` bytes in all: they are committed."""
        if not 0 <= size <= self._unreleased:
            raise InvariantError(f"released {size} bytes of {self._unreleased}")
        self._unreleased -= size
        if self._open:
            self._room = self._largest_bound()

    def close(self) -> None:
        """End the leadership: records that were not drained were never appended, and no more are taken."""
        self._closed = True
        self._completed.clear()
        self._completed_bound = 0
        self._begin_batch()

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait for a drain (an upper bound, by up to 19 bytes a record) or, drained, for their release."""
        return self._unreleased + self.undrained_bytes

    @property
    def undrained_bytes(self) -> int:
        """Bytes that wait for a drain: an upper bound."""
        return self._completed_bound + (self._open_bound if self._open else 0)

    @property
    def undrained_count(self) -> int:
        """The number of records that wait for a drain."""
        count = len(self._open)
        for completed in self._completed:
            count += completed.last_offset - completed.base_offset + 1
        return count

    # --- the open batch

    @property
    def _open_base_offset(self) -> Offset:
        return self.next_offset - len(self._open)

    def _make_room(self, values: Sequence[bytes], added: int, now_ms: int) -> int:
        """Make an open batch with room for `values`; return their size in it: `added`, or the exact one if needed."""
        self._check_epoch(self.epoch)
        largest = self._largest_bound()
        if self._open:
            together = self._measure_open() + block_size(values, first_delta=len(self._open))
            if together <= self._grow_max_bytes:
                self._check_backlog(batches=0, size=together - self._open_bound)
                return together - self._open_bound
        if self._open or HEADER_SIZE + added > largest:
            added = block_size(values)
            self._check_fits(HEADER_SIZE + added)
            self._check_backlog(batches=1 if self._open else 0, size=HEADER_SIZE + added)
        if self._open:
            self._complete_open()
            self._deadline_ms = min(self._deadline_ms, now_ms)  # a full batch is due at once
            largest = self._largest_bound()
        elif not self._completed:
            self._deadline_ms = now_ms + self._linger_ms
        self._room = largest
        return added

    def _measure_open(self) -> int:
        """Return the exact size of the open batch, where so far an upper bound was enough."""
        added = self._open[self._measured_count :]
        self._measured_size += block_size(added, first_delta=self._measured_count)
        self._measured_count = len(self._open)
        self._open_bound = self._measured_size
        return self._measured_size

    def _complete_open(self) -> None:
        if self._open:
            self._completed_bound += self._open_bound
            self._completed.append(
                _Completed(self._open_base_offset, self.next_offset - 1, self._open_bound, self._open)
            )
            self._begin_batch()

    def _begin_batch(self) -> None:
        self._open = []
        self._open_bound = self._measured_size = HEADER_SIZE
        self._measured_count = 0
        # No room: the first value of a batch takes the long way, which starts the linger.
        self._room = 0

    def _largest_bound(self) -> int:
        """Return what the open batch may grow to."""
        return min(self._grow_max_bytes, self._max_bytes - self._unreleased - self._completed_bound)

    def _encode(self, completed: _Completed, timestamp_ms: int) -> Batch:
        base_offset, count = completed.base_offset, completed.last_offset - completed.base_offset + 1
        if completed.block:
            return assemble((completed.block,), count, CONTROL, timestamp_ms, timestamp_ms, base_offset, self.epoch)
        return encode_batch(completed.values, timestamp_ms=timestamp_ms, base_offset=base_offset, epoch=self.epoch)

    # --- what is refused

    def _check_epoch(self, epoch: Epoch) -> None:
        if self._closed or epoch < self.epoch:
            leader = LeaderAndEpoch(None if self._closed else self._leader_id, self.epoch)
            raise NotLeaderError(f"nothing was appended: the leadership of epoch {epoch} is over", leader=leader)
        if epoch > self.epoch:
            raise ConfigError(f"epoch {epoch} is newer than {self.epoch}, in which this replica leads")

    def _check_fits(self, size: int) -> None:
        if size > self._batch_max_bytes:
            raise RecordTooLargeError(
                f"the records of one append make a batch of {size} bytes, the limit is {self._batch_max_bytes}"
            )

    def _check_backlog(self, *, batches: int, size: int) -> None:
        """Check that so many more batches and bytes may wait."""
        if len(self._completed) + batches > self._max_undrained_batches:
            raise BacklogFullError(f"{len(self._completed)} full batches wait to be written, no more are taken")
        if self.backlog_bytes + size > self._max_bytes:
            raise BacklogFullError(
                f"{self.backlog_bytes} bytes wait to be written or committed; {size} more exceed {self._max_bytes}"
            )


def _check_values(values: Sequence[bytes]) -> None:
    if not values:
        raise ConfigError("there is nothing to append")
    if {*map(type, values)} != {bytes}:
        for value in values:
            as_bytes(value)
    if not all(values):
        raise ConfigError("a value must not be empty: Kafka's readers reject it")
