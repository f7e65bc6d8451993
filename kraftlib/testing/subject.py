"""The subject of a simulation: a state machine on top of the quorum, and values for it. Bring your own.

    subject = Subject(machine=Counter, value=lambda random, number: b"+%d" % random.randrange(10))
    simulate(7, subject=subject)

Every replica feeds its own copy, through crashes, restarts and snapshots. The promises:

    U1  the same record has the same result on every replica, and after every restart
    U2  a state machine raises nothing
    U3  equal logs make equal states, and a state that was written to a snapshot and restored is the same state
    U4  a replica whose state is right is never quarantined (`digest_interval_ms`)

Of an `IncrementalStateMachine` the replicas write increments, too, and load them (`kraftlib.testing.incremental`).
"""

from __future__ import annotations

import functools
import random as chance
import runpy
import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from kraftlib.errors import ConfigError
from kraftlib.records.serde import BytesSerde, RecordSerde
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine
from kraftlib.types import LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World


class HashChain(StateMachine):
    """The state machine of simulations that bring none: its state depends on every record and on their order."""

    def __init__(self) -> None:
        self.digest = 0

    def apply(self, record: CommittedRecord) -> int:
        """Return a hash of everything applied so far."""
        self.digest = zlib.crc32(record.value, self.digest)
        return self.digest

    def snapshot(self) -> Iterable[bytes]:
        """Return the hash."""
        return [b"%d" % self.digest]

    def restore(self, values: Iterable[bytes]) -> None:
        """Go on from a hash."""
        (self.digest,) = map(int, values)


@attrs.frozen(kw_only=True)
class Subject:
    """A state machine to simulate. `machine` makes a fresh one for each life of each replica."""

    machine: Callable[[], StateMachine]

    value: Callable[[chance.Random, int], Any] | None = None
    """Makes a value to propose, given how many were before; None: unique bytes."""

    serde: RecordSerde[Any] = attrs.field(factory=BytesSerde)

    check: Callable[[StateMachine], None] | None = None
    """Called with the state machine of every replica in the end; an error that it raises is a violation (U3)."""


DEFAULT = Subject(machine=HashChain)


@functools.cache
def load_subject(place: str) -> Subject:
    """Return the subject that `FILE.py:NAME` names; the file is run as a script of the user's, once a process.

    Raises: ConfigError, if there is no such thing.
    """
    path, _, name = place.rpartition(":")
    if not path.endswith(".py"):
        raise ConfigError(f"{place!r} names no Python file: expected FILE.py:NAME")
    try:
        found = runpy.run_path(path, run_name="kraftlib.simulated").get(name)
    except OSError as error:
        raise ConfigError(f"cannot run {path!r}: {error.strerror or error}; expected FILE.py:NAME") from error
    if not isinstance(found, Subject):
        raise ConfigError(f"{place!r} is no Subject: expected FILE.py:NAME of a kraftlib.testing.subject.Subject")
    return found


class BrokenMachineError(Exception):
    """Raised by a state machine that the simulator has broken on purpose."""


class WatchedMachine(StateMachine):
    """The state machine of one life, with a check of every call."""

    def __init__(self, world: World, process: Process, inner: StateMachine) -> None:
        self.inner = inner
        self.snapshot_version = inner.snapshot_version
        self._world = world
        self._process = process
        self.breaks = False
        """Whether it raises at the next record, as no state machine should."""
        self.errs = False
        """Whether it applies the next record as another one, and says nothing."""
        self.is_wrong = False
        """It has done so, and no snapshot has replaced its state since."""

    def apply(self, record: CommittedRecord) -> Any:
        """As `StateMachine.apply`."""
        if self.breaks:
            raise BrokenMachineError(f"record {record.offset} cannot be applied (injected)")
        if self.errs:
            self.errs, self.is_wrong = False, True
            record = record._replace(value=record.value[::-1])
        result = self._guarded(self.inner.apply, record)
        if self.is_wrong:
            return result
        known = self._world.results.setdefault(record.offset, result)
        if known is not result and known != result:
            self._world.violated(
                "U1",
                f"record {record.offset} ({record.value!r}) came to {result!r} on {self._process.node}, and to "
                f"{known!r} elsewhere or before: apply must depend on the state and the record alone",
            )
        return result

    def snapshot(self) -> Iterable[Any]:
        """As `StateMachine.snapshot`."""
        return list(self._guarded(self.inner.snapshot))

    def freeze(self) -> Iterable[Any]:
        """As `StateMachine.freeze`."""
        return list(self._guarded(self.inner.freeze))

    def restore(self, values: Iterable[Any]) -> None:
        """As `StateMachine.restore`."""
        self._guarded(self.inner.restore, values)
        self.is_wrong = False

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """As `StateMachine.leader_changed`."""
        self._guarded(self.inner.leader_changed, leader)

    def quarantined(self) -> None:
        """Its replica has found that its state differs from that of a majority."""
        if not self.is_wrong:
            self._world.violated("U4", f"{self._process.node} is quarantined, and its state is right")

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            name = f"{type(self.inner).__name__}.{function.__name__}"
            self._world.violated("U2", f"{name} raised {error!r} on {self._process.node}")
            raise


class WatchedIncrementalMachine(WatchedMachine, IncrementalStateMachine):
    """The same of one that knows what it has changed."""

    inner: IncrementalStateMachine

    def key_of(self, value: Any) -> bytes:
        """As `IncrementalStateMachine.key_of`."""
        key: bytes = self._guarded(self.inner.key_of, value)
        return key

    def freeze_changes(self) -> Iterable[tuple[bytes, Any | None]]:
        """As `IncrementalStateMachine.freeze_changes`."""
        return list(self._guarded(self.inner.freeze_changes))


def is_incremental(subject: Subject) -> bool:
    """Return whether its state machine knows what it has changed."""
    return isinstance(subject.machine(), IncrementalStateMachine)


def watched(world: World, process: Process) -> WatchedMachine:
    """Return the state machine of a new life, watched."""
    inner = world.subject.machine()
    kind = WatchedIncrementalMachine if isinstance(inner, IncrementalStateMachine) else WatchedMachine
    return kind(world, process, inner)


def state_of(subject: Subject, machine: StateMachine) -> list[bytes]:
    """Return what a state machine would write to a snapshot, as bytes; where it has keys, in their order."""
    values = list(machine.snapshot())
    inner = machine.inner if isinstance(machine, WatchedMachine) else machine
    if isinstance(inner, IncrementalStateMachine):
        values.sort(key=inner.key_of)
    return [subject.serde.to_bytes(value) for value in values]


def restored(subject: Subject, state: Iterable[bytes]) -> StateMachine:
    """Return a fresh state machine with this state."""
    machine = subject.machine()
    machine.restore(map(subject.serde.from_bytes, state))
    return machine
