"""The coordination machine: sessions, keys and locks, changed by one record after the other.

`apply` depends on the state and the record alone. It knows no clock: that a session or a key is over is a record, which
the leader proposes (`kraftlib.coordination.expiry`). The steps at a record, in this order:

1. The session of the command is looked up by its id and its opening. If it is not alive, nothing else happens.
2. A call that was applied before gets its first result, and nothing else happens but 5.
3. The command is carried out, or refused. Fences are compared here, so a write that was sent in time but committed late
   is refused on every replica alike.
4. Its result is kept.
5. At most one bid that is ready is granted: its token is the offset of this record.
6. All that was changed goes into the history, from which watches are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kraftlib.coordination import snapshots
from kraftlib.coordination.access import Gone
from kraftlib.coordination.commands import (
    Command,
    broken_rule,
    check_command,
    decode_command,
    decode_question,
    decode_selector,
    encode,
)
from kraftlib.coordination.expiry import Expiry
from kraftlib.coordination.keys import RuleError
from kraftlib.coordination.messages import (
    NONE,
    Acquire,
    Answer,
    CloseSession,
    Expire,
    OpenSession,
    Release,
    Result,
    Status,
    Transact,
)
from kraftlib.coordination.questions import answer, question_of
from kraftlib.coordination.sessions import NO_ROOM, RESULTS_MAX, Session
from kraftlib.coordination.state import State
from kraftlib.errors import ProtocolError
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.types import Epoch, Offset

CHECKED_MAX: Final = 2_048
CHECKED_BYTES_MAX: Final = 1_024
"""Commands that were checked here are remembered until they are applied: so many, up to this size."""


class ServiceMachine(StateMachine):
    """Sessions, keys and locks on one log. The values of its records are commands as bytes (`BytesSerde`)."""

    snapshot_version = snapshots.VERSION

    def __init__(self) -> None:
        self._state = State()
        self._expiry = Expiry()
        self._checked: dict[bytes, Command] = {}

    @property
    def applied(self) -> Offset:
        """The offset of the last record that was applied; -1 at first."""
        return self._state.applied

    # --- commands ----------------------------------------------------------------------------------------------------

    def apply(self, record: CommittedRecord) -> bytes:
        """Apply a command and return its result (`Result`, encoded).

        Raises: UnsupportedError, and nothing is changed: a newer release has proposed it. This machine stops.
        """
        command, reason = self._checked.pop(record.value, None), ""
        if command is None:
            try:
                command = decode_command(record.value)
                reason = broken_rule(command)
            except ProtocolError as error:
                reason = str(error)
        state = self._state
        state.applied = record.offset
        session = None if command is None else state.sessions.find(command.identity.session, command.identity.opened)
        if command is None or reason:
            result = encode(Result(status=Status.REFUSED, reason=reason, offset=record.offset))
        elif isinstance(command.body, Expire):
            result = encode(self._expire(command.body, record))
        elif isinstance(command.body, OpenSession):
            result = encode(self._open(command, command.body, record.offset))
        elif session is None:
            result = encode(Result(status=Status.SESSION_ENDED, offset=record.offset))
        else:
            session.renewed = record.offset
            result = self._call(session, command, record.offset)
        state.finish(granting=NONE if session is None else session.opened)
        return result

    def _open(self, command: Command, body: OpenSession, offset: Offset) -> Result:
        sessions, session = self._state.sessions, command.identity.session
        return Result(offset=sessions.open(session, ttl_ms=body.ttl_ms, owner=body.owner, offset=offset).opened)

    def _expire(self, body: Expire, record: CommittedRecord) -> Result:
        """End what the leader of this very epoch found to be over, unless it was renewed meanwhile."""
        if body.epoch != record.epoch:
            reason = f"the leader of epoch {body.epoch} found this to be over, and the epoch is {record.epoch}"
            return Result(status=Status.REFUSED, reason=reason, offset=record.offset)
        state = self._state
        for row in body.sessions:
            session = state.sessions.live.get(row.session)
            if session is not None and session.renewed == row.renewed:
                state.end_session(session)
        for key in body.keys:
            value = state.keys.values.get(key.key)
            if value is not None and value.revision == key.revision:
                state.keys.delete(key.key, record.offset)
        return Result(offset=record.offset)

    def _call(self, session: Session, command: Command, offset: Offset) -> bytes:
        """Carry out a call of a live session once, however often it comes."""
        number = command.identity.sequence
        if number in session.results:
            return session.results[number]
        if 0 < number < session.acknowledged:
            return encode(Result(status=Status.GIVEN_UP, offset=offset))
        acknowledged = command.identity.acknowledged
        if not number and not session.has_seen(acknowledged - 1):
            reason = f"acknowledged={acknowledged}: call {acknowledged - 1} has not come yet"
            return encode(Result(status=Status.REFUSED, reason=reason, offset=offset))
        session.acknowledge(acknowledged)
        try:
            if number and not session.has_room(2 if isinstance(command.body, Release) else 1):
                raise RuleError(NO_ROOM)
            result = encode(self._carry_out(session, command, offset))
        except RuleError as error:
            result = encode(Result(status=Status.REFUSED, reason=str(error), offset=offset))
        # One that was refused for want of room is kept, too: it must not be done if it comes again.
        if number and session.id in self._state.sessions.live and len(session.results) < 2 * RESULTS_MAX:
            session.keep(number, result)
        return result

    def _carry_out(self, session: Session, command: Command, offset: Offset) -> Result:
        state = self._state
        match command.body:
            case Transact() as body:
                return self._transact(session, body, offset)
            case CloseSession():
                state.end_session(session)
            case Acquire() as body:
                return self._acquire(session, body, command.identity.sequence, offset)
            case Release(number=number):
                if number not in session.results and number >= session.acknowledged:
                    # The bid may still be on its way, and must not be made after it was withdrawn.
                    session.keep(number, encode(Result(status=Status.GIVEN_UP, offset=offset)))
                return Result(offset=offset, succeeded=state.locks.release(session.opened, number))
        return Result(offset=offset)

    def _transact(self, session: Session, body: Transact, offset: Offset) -> Result:
        state = self._state
        for fence in body.fences:
            if not state.locks.is_held(fence.lock, fence.token):
                return Result(status=Status.FENCED, offset=offset)
        succeeded = True
        for condition in body.conditions:
            succeeded = succeeded and state.keys.holds(condition)
        operations = body.then if succeeded else body.otherwise
        items = state.keys.perform(operations, session=session.opened, offset=offset)
        return Result(offset=offset, succeeded=succeeded, items=items)

    def _acquire(self, session: Session, body: Acquire, number: int, offset: Offset) -> Result:
        state = self._state
        bid = state.locks.bid(body, session=session.opened, number=number, offset=offset)
        state.grant(session.opened, ticket=bid.ticket)
        token = state.locks.of_session[session.opened][number].token
        if token == NONE and not body.wait:
            state.locks.release(session.opened, number)
        return Result(offset=offset, token=token, waits=token == NONE and body.wait)

    # --- reads -------------------------------------------------------------------------------------------------------

    def check(self, command: bytes) -> None:
        """Return if a client may propose `command`. Raises: ConfigError."""
        checked = check_command(command)
        if len(command) <= CHECKED_BYTES_MAX:
            if len(self._checked) == CHECKED_MAX:
                self._checked.clear()
            self._checked[command] = checked

    def query(self, question: bytes) -> bytes:
        """Answer a `Question`. Raises: ConfigError."""
        return encode(answer(self._state, decode_question(question)))

    def changes(self, selector: bytes, since: Offset, *, most: int) -> Sequence[tuple[Offset, bytes]] | Gone:
        """Return the changes that the records after `since` made to the keys of a `Selector`, each as an `Answer`.

        Raises: ConfigError.
        """
        selected, state = decode_selector(selector), self._state
        if since < state.history.start:
            return Gone(state.applied, encode(answer(state, question_of(selected))))
        found = state.history.after(since, selected, most=most)
        return [(offset, encode(Answer(rows=tuple(rows)))) for offset, rows in found]

    def due(self, epoch: Epoch, now_ms: int) -> Sequence[bytes]:
        """Return the commands by which the leader of `epoch` ends what is over; see `Machine` in access."""
        return self._expiry.due(epoch, now_ms, sessions=self._state.sessions.live.values(), keys=self._state.keys)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterable[bytes]:
        """Return the parts of the state, see `kraftlib.coordination.snapshots`."""
        return self.freeze()

    def freeze(self) -> Iterable[bytes]:
        """Copy the state; it is encoded when it is iterated over."""
        return snapshots.freeze(self._state)

    def restore(self, values: Iterable[bytes]) -> None:
        """Replace the state. Raises: RemoteProtocolError, UnsupportedError; the state is then the old one."""
        self._state = snapshots.restore(values)
