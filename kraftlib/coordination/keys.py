"""The keyed store: keys in order, each with its value, its revision and the session or time that ends it.

A key ends by being deleted, with its session if it is ephemeral, or when its time is over, which is a record, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import attrs

from kraftlib.coordination.messages import (
    DELETED_MAX,
    EXISTS,
    NONE,
    NUMBER_DIGITS,
    PLACEHOLDER,
    Answer,
    Do,
    Event,
    Result,
    Transact,
)
from kraftlib.frozen import frozen
from kraftlib.sorted_names import SortedNames
from kraftlib.types import Offset

PUT, WRITTEN = int(Do.PUT), int(Event.PUT)
Row = Answer.Row
Item = Result.Item
NUMBER_MAX = 0x7FFFFFFFFFFFFFFF
SHORT_NUMBER_DIGITS = 10
"""Of PUT_NUMBERED: the width of the numbers of ZooKeeper's sequential nodes."""

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of values in a result or an answer, beyond the first."""


class RuleError(Exception):
    """A command breaks a rule that depends on the state. It changes nothing: its result says so."""


@frozen
class Value:
    """The value of a key. Never changed in place, so a snapshot may hold it."""

    value: bytes
    revision: Offset
    session: Offset = NONE
    """The opening of the session with which the key ends."""
    ttl_ms: int = 0

    def row(self, key: str) -> Row:
        """Return the row that describes it."""
        return Row(
            event=WRITTEN,
            name=key,
            value=self.value,
            revision=self.revision,
            session=self.session,
            ttl_ms=self.ttl_ms,
        )


class Keys:
    """The keys and their values. `changed` collects the rows of the record that is being applied."""

    def __init__(self, values: Iterable[tuple[str, Value]] = ()) -> None:
        self.values: dict[str, Value] = dict(values)
        self._order = SortedNames(self.values)
        self.changed: list[Row] = []
        self.of_session: dict[Offset, set[str]] = {}
        """Ephemeral keys."""
        self.timed: set[str] = set()
        """Keys with a time to live."""
        self._undo: list[tuple[str, Value | None]] = []
        self._deletable = 0
        self._total = 0
        """The sum of the last ADD of this transaction."""
        for key, value in self.values.items():
            self._note(key, value)

    def _note(self, key: str, value: Value) -> None:
        if value.session != NONE:
            self.of_session.setdefault(value.session, set()).add(key)
        if value.ttl_ms:
            self.timed.add(key)

    def _unnote(self, key: str, value: Value) -> None:
        if value.session != NONE:
            own = self.of_session[value.session]
            own.remove(key)
            if not own:
                del self.of_session[value.session]
        if value.ttl_ms:
            self.timed.discard(key)

    def put(self, key: str, value: Value) -> None:
        """Write a key."""
        old = self.values.get(key)
        self._undo.append((key, old))
        if old is None:
            self._order.add(key)
        else:
            self._unnote(key, old)
        self.values[key] = value
        if value.session != NONE or value.ttl_ms:
            self._note(key, value)
        self.changed.append(value.row(key))

    def delete(self, key: str, offset: Offset) -> Value | None:
        """Delete a key; return what it was."""
        old = self.values.pop(key, None)
        if old is not None:
            self._undo.append((key, old))
            self._unnote(key, old)
            self._order.remove(key)
            self.changed.append(Row(event=Event.DELETED, name=key, revision=offset))
        return old

    def with_prefix(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the keys that begin with `prefix`, those after `after` only, in order. The store must not change."""
        for key in self._order.since(max(prefix, after)):
            if not key.startswith(prefix):
                return
            if key > after or not after:
                yield key

    def frozen(self) -> Iterator[tuple[str, Value]]:
        """Return the keys in order as they are now, to be iterated over while they change."""
        order, values = list(self._order.since("")), dict(self.values)  # copied as a whole: a million take tens of ms
        return ((key, values[key]) for key in order)

    def end_session(self, session: Offset, offset: Offset) -> None:
        """Delete the ephemeral keys of a session."""
        # In order: that of a set differs from process to process.
        for key in sorted(self.of_session.get(session, ())):
            self.delete(key, offset)

    # --- transactions ------------------------------------------------------------------------------------------------

    def holds(self, condition: Transact.Condition) -> bool:
        """Whether a condition holds."""
        found = self.values.get(condition.key)
        if condition.value is not None:
            return found is not None and found.value == condition.value
        if condition.revision == EXISTS:
            return found is not None
        return condition.revision == (NONE if found is None else found.revision)

    def perform(self, operations: Iterable[Transact.Operation], *, session: Offset, offset: Offset) -> tuple[Item, ...]:
        """Do all of `operations`, or nothing. Raises: RuleError."""
        self._undo, self._deletable = [], DELETED_MAX
        try:
            items = tuple([self._one(operation, session, offset, at) for at, operation in enumerate(operations)])
            if sum([len(item.value) for item in items if item.value is not None]) > ANSWER_BYTES_MAX:
                raise RuleError(
                    f"the values that were read have more than {ANSWER_BYTES_MAX} bytes: read fewer at once"
                )
            return items
        except RuleError:
            for key, old in self._undo[::-1]:
                if old is None:
                    self.delete(key, offset)
                else:
                    self.put(key, old)
            self.changed = []
            raise

    def _one(self, operation: Transact.Operation, session: Offset, offset: Offset, place: int) -> Item:
        key = operation.key
        if operation.do == PUT:  # nearly all of them
            self.put(key, Value(operation.value, offset, session if operation.ephemeral else NONE, operation.ttl_ms))
            return Item(key=key, revision=offset)
        match operation.do:
            case Do.GET:
                return self._item(key)
            case Do.DELETE:
                old = self.delete(key, offset)
                return Item(key=key, revision=NONE if old is None else old.revision)
            case Do.DELETE_PREFIX:
                gone = list(islice(self.with_prefix(key), self._deletable))
                self._deletable -= len(gone)
                for one in gone:
                    self.delete(one, offset)
                return Item(key=key, revision=len(gone), more=any(True for _ in self.with_prefix(key)))
            case Do.TAKE:
                first = next(self.with_prefix(key), "")
                item = self._item(first)
                self.delete(first, offset)
                return item
            case Do.REPLACE:
                return self._replace(key, operation.value, offset)
        value = operation.value
        if operation.do == Do.ADD:
            self._total = self._sum(key, operation.delta)
            value = b"%d" % self._total
        elif operation.do == Do.APPEND:
            key = f"{key}{offset:0{NUMBER_DIGITS}}-{place:03}"
        elif operation.do == Do.PUT_NUMBERED:
            key = key.replace(PLACEHOLDER, f"{self._total + operation.delta:0{SHORT_NUMBER_DIGITS}}", 1)
        owner = session if operation.ephemeral else NONE
        self.put(key, Value(value, offset, owner, operation.ttl_ms))
        return Item(key=key, value=value if operation.do == Do.ADD else None, revision=offset)

    def _replace(self, key: str, value: bytes, offset: Offset) -> Item:
        old = self.values.get(key)
        if old is None:
            raise RuleError(f"there is no key {key!r} to replace the value of")
        self.put(key, attrs.evolve(old, value=value, revision=offset))
        return Item(key=key, revision=offset)

    def _item(self, key: str) -> Item:
        found = self.values.get(key)
        return Item(key=key) if found is None else Item(key=key, value=found.value, revision=found.revision)

    def _sum(self, key: str, delta: int) -> int:
        found = self.values.get(key)
        text = b"0" if found is None else found.value
        if not text.removeprefix(b"-").isdigit() or len(text) > NUMBER_DIGITS:
            raise RuleError(f"the key {key!r} holds {text[:32]!r}, which is no number to add to")
        total = int(text) + delta
        if abs(total) > NUMBER_MAX:
            raise RuleError(f"the key {key!r} holds {int(text)}, and {delta} more are beyond 64 bits")
        return total
