"""Tables of the controller's state, and the journal by which uncommitted changes are undone.

The active controller decides on state that its own uncommitted records have changed already. When it loses its epoch,
those changes go: the journal holds the former value of each changed key. Values are immutable, so an old value is kept
by keeping it. Commits drop the beginning of the journal, so that it is as long as the records in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from kraftlib.types import Offset

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final[Any] = object()


class Journal:
    """The values that uncommitted records have replaced, oldest first."""

    def __init__(self) -> None:
        self._undo: deque[tuple[Offset, Table[Any, Any], Any, Any]] = deque()
        self._offset: Offset | None = None

    def __len__(self) -> int:
        return len(self._undo)

    def begin(self, offset: Offset) -> None:
        """Record the changes that follow: they are of the uncommitted record at `offset`."""
        self._offset = offset

    def end(self) -> None:
        """Stop recording: later changes are committed."""
        self._offset = None

    def note(self, table: Table[Any, Any], key: Any, old: Any) -> None:
        """Remember `old`, if the change is not committed."""
        if self._offset is not None:
            self._undo.append((self._offset, table, key, old))

    def committed(self, end_offset: Offset) -> None:
        """Forget how to undo the records below `end_offset`."""
        while self._undo and self._undo[0][0] < end_offset:
            self._undo.popleft()

    def undo(self) -> None:
        """Take back every uncommitted change, newest first."""
        self._offset = None
        while self._undo:
            _, table, key, old = self._undo.pop()
            table.set_back(key, old)

    def before(self, table: Table[K, V]) -> dict[K, V]:
        """Return a copy of a table as the committed records alone have made it."""
        copy = table.copy()
        for _, changed, key, old in reversed(self._undo):
            if changed is table:
                if old is _ABSENT:
                    copy.pop(key, None)
                else:
                    copy[key] = old
        return copy


class Table(Generic[K, V]):
    """A dictionary of immutable values whose changes can be undone. `watch(key, old, new)` hears of each change."""

    def __init__(
        self, journal: Journal, *, watch: Callable[[K, V | None, V | None], None] = lambda key, old, new: None
    ) -> None:
        self._journal = journal
        self._watch = watch
        self._items: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def get(self, key: K) -> V | None:
        """Return the value, or None."""
        return self._items.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over all."""
        return iter(self._items.items())

    def copy(self) -> dict[K, V]:
        """Return all as a dictionary of its own."""
        return self._items.copy()

    def values(self) -> Iterator[V]:
        """Iterate over the values."""
        return iter(self._items.values())

    def put(self, key: K, value: V) -> None:
        """Set a value."""
        old = self._items.get(key, _ABSENT)
        self._journal.note(self, key, old)
        self.set_back(key, value)

    def remove(self, key: K) -> None:
        """Remove a value. Raises: KeyError, if there is none."""
        self._journal.note(self, key, self._items[key])
        self.set_back(key, _ABSENT)

    def discard(self, key: K) -> None:
        """Remove a value, if there is one."""
        if key in self._items:
            self.remove(key)

    def set_back(self, key: K, old: V) -> None:
        """Set a value, or the mark of none, without a note in the journal."""
        was = self._items.get(key)
        if old is _ABSENT:
            self._items.pop(key, None)
            self._watch(key, was, None)
        else:
            self._items[key] = old
            self._watch(key, was, old)

    def clear(self) -> None:
        """Remove everything; there must be nothing to undo."""
        for key in list(self._items):
            self.set_back(key, _ABSENT)
