"""Applications that read: behind a barrier, on any replica, and with the read state kept for the history (I21)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from kraftlib.errors import ClosedError, OutcomeUnknownError, ReplicaFailedError, UnsupportedError
from kraftlib.testing.subject import state_of

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

GIVEN_UP = (TimeoutError, UnsupportedError, OutcomeUnknownError, ReplicaFailedError, ClosedError)
"""Errors with which a read ends without a result: its caller knows that it has seen nothing."""


def checksum(state: Iterable[bytes]) -> int:
    """Return what stands for a state, as a snapshot would write it."""
    return zlib.crc32(b"\0".join(state))


@attrs.define(eq=False)
class ClientRead:
    """One read: a `Promise`. Once the barrier is passed it looks at the state machine of its own replica."""

    number: int
    process: Process
    world: World
    asked_us: int
    answered_us: int | None = None
    """None: it has seen nothing."""
    end_offset: int = -1
    """One past the last record in the state that it saw."""
    failed: bool = False

    def done(self) -> bool:
        """As `Promise.done`. A caller that died with its replica sees nothing any more."""
        return self.failed or self.answered_us is not None or self.process.node.process is not self.process

    def set_result(self, result: Any, /) -> None:
        """Everything that was committed is applied: look."""
        world, process = self.world, self.process
        self.answered_us = world.timeline.now_us
        self.end_offset = process.applier.applied_offset
        state = checksum(state_of(world.subject, process.machine))
        known = world.states.setdefault(self.end_offset, state)
        if known != state:
            world.violated(
                "I21", f"read {self.number} on {process.node} saw another state up to {self.end_offset} than one before"
            )

    def set_exception(self, exception: BaseException, /) -> None:
        """No barrier was passed."""
        self.failed = True
        if not isinstance(exception, GIVEN_UP):
            self.world.violated("I22", f"read {self.number} on {self.process.node} failed with {exception!r}")


def read_on(world: World, process: Process, number: int) -> ClientRead:
    """Begin a read on a replica, in any role."""
    read = ClientRead(number, process, world, world.timeline.now_us)
    process.executor.read_barrier(read, 2 * process.node.config.request_timeout_ms)
    return read
