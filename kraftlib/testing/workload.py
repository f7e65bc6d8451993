"""Applications that append to a simulated quorum, and the outcome they were told of each append.

Every value is unique, so the log alone says what really happened to it. Callers mostly find the leader, sometimes a
former one, sometimes any replica.
"""

from __future__ import annotations

import enum
import random as chance
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    ReplicaFailedError,
)
from kraftlib.runtime.waiters import APPENDED, APPLIED, COMMITTED, FLUSHED, Appended
from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing import invariants as inv
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.reads import ClientRead, read_on
from kraftlib.testing.trace import Step

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World


NAMES_EPOCH: Final = 4
"""One append of so many names its epoch."""


def _offsets(appended: Appended) -> range:
    return range(appended.base_offset, appended.last_offset + 1)


class Outcome(enum.IntEnum):
    """The knowledge of the caller of an append."""

    PENDING = 0
    """Nothing yet, or nothing ever: the caller may have died with its replica."""
    ACKNOWLEDGED = 1
    """It is committed."""
    WRITTEN = 2
    """It was appended, or flushed on the leader, and more was not waited for."""
    REFUSED = 3
    """Nothing was appended."""
    UNKNOWN = 4
    """Only the log can tell."""


@attrs.define(eq=False)
class ClientAppend:
    """One append: a `Promise` that remembers what it was told."""

    number: int
    values: list[bytes]
    level: int
    process: Process
    workload: Workload
    asked_us: int
    outcome: Outcome = Outcome.PENDING
    end_offset: int = -1
    """One past its last record, where the caller was told."""
    answered_us: int = -1

    def done(self) -> bool:
        """As `Promise.done`. A caller that died with its replica hears nothing any more."""
        return self.outcome is not Outcome.PENDING or self.process.node.process is not self.process

    def set_result(self, result: Any, /) -> None:
        """It has come as far as was asked for."""
        self.workload.fulfilled(self, result)

    def set_exception(self, exception: BaseException, /) -> None:
        """It has not."""
        nothing = isinstance(exception, NotLeaderError | ClosedError | BacklogFullError | RecordTooLargeError)
        if not nothing and not isinstance(exception, OutcomeUnknownError | ReplicaFailedError):
            self.workload.unexpected(self, exception)
        self.workload.settle(self, Outcome.REFUSED if nothing else Outcome.UNKNOWN)


class Workload:
    """Appends at `rate` calls per second on average, while `running`."""

    def __init__(
        self,
        world: World,
        random: chance.Random,
        *,
        rate: float = 20.0,
        values_max: int = 3,
        value_bytes: int = 16,
        astray: float = 0.1,
        reads: float = 0.15,
    ) -> None:
        self.rate = rate
        self.values_max = values_max
        self.value_bytes = value_bytes
        self.astray = astray
        """Share of the calls that go to any replica, instead of to the leader."""
        self.reads_share = reads
        """Share of the calls that are reads behind a barrier, on any replica."""
        self.reads: list[ClientRead] = []
        self.running = False
        self.appends: list[ClientAppend] = []
        self.acknowledged = 0
        self.latest_acknowledged_us = 0
        self._world = world
        self._random = random
        self._scheduled = False

    def start(self) -> None:
        """Begin to append."""
        self.running = True
        if not self._scheduled:
            self._scheduled = True
            self._next()

    def stop(self) -> None:
        """Append nothing more."""
        self.running = False

    def append_to(self, node: SimulatedNode, *, count: int = 1, level: int = COMMITTED) -> ClientAppend | None:
        """Append `count` new values as one; return None if no replica accepted them."""
        process = node.process
        if process is None or process.paused:
            return None
        number = len(self.appends)
        values = self._values(number, count)
        now_us = self._world.timeline.now_us
        call = ClientAppend(number, values, level, process, self, now_us)
        self.appends.append(call)
        try:
            # Some name the epoch that they mean, which is the newest that their replica knows of.
            epoch = process.executor.leader.epoch if number % NAMES_EPOCH == 0 else None
            node.append(values, level=level, promise=call, epoch=epoch)
        except KraftError as error:
            call.set_exception(error)
            return None
        told = process.knows_full and node.disk.full
        self._world.checker.check(inv.s6_full_leader_refuses, node, number, told=told)
        if not node.config.append_linger_ms:
            self._world.timeline.after(1, self._look_whether_it_waits, call)
        return call

    def _look_whether_it_waits(self, call: ClientAppend) -> None:
        """See that an append is with the core, if nothing has held it up."""
        process = call.process
        node = process.node
        if node.process is process and process.running and not node.disk.is_busy:
            is_waiting = process.executor.appends.pending and process.replica.wants_records
            self._world.checker.check(app_inv.v10_nothing_waits_in_vain, node, call.number, is_waiting)

    def read_from(self, node: SimulatedNode | None) -> ClientRead | None:
        """Read on a node, behind a barrier; return None if no node runs."""
        process = None if node is None else node.process
        if process is None or process.paused:
            return None
        read = read_on(self._world, process, len(self.reads))
        self.reads.append(read)
        return read

    def _values(self, number: int, count: int) -> list[bytes]:
        subject, pad = self._world.subject, self._random.choice((8, self.value_bytes))
        if subject.value is not None:
            return [subject.serde.to_bytes(subject.value(self._random, number + index)) for index in range(count)]
        return [(b"%d.%d" % (number, index)).ljust(pad, b".") for index in range(count)]

    # --- what callers are told ---------------------------------------------------------------------------------------

    def fulfilled(self, call: ClientAppend, result: Appended) -> None:
        """An append has come as far as was asked for."""
        if call.level < COMMITTED:
            self.settle(call, Outcome.WRITTEN)
            return
        checker = self._world.checker
        checker.check(
            inv.i10_acknowledged_is_committed,
            checker.facts,
            result.base_offset,
            result.last_offset,
            result.epoch,
            call.values,
        )
        expected = tuple(self._world.results.get(offset) for offset in _offsets(result))
        # A state machine that was made to err has wrong results until its replica is quarantined.
        if result.results and result.results != expected and not call.process.machine.is_wrong:
            self._world.violated("U1", f"append {call.number} was told {result.results}, its records came to others")
        self.acknowledged += 1
        self.latest_acknowledged_us = call.answered_us = self._world.timeline.now_us
        call.end_offset = result.last_offset + 1
        self.settle(call, Outcome.ACKNOWLEDGED)

    def unexpected(self, call: ClientAppend, error: BaseException) -> None:
        """An append ended in an error that says neither."""
        self._world.violated("I22", f"append {call.number} on {call.process.node} failed with {error!r}")

    def settle(self, call: ClientAppend, outcome: Outcome) -> None:
        """Remember what became of an append."""
        call.outcome = outcome
        world = self._world
        world.trace.add(world.timeline.now_us, Step.CLIENT, call.process.node_id, call.number, int(outcome))

    # --- going on ----------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if not self.running:
            self._scheduled = False
            return
        random = self._random
        if random.random() < self.reads_share:
            self.read_from(random.choice(self._world.running_nodes() or [None]))
        elif (node := self._choose()) is not None:
            count = 1 if self.values_max == 1 or random.random() < 0.6 else random.randint(1, self.values_max)
            level = COMMITTED
            if random.random() < 0.2:
                level = random.choice((APPENDED, FLUSHED, APPLIED))
            self.append_to(node, count=count, level=level)
        pause_us = int(random.expovariate(self.rate) * 1_000 * MILLISECOND) if random.random() < 0.8 else 0
        self._world.timeline.after(pause_us, self._next)

    def _choose(self) -> SimulatedNode | None:
        nodes = self._world.running_nodes()
        if not nodes:
            return None
        if self._random.random() < self.astray:
            return self._random.choice(nodes)
        leaders = [node for node in nodes if node.leads is not None]
        if len(leaders) > 1 and self._random.random() < 0.5:
            return self._random.choice(leaders)
        return max(leaders, key=lambda node: node.leads or 0, default=None)
