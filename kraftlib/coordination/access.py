"""The way in to a replicated machine, as opaque bytes: call, query, watch.

A replica and a client of replicas elsewhere each have an `Access`. The replica or client behind it need not
understand the bytes: the machine does, on one side, and their author does on the other.

An offset here is that of a record, inclusive: a write returns the offset of its record, `AtLeast` takes it, and a watch
`since` it delivers what came after it. -1 is before the first record.

**Calls may be repeated.** An Access sends a command again, as the same bytes, as often as it likes until the deadline:
each command carries the identity of its session and call, and the machine returns the first result. So a change of
leader, a lost connection and OutcomeUnknownError of an append are not for the caller to see before the deadline.

**A server checks before it appends.** It gives each command of a client to `Machine.check`, which refuses what the
machine would not understand, and what only a leader proposes. A leader proposes, with `epoch=` its own, the commands
that `Machine.due` returns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import attrs

from kraftlib.types import Epoch, Offset

BEFORE_ALL: Final = -1
"""The offset before the first record."""


@attrs.frozen(kw_only=True)
class Done:
    """A command was committed and applied: `offset` and `epoch` of its record, and the machine's result.

    If the command was sent more than once, this may be the record of a later attempt. The result is the first one's.
    """

    offset: Offset
    epoch: Epoch
    result: bytes


@attrs.frozen
class Linearizable:
    """The answer is no older than any write or read that had returned before this one began, anywhere."""


@attrs.frozen
class AtLeast:
    """The answer holds the record at `offset` and all before it: enough to read one's own writes."""

    offset: Offset


@attrs.frozen
class Stale:
    """The answer is that of the replica that is asked, however far behind it is. No round trip to a leader."""


Consistency = Linearizable | AtLeast | Stale
LINEARIZABLE: Final = Linearizable()
STALE: Final = Stale()


@attrs.frozen
class Change:
    """One step of a watch.

    If `full`, the history since the last step is gone: `data` is the machine's state of the watched keys, as of
    `offset`, and replaces everything delivered before; a machine with much of it returns the first page, and says there
    that the rest is to be asked for. Else it is what the record at `offset` changed.
    """

    offset: Offset
    data: bytes
    full: bool = False


@attrs.frozen
class Gone:
    """The history after the asked offset is gone. `state` is the state of the watched keys, as of `offset`."""

    offset: Offset
    state: bytes


class Machine(Protocol):
    """A replicated machine as an access sees it. A replica's is a `StateMachine`, too, with a BytesSerde.

    All methods run where `apply` does: on the engine's loop, one at a time. None of them blocks.
    """

    @property
    def applied(self) -> Offset:
        """The offset of the last record that was applied; `BEFORE_ALL` at first."""
        ...

    def check(self, command: bytes) -> None:
        """Return if a client may propose `command`. Raises: ConfigError, which says what is wrong with it."""
        ...

    def query(self, question: bytes) -> bytes:
        """Return the answer of the state as it is now. Raises: ConfigError."""
        ...

    def changes(self, selector: bytes, since: Offset, *, most: int) -> Sequence[tuple[Offset, bytes]] | Gone:
        """Return the changes that records after `since` made to the selected keys, in order, at most `most`.

        If there are less than `most`, the caller has all up to `applied`, and asks again from there, or from `since` if
        this replica is not that far yet; else it asks from the last offset that it got. Raises: ConfigError.
        """
        ...

    def due(self, epoch: Epoch, now_ms: int) -> Sequence[bytes]:
        """Return the commands that the leader of `epoch` should propose now; asked every 100 ms or so.

        Only for a replica that leads and has applied all records from before its epoch. `now_ms` is of its monotonic
        clock. The first call of an epoch grants every session its full time. A command that is still due is returned
        again; to propose it twice does no harm.
        """
        ...


class Access(Protocol):
    """Asks a replicated machine. Every method may be called by many tasks of one event loop at once.

    `timeout_ms` is the time that the caller gives. Within it the access looks for the leader, follows it and connects
    again; none of this reaches the caller.
    """

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have `command` committed and applied, and return the result.

        Raises: RefusedError, if certainly nothing was appended: as UnavailableError, if no leader was found in time;
        else the command is wrong or too large. OutcomeUnknownError, at the deadline or the end of this access, if it
        was sent and may be applied still. ClosedError, ReplicaFailedError, before anything is sent.
        """
        ...

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Return the answer of the applied state, and the offset of the last record that is in it.

        Raises: TimedOutError; ConfigError, if the question is too large, or the machine does not understand it;
        ClosedError; ReplicaFailedError, from a replica in this process whose machine has failed.
        """
        ...

    def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes after the record at `since`, in order, none lost and none twice; endlessly.

        None is from now on: after the last record that is committed when a replica takes the watch, a round trip or
        more after the iteration begins. A reader that must miss no change after a moment asks a query at that moment,
        and watches from its offset. A watch goes on through reconnects, changes of leader and restarts of the replica
        that is asked. Where that replica has no history that goes back far enough, one Change is `full`. Leaving the
        loop, or closing the iterator, ends it.

        Raises: ConfigError, if the selector is too large, or the machine does not understand it; ClosedError;
        ReplicaFailedError, from a replica in this process whose machine has failed.
        """
        ...
