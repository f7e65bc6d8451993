"""The kit passes what keeps the promises and finds what breaks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraftlib.errors import InvariantError
from kraftlib.records.batch import Batch
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.testing.log_contract import LOG_CHECKS, STORE_CHECKS, what_was_written_last_is_read
from kraftlib.types import ElectionState, OffsetAndEpoch

Check = Callable[[Callable[[], Any]], None]


class MemoryPlace:
    """Opens one memory log again and again."""

    def __init__(self, kind: type[MemoryReplicatedLog] = MemoryReplicatedLog) -> None:
        self._kind = kind
        self._log: MemoryReplicatedLog | None = None

    def __call__(self) -> MemoryReplicatedLog:
        self._log = self._kind() if self._log is None else self._log.reopen()
        return self._log


@pytest.mark.parametrize("check", LOG_CHECKS)
def test_the_memory_log_keeps_the_contract(check: Check) -> None:
    check(MemoryPlace())


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_the_memory_store_keeps_the_contract(check: Check) -> None:
    durable: list[ElectionState | None] = [None]

    class Store(MemoryQuorumStateStore):
        def close(self) -> None:
            durable[0] = self.read()
            super().close()

    check(lambda: Store(durable[0]))


class FlushesTooMuch(MemoryReplicatedLog):
    def append(self, batches: Sequence[Batch]) -> None:
        super().append(batches)
        self._flushed_offset = self._end_offset


class ReadsTooLittle(MemoryReplicatedLog):
    def read(self, start_offset: int, max_bytes: int) -> Sequence[Batch]:
        return [b for b in super().read(start_offset, max_bytes) if len(b.data) <= max_bytes]


class TruncatesToTheRecord(MemoryReplicatedLog):
    def truncate(self, end_offset: int) -> int:
        super().truncate(end_offset)
        return end_offset


class TakesAnything(MemoryReplicatedLog):
    def append(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._end_offset = batch.base_offset
            super().append([batch])


class ForgetsEpochs(MemoryReplicatedLog):
    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        pass


class KeepsOldSnapshots(MemoryReplicatedLog):
    def _drop_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        pass


class ShowsUnfrozenSnapshots(MemoryReplicatedLog):
    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> Any:
        self.store_snapshot(snapshot_id, b"")
        return super().create_snapshot(snapshot_id)


@pytest.mark.parametrize(
    "kind",
    [
        FlushesTooMuch,
        ReadsTooLittle,
        TruncatesToTheRecord,
        TakesAnything,
        ForgetsEpochs,
        KeepsOldSnapshots,
        ShowsUnfrozenSnapshots,
    ],
)
def test_a_broken_promise_of_a_log_is_found(kind: type[MemoryReplicatedLog]) -> None:
    broken = 0
    for check in LOG_CHECKS:
        try:
            check(MemoryPlace(kind))
        except (InvariantError, IndexError):
            broken += 1
    assert broken > 0


def test_a_forgetful_store_is_found() -> None:
    with pytest.raises(InvariantError, match="survives a restart"):
        what_was_written_last_is_read(MemoryQuorumStateStore)
