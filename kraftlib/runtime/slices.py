"""Slices of the committed log, as listeners are given them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from kraftlib.records.batch import Batch
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.committed import CommittedBatch, SkippingBatch
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import Epoch, Offset, ReplicaId

logger = logging.getLogger("kraftlib.runtime.applier")

SLICE_BYTES: Final = 64 * 1024
"""Bytes of the log that a listener is given at once; at least one batch."""


class Slices:
    """Reads the committed log. Records that are `skipped` are not given to any listener."""

    def __init__(
        self,
        log: ReplicatedLog,
        serde: RecordSerde[Any],
        *,
        node_id: ReplicaId,
        skipped: Collection[tuple[Offset, Epoch]],
    ) -> None:
        self._log = log
        self._serde = serde
        self._node_id = node_id
        self._skipped = frozenset(skipped)
        self._last: tuple[Offset, Offset, Sequence[CommittedBatch]] | None = None
        self.start: Offset = 0
        """The offset from which was read last, also if that has failed."""

    def read(self, start: Offset, high_watermark: Offset, *, keep: bool) -> Sequence[CommittedBatch]:
        """Return committed batches from `start` on. `keep` them for another listener that stands there."""
        if self._last is not None and self._last[:2] == (start, high_watermark):
            return self._last[2]
        self.start = start
        read: Sequence[Batch] = self._log.read(start, SLICE_BYTES)
        batches = [CommittedBatch(batch, self._serde) for batch in read if batch.last_offset < high_watermark]
        if self._skipped:
            batches = [self._without_skipped(given, batch) for given, batch in zip(batches, read, strict=False)]
        if keep:
            self._last = (start, high_watermark, batches)
        return batches

    def _without_skipped(self, given: CommittedBatch, batch: Batch) -> CommittedBatch:
        """Return what is given of a batch, if an operator has skipped some of its records."""
        skipped = {
            offset
            for offset, epoch in self._skipped
            if epoch == batch.epoch and batch.base_offset <= offset <= batch.last_offset
        }
        if not skipped or batch.is_control:
            return given
        logger.warning("replica %d: not applied, as an operator wants it: %s", self._node_id, sorted(skipped))
        return SkippingBatch(batch, self._serde, skipped)
