"""The table of epochs and their first offsets, and `leader-epoch-checkpoint`, its file.

A follower asks "where does your epoch e end?" to find out where its log diverges from that of the leader; this table is
the source of the answer. It is a cache of the epochs of the batches, plus at most one epoch that has no record yet, so
it is rebuilt from the batches at every start and the file is written for Kafka and its tools.

The file is text, one `\\n` after every line:

    0          version of the format
    2          number of entries
    1 0        epoch, start offset; ascending in both columns
    3 17
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from kraftlib.errors import StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage.names import EPOCH_CHECKPOINT
from kraftlib.types import Epoch, EpochStart, Offset

_ENTRY: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})", re.ASCII)


class EpochTable:
    """Epochs and their first offsets, ascending in both. Used by the memory log and the file log alike.

    One thread at a time changes it. The entries are replaced and never changed in place, so other threads may read at
    any time.
    """

    __slots__ = ("_starts", "latest_epoch")

    latest_epoch: Epoch
    """The epoch of the last entry; -1 if there is none."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = tuple(starts)
        for before, start in pairwise(self._starts):
            ensure(_ascends(before, start), f"{start} does not ascend from {before}")
        self.latest_epoch = self._starts[-1].epoch if self._starts else -1

    def starts(self) -> Sequence[EpochStart]:
        """Return the entries, ascending."""
        return self._starts

    def epoch_before(self, offset: Offset) -> Epoch:
        """Return the epoch of the record before `offset`; -1 if there is none."""
        starts = self._starts
        place = bisect_left(starts, offset, key=_start_of)
        return starts[place - 1].epoch if place else -1

    def assign(self, epoch: Epoch, start_offset: Offset) -> bool:
        """Note that `epoch` starts at `start_offset`; return whether that changed anything.

        Nothing changes if it is the latest epoch already. Otherwise entries that are not before it in both epoch and
        offset are removed, so that an epoch in which nothing was written disappears when the next one starts at the
        same offset.
        """
        starts = self._starts
        if starts and starts[-1].epoch == epoch and starts[-1].start_offset <= start_offset:
            return False
        keep = len(starts)
        while keep and (starts[keep - 1].epoch >= epoch or starts[keep - 1].start_offset >= start_offset):
            keep -= 1
        self._starts = (*starts[:keep], EpochStart(epoch=epoch, start_offset=start_offset))
        self.latest_epoch = epoch
        return True

    def first_misfit(self, batches: Iterable[Batch]) -> Batch | None:
        """Return the first of these batches whose epoch is not the one that its offset lies in; None if all fit."""
        starts = self._starts
        for batch in batches:
            at = bisect_right(starts, batch.base_offset, key=_start_of) - 1
            if at >= 0 and starts[at].epoch != batch.epoch:
                return batch
        return None

    def truncate_to(self, end_offset: Offset) -> bool:
        """Drop the epochs that start at or beyond `end_offset`; return whether there were any."""
        before = self._starts
        self._starts = before[: bisect_left(before, end_offset, key=_start_of)]
        self.latest_epoch = self._starts[-1].epoch if self._starts else -1
        return len(self._starts) != len(before)

    def start_at(self, start_offset: Offset) -> bool:
        """Let the log begin at `start_offset`: the epoch of that offset begins there, and earlier ones are removed."""
        below = bisect_left(self._starts, start_offset, key=_start_of)
        if not below:
            return False
        rest = self._starts[below:]
        if not rest or rest[0].start_offset > start_offset:
            rest = (EpochStart(epoch=self._starts[below - 1].epoch, start_offset=start_offset), *rest)
        self._starts = rest
        return True


def _start_of(start: EpochStart) -> Offset:
    return start.start_offset


def _ascends(before: EpochStart, after: EpochStart) -> bool:
    return before.epoch < after.epoch and before.start_offset < after.start_offset


def encode_epochs(starts: Sequence[EpochStart]) -> bytes:
    """Return the content of `leader-epoch-checkpoint`."""
    lines = ["0", str(len(starts)), *(f"{start.epoch} {start.start_offset}" for start in starts)]
    return "".join(line + "\n" for line in lines).encode("ascii")


def decode_epochs(data: bytes) -> Sequence[EpochStart]:
    """Read the content of `leader-epoch-checkpoint`.

    Raises: StorageError for another version, a wrong count, or entries that are no numbers or do not ascend.
    """
    lines = data.decode("ascii", "replace").splitlines()
    if not lines or lines[0] != "0":
        raise StorageError(f"{EPOCH_CHECKPOINT} has version {lines[0] if lines else ''!r}, only 0 is known")
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        raise StorageError(f"{EPOCH_CHECKPOINT} has {max(len(lines) - 2, 0)} entries and says otherwise: {lines[1:2]}")
    starts: list[EpochStart] = []
    for line in lines[2:]:
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise StorageError(f"{EPOCH_CHECKPOINT}: {line!r} is no entry; expected epoch and start offset")
        start = EpochStart(epoch=int(match[1]), start_offset=int(match[2]))
        if starts and not _ascends(starts[-1], start):
            raise StorageError(f"{EPOCH_CHECKPOINT}: {line!r} does not ascend from {starts[-1]}")
        starts.append(start)
    return tuple(starts)
