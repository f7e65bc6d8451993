"""The scrub of one replica: its schedule, its rate, and the reports of damage.

It works in slices on the background thread, each followed by a pause that keeps it to its rate, so that neither the
disk nor the other background work is held up. Damage to the log goes to the executor, as if a read had met it; a
damaged snapshot is not used from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from kraftlib.errors import CorruptBatchError
from kraftlib.frozen import define
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk
from kraftlib.storage.damage.scrub import ScrubFinding
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import Offset, OffsetAndEpoch

logger = logging.getLogger("kraftlib.runtime.scrubber")

SLICE_BYTES: Final = 1024 * 1024
FIRST_AFTER_MS: Final = 600_000
"""The first scrub of a process waits at least so long, so that it does not slow down the start."""


@define
class ScrubCounts:
    """Work of the scrubs since the start of the process."""

    completed: int = 0
    bytes_read: int = 0
    findings: int = 0


class Scrubber:
    """Scrubs a log every `interval_ms`, at `bytes_per_s`; 0 as interval: never."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        interval_ms: int,
        bytes_per_s: int,
        background: Disk,
        clock: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Any],
        on_damage: Callable[[Offset, CorruptBatchError], None],
        on_snapshot_damage: Callable[[OffsetAndEpoch, str], None] = lambda snapshot_id, reason: None,
        step: Callable[[], None],
    ) -> None:
        self.counts = ScrubCounts()
        self._log = capabilities_of(log).scrub
        self._interval_ms = interval_ms
        self._bytes_per_s = bytes_per_s
        self._background = background
        self._clock = clock
        self._call_later = call_later
        self._on_damage = on_damage
        self._on_snapshot_damage = on_snapshot_damage
        self._step = step
        self._due_ms = clock() + min(interval_ms, FIRST_AFTER_MS)
        self._work: Iterator[int | ScrubFinding] | None = None
        self._pause: Any = None
        self._stopped = False

    def look(self) -> None:
        """Begin a scrub, if one is due."""
        log = self._log
        if self._interval_ms and self._work is None and self._clock() >= self._due_ms and log is not None:
            self._due_ms = self._clock() + self._interval_ms
            self._work = log.scrub(self._step)
            self._go_on()

    def stop(self) -> None:
        """Go on no more. The file that was being read is closed, by the slice under way if there is one."""
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()
        self._work = None

    def _go_on(self) -> None:
        self._background.run(self._slice, self._sliced)

    def _slice(self) -> tuple[int, list[ScrubFinding], bool]:
        """On the background thread: read a little."""
        size, found = 0, []
        for item in self._work or ():
            if isinstance(item, ScrubFinding):
                found.append(item)
            else:
                size += item
            if size >= SLICE_BYTES:
                return size, found, False
        return size, found, True

    def _sliced(self, result: Any, error: BaseException | None) -> None:
        if self._stopped:
            return
        if error is not None:
            logger.warning("the scrub was given up: %s", error)
            self._work = None
            return
        size, found, is_complete = result
        self.counts.bytes_read += size
        for finding in found:
            self._report(finding)
        if is_complete:
            self._work = None
            self.counts.completed += 1
        else:
            self._pause = self._call_later(size / self._bytes_per_s, self._go_on)

    def _report(self, finding: ScrubFinding) -> None:
        self.counts.findings += 1
        logger.error("the scrub found damage: %s: %s", finding.path, finding.reason)
        if finding.offset is not None:
            self._on_damage(finding.offset, CorruptBatchError(finding.reason, path=finding.path))
        if finding.snapshot_id is not None:
            self._on_snapshot_damage(finding.snapshot_id, finding.reason)
