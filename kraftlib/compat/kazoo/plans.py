"""Operations on nodes as one transaction on keys: its conditions, and its writes.

A plan is made from a state that was read. The facts that it relies on become conditions, so it is carried out on that
very state or not at all. A creation needs nothing to be read: that its parent exists, and itself does not, are
conditions, and the quorum counts the number of a sequential node. So many clients may create below one parent and not
be in each other's way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
)
from kazoo.protocol.serialization import CheckVersion, Create, Create2, Delete, SetData

from kraftlib.compat.kazoo.nodes import ROOT, Node, Record, counter_key, entry_key, path_of, record_key, split
from kraftlib.coordination.messages import EXISTS, NONE, OPERATIONS_MAX, PLACEHOLDER, Do, Result, Transact
from kraftlib.types import Offset

EPHEMERAL, SEQUENCE = 1, 2
"""Flags of a creation. ZooKeeper's other kinds of nodes (containers, time to live) have other values."""

Operation = Transact.Operation


class Plan:
    """The transaction of a session, which is named by its opening, for some operations.

    `known` has the nodes that were read, None for one that does not exist.
    """

    def __init__(self, known: Mapping[str, Node | None], *, session: Offset, now_ms: int) -> None:
        self._known = known
        self._session = session
        self._now_ms = now_ms
        self._changed: dict[str, Node | None] = {}
        """Nodes as the operations before leave them."""
        self._added: dict[str, set[str]] = defaultdict(set)
        self._removed: dict[str, set[str]] = defaultdict(set)
        """Children, by parent."""
        self._conditions: dict[str, Offset] = {}
        self._operations: list[Operation] = []
        self._results: list[Callable[[Result], Any]] = []

    def transact(self) -> Transact:
        """Return the transaction. Raises: BadArgumentsError, if it is too large."""
        if max(len(self._conditions), len(self._operations)) > OPERATIONS_MAX:
            raise BadArgumentsError(
                f"the transaction writes {len(self._operations)} keys, and {OPERATIONS_MAX} are the most: a creation "
                "takes four, a deletion three"
            )
        return Transact(
            conditions=tuple(Transact.Condition(key=key, revision=at) for key, at in self._conditions.items()),
            then=tuple(self._operations),
        )

    def results(self, done: Result) -> list[Any]:
        """Return what kazoo expects for each operation."""
        return [result(done) for result in self._results]

    def add(self, operation: Any) -> None:
        """Take an operation. Raises: a ZookeeperError, if it cannot be done."""
        match operation:
            case Create() | Create2():
                self._create(operation)
            case SetData():
                self._set(operation)
            case Delete():
                self._delete(operation)
            case CheckVersion():
                self._need(operation.path, operation.version)
                self._results.append(lambda done: True)
            case _:
                raise UnimplementedError(f"{operation!r} cannot be part of a transaction")

    # --- looking -----------------------------------------------------------------------------------------------------

    def _look(self, path: str) -> Node | None:
        return self._changed[path] if path in self._changed else self._known.get(path)

    def _is_known(self, path: str) -> bool:
        return path in self._changed or path in self._known

    def _need(self, path: str, version: int) -> Node:
        """Return a node that must exist in that version, -1 for any."""
        node = self._look(path)
        if node is None:
            raise NoNodeError
        if version not in (-1, node.record.version):
            raise BadVersionError
        if path not in self._changed:
            self._conditions[record_key(path)] = node.revision
        return node

    # --- changing ----------------------------------------------------------------------------------------------------

    def _create(self, asked: Any) -> None:
        if asked.flags & ~(EPHEMERAL | SEQUENCE):
            raise UnimplementedError(f"flags={asked.flags}: nodes are ephemeral, sequential, both or neither")
        sequence, ephemeral = bool(asked.flags & SEQUENCE), bool(asked.flags & EPHEMERAL)
        parent, _ = split(asked.path)
        self._need_parent(parent)
        path = asked.path
        if sequence:
            path += PLACEHOLDER
        else:
            self._need_absent(path)
        record = Record(ctime_ms=self._now_ms, mtime_ms=self._now_ms, data=asked.data)
        at = len(self._operations) + 1
        do = Do.PUT_NUMBERED if sequence else Do.PUT
        self._operations += [
            Operation(do=Do.ADD, key=counter_key(parent), delta=1),
            Operation(do=do, key=record_key(path), value=record.encoded(), ephemeral=ephemeral, delta=-1),
            Operation(do=do, key=entry_key(path), ephemeral=ephemeral, delta=-1),
        ]
        if not ephemeral:
            self._operations.append(Operation(do=do, key=counter_key(path), value=b"0", delta=-1))
        node = Node(record=record, owner=self._session if ephemeral else NONE)
        self._note_child(path if not sequence else f"{path}{at}")
        if not sequence:
            self._changed[path] = node
        with_stat = isinstance(asked, Create2)

        def result(done: Result) -> Any:
            made = path_of(done.items[at].key)
            return (made, attrs.evolve(node, revision=done.offset).stat) if with_stat else made

        self._results.append(result)

    def _need_parent(self, parent: str) -> None:
        if parent == ROOT:
            return
        if self._is_known(parent):
            node = self._look(parent)
            if node is None:
                raise NoNodeError
            if node.is_ephemeral:
                raise NoChildrenForEphemeralsError
        if parent not in self._changed:
            self._conditions.setdefault(counter_key(parent), EXISTS)

    def _need_absent(self, path: str) -> None:
        if path == ROOT or self._look(path) is not None:
            raise NodeExistsError
        if path not in self._changed:
            self._conditions[record_key(path)] = NONE

    def _set(self, asked: Any) -> None:
        node = self._need(asked.path, asked.version)
        old = node.record
        created = node.revision if old.created == NONE else old.created
        record = Record(
            version=old.version + 1, created=created, ctime_ms=old.ctime_ms, mtime_ms=self._now_ms, data=asked.data
        )
        is_bare_root = asked.path == ROOT and node.revision == NONE and ROOT not in self._changed
        do = Do.PUT if is_bare_root else Do.REPLACE
        self._operations.append(Operation(do=do, key=record_key(asked.path), value=record.encoded()))
        changed = self._changed[asked.path] = attrs.evolve(node, record=record)
        self._results.append(lambda done: attrs.evolve(changed, revision=done.offset).stat)

    def _delete(self, asked: Any) -> None:
        if asked.path == ROOT:
            raise BadArgumentsError("the root cannot be deleted")
        node = self._need(asked.path, asked.version)
        if ({*node.children} | self._added[asked.path]) - self._removed[asked.path]:
            raise NotEmptyError
        found = self._known.get(asked.path)
        if found is not None:
            self._conditions[counter_key(asked.path)] = found.counted
        for key in (record_key(asked.path), entry_key(asked.path), counter_key(asked.path)):
            self._operations.append(Operation(do=Do.DELETE, key=key))
        self._changed[asked.path] = None
        parent, name = split(asked.path)
        self._added[parent].discard(name)
        self._removed[parent].add(name)
        self._results.append(lambda done: True)

    def _note_child(self, path: str) -> None:
        parent, name = split(path)
        self._removed[parent].discard(name)
        self._added[parent].add(name)
