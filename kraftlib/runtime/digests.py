"""Hashes the state of the state machine now and then, for comparison with other replicas.

Every replica must hash at the same offsets, although none tells another. So the log itself says where: a batch whose
timestamp lies in another interval than that of the batch before it ends at such an offset, and batches and timestamps
are the same everywhere. A quiet log has one more: where nothing was applied from one look to the next, an interval
later, every replica stands at the same end. A replica that skips an offset, since it loads a snapshot or still hashes
the one before, has no digest there and meets the others at a later one.

A state whose hashing takes more than a tenth of the interval is hashed in every 2nd, 4th, 8th interval and so on. These
offsets are among those of a shorter interval, so replicas of different speed meet at those of the slowest.

On the loop the state is only frozen, as for a snapshot. Values are encoded and hashed in the background.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kraftlib.consensus.events import StateHashed
from kraftlib.errors import ClosedError, ConfigError
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.committed import CommittedBatch
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.listener import StateMachine, is_ctrl_c
from kraftlib.runtime.loop import Loop, Timer
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, sorted_by_key
from kraftlib.runtime.snapshots.snapshotter import can_snapshot
from kraftlib.types import Offset

logger: Final = logging.getLogger("kraftlib.runtime.digests")

PIECE: Final = 64
"""Number of values that are hashed between two looks at the clock."""


SHARE: Final = 10
"""Hashing takes at most one part in so many of the time."""

DOUBLINGS_MAX: Final = 10
"""The interval is at most doubled so often."""


def check_machine(interval_ms: int, machine: object) -> None:
    """Raises: ConfigError, if the states of such machines cannot be compared."""
    if not isinstance(machine, StateMachine) or not can_snapshot(machine):
        raise ConfigError(f"digest_interval_ms={interval_ms} needs a state machine with snapshot(): set it to 0")
    if isinstance(machine, IncrementalStateMachine) and type(machine).snapshot is StateMachine.snapshot:
        raise ConfigError(
            f"digest_interval_ms={interval_ms} needs {type(machine).__name__}.snapshot(): freeze() would begin to note "
            "changes anew; set it to 0, or write snapshot()"
        )


class Digester:
    """Hashes the state of one state machine. All on the loop, but for the hashing.

    `applied_offset` returns None while the state machine is stopped or loads a snapshot. `submit` takes the hashes.
    """

    def __init__(
        self,
        interval_ms: int,
        machine: StateMachine,
        *,
        serde: RecordSerde[Any],
        loop: Loop,
        background: Disk,
        applied_offset: Callable[[], Offset | None],
        submit: Callable[[StateHashed], None],
        step: Callable[[], None] = unhurried,
    ) -> None:
        check_machine(interval_ms, machine)
        self._interval_ms: Final = interval_ms
        self._machine: Final = machine
        self._serde: Final = serde
        self._loop: Final = loop
        self._background: Final = background
        self._applied_offset: Final = applied_offset
        self._submit: Final = submit
        self._step: Final = step
        self._span_ms = interval_ms
        """The interval in which this state is hashed once."""
        self._last_ms: int | None = None
        """The timestamp of the last batch that was applied; None, if that is not known."""
        self._hashing = False
        self._loads = 0
        """The number of snapshots that were loaded. A hash of the state from before one is dropped."""
        self._hashed: Offset | None = None
        """The offset at which the state was hashed last."""
        self._seen: Offset | None = None
        """The position of the state machine at the last look."""
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look from now on whether the log is quiet."""
        self._timer = self._loop.call_later(self._interval_ms / 1_000, self._look)

    def stop(self) -> None:
        """Hash nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def cut(self, batches: Sequence[CommittedBatch]) -> int:
        """Return how many of these may be applied before the state is to be hashed; all, if it is not."""
        last_ms = self._last_ms
        for index, batch in enumerate(batches):
            if self._is_there(last_ms, batch.append_timestamp_ms):
                return index + 1
            last_ms = batch.append_timestamp_ms
        return len(batches)

    def _is_there(self, last_ms: int | None, timestamp_ms: int) -> bool:
        return last_ms is not None and last_ms // self._span_ms != timestamp_ms // self._span_ms

    def applied(self, batches: Sequence[CommittedBatch]) -> None:
        """The state machine was given these; hash its state if they end at such an offset."""
        is_there = False
        for batch in batches:
            is_there = self._is_there(self._last_ms, batch.append_timestamp_ms)
            self._last_ms = batch.append_timestamp_ms
        if is_there:
            self._hash(batches[-1].last_offset + 1)

    def loaded(self) -> None:
        """The state machine has loaded a snapshot: its state is another one, and no batch before it is known."""
        self._last_ms = self._hashed = None
        self._loads += 1

    def _look(self) -> None:
        applied = self._applied_offset()
        if applied is not None and applied == self._seen != self._hashed:
            self._hash(applied)
        self._seen = applied
        self.start()

    def _hash(self, offset: Offset) -> None:
        if self._hashing or offset == 0:
            return
        try:
            is_incremental = isinstance(self._machine, IncrementalStateMachine)
            # `freeze` of an incremental one begins to note its changes anew, and the next increment would lack some.
            frozen = list(self._machine.snapshot()) if is_incremental else self._machine.freeze()
        except BaseException as error:
            logger.exception("the state at offset %d cannot be compared: it cannot be frozen", offset)
            if is_ctrl_c(error):
                raise
            return
        version, self._hashing, self._hashed = self._machine.snapshot_version, True, offset
        began_ms, loads = self._loop.now_ms(), self._loads

        def hashed(sha256: Any, error: BaseException | None) -> None:
            self._hashing = False
            parts = (self._loop.now_ms() - began_ms) * SHARE // self._interval_ms
            self._span_ms = self._interval_ms << min(parts.bit_length(), DOUBLINGS_MAX)
            if loads != self._loads:
                return
            if error is None:
                self._submit(StateHashed(offset=offset, snapshot_version=version, sha256=sha256))
            elif not isinstance(error, ClosedError):
                logger.error("the state at offset %d cannot be compared: %s", offset, error, exc_info=error)

        self._background.run(lambda: self._digest(frozen), hashed)

    def _digest(self, frozen: Iterable[Any]) -> bytes:
        """Return a hash of these values. Runs in the background."""
        machine, to_bytes = self._machine, self._serde.to_bytes
        encoded: Iterable[bytes] = (to_bytes(value) for value in frozen)
        if isinstance(machine, IncrementalStateMachine):
            encoded = sorted_by_key(frozen, machine.key_of, to_bytes, step=self._step)
        digest = hashlib.sha256()
        for number, value in enumerate(encoded):
            # Each with its length: ["ab", "c"] is another state than ["a", "bc"].
            digest.update(len(value).to_bytes(8, "big"))
            digest.update(value)
            if number % PIECE == 0:
                self._step()
        return digest.digest()
