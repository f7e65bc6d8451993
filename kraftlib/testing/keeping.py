"""What a simulated replica does about the size of its log: the real retention, with a background that takes time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftlib.consensus.events import RetentionDue
from kraftlib.runtime.disk import Done
from kraftlib.runtime.snapshots.retention import Retention
from kraftlib.testing.clock import MILLISECOND

if TYPE_CHECKING:
    from kraftlib.runtime.disk import Disk
    from kraftlib.storage.interface import ReplicatedLog
    from kraftlib.testing.process import Process

SLOWEST_US = 20 * MILLISECOND
"""How long the background takes for one thing, at most."""


class Background:
    """Does everything at once, and says so a while later."""

    def __init__(self, process: Process, later: Callable[..., None]) -> None:
        self._process = process
        self._later = later

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """As `Disk.run`."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001 - whatever it is, the caller must hear of it
            error = raised
        delay_us = int(self._process.node.random.random() * SLOWEST_US)
        self._later(delay_us, self._process.deliver, done, result, error)

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """As `Disk.flush`."""
        self.run(log.flush, done)

    def close(self) -> None:
        """Nothing to release."""


def retention_of(process: Process, log: ReplicatedLog, later: Callable[..., None]) -> Retention:
    """Return the retention of a life; its holds outlive it on the node."""
    node = process.node
    background: Disk = Background(process, later)
    return Retention(
        node.config,
        log,
        background=background,
        delete=lambda snapshot_id: process.executor.submit(RetentionDue(snapshot_id)),
        wall_clock=node.clock.wall_ms,
        call_soon=process.call_soon,
        holds=node.holds,
        save=node.save_holds,
    )
