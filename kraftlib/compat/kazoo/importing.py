"""Copies a tree of ZooKeeper into the keys that `KazooClient` uses, and compares the two node by node.

`Importer.step` reads what the quorum has, writes what differs, and returns that. A step that returns no difference has
found both equal. Values, versions, times and sequence numbers are those of the source; transaction ids are offsets of
our own log, as they must grow with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import attrs
from kazoo.exceptions import BadArgumentsError, NodeExistsError
from kazoo.protocol.serialization import Create
from kazoo.security import OPEN_ACL_UNSAFE

from kraftlib.compat.kazoo.nodes import (
    ROOT,
    SCOPE,
    Node,
    Record,
    counter_key,
    entry_key,
    node_of,
    record_key,
    split,
)
from kraftlib.compat.kazoo.source import Source, SourceNode
from kraftlib.compat.kazoo.tree import DATA_BYTES_MAX, FailedOperation, Tree, check_path
from kraftlib.coordination.commands import COMMAND_BYTES_MAX, NAME_BYTES_MAX, ROWS_MAX
from kraftlib.coordination.messages import NONE, OPERATIONS_MAX, Answer, Ask, Do, Question, Transact
from kraftlib.errors import ConfigError
from kraftlib.recipes.session import Session

Operation = Transact.Operation


@attrs.frozen(kw_only=True)
class Differences:
    """Paths of nodes, in order. An ephemeral node of the quorum is surplus, and missing if the source has it."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.changed or self.surplus)


class Importer:
    """The import of the node `top` and all below it. Others must not write there meanwhile.

    `replace`: also where the quorum has other nodes there before the first step, which are changed and deleted then.
    """

    def __init__(self, session: Session, top: str, *, replace: bool = False) -> None:
        self._session = session
        self._tree = Tree(session)
        self._top = top
        self._replace = replace

    async def step(self, source: Source) -> Differences:
        """Make the quorum equal to the source, and return what had to be written.

        Raises: ConfigError, before anything is written, if a node does not fit, or if there are others already.
        """
        for path, asked in source.nodes.items():
            _check(path, asked)
        target = await self.target()
        found = differences(source, target)
        if (found.changed or found.surplus) and not self._replace:
            path = [*found.changed, *found.surplus][0]
            raise ConfigError(
                f"the quorum has {len(found.changed) + len(found.surplus)} nodes already that the source lacks or has "
                f"otherwise, such as {path!r}: delete them, import below another --path, or give --replace"
            )
        self._replace = True  # from now on they are ours
        if found:
            await self._above()
            for operations in _batches(self._writes(found, source, target)):
                await self._session.call(Transact(then=tuple(operations)))
        return found

    async def target(self) -> dict[str, Node]:
        """Return the nodes that the quorum has there."""
        rows: dict[str, list[Answer.Row]] = defaultdict(list)
        prefix, after = f"{SCOPE}{self._top.rstrip('/')}/", ""
        while True:
            question = Question(ask=Ask.KEYS, name=prefix, prefix=True, after=after, most=ROWS_MAX)
            _, answer = await self._session.ask(question)
            for row in answer.rows:
                rows[row.name.removeprefix(SCOPE).partition("//")[0] or ROOT].append(row)
            if not answer.more:
                break
            after = answer.rows[-1].name
        nodes = {path: node_of(path, own) for path, own in rows.items()}
        return {path: node for path, node in nodes.items() if node is not None}

    async def _above(self) -> None:
        """Create what is missing of the way to the top."""
        names = self._top.split("/")[1:-1]
        for path in ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]:
            try:
                await self._tree.commit([Create(path, b"", OPEN_ACL_UNSAFE, 0)])
            except FailedOperation as failed:
                if not isinstance(failed.error, NodeExistsError):
                    raise ConfigError(f"{path!r} cannot be created: {failed.error!r}") from failed
        _, parent = await self._tree.read(split(self._top)[0])
        if self._top != ROOT and parent is not None and parent.is_ephemeral:
            raise ConfigError(f"{split(self._top)[0]!r} is ephemeral in the quorum, and has no children: delete it")

    def _writes(self, found: Differences, source: Source, target: Mapping[str, Node]) -> Iterator[list[Operation]]:
        """Yield the operations of each node: children are deleted before their parents, and written after them."""
        for path in sorted(found.surplus, reverse=True):
            yield [Operation(do=Do.DELETE, key=key) for key in (record_key(path), entry_key(path), counter_key(path))]
        for path in sorted((*found.missing, *found.changed)):
            asked, old = source.nodes[path], target.get(path)
            is_new = old is None or old.is_ephemeral
            operations = [
                Operation(do=Do.PUT, key=record_key(path), value=_record(asked, None if is_new else old).encoded()),
                Operation(do=Do.PUT, key=counter_key(path), value=b"%d" % asked.creations),
            ]
            if is_new and path != ROOT:
                operations.append(Operation(do=Do.PUT, key=entry_key(path)))
                if path == self._top:
                    operations.append(Operation(do=Do.ADD, key=counter_key(split(path)[0]), delta=1))
            yield operations


def differences(source: Source, target: Mapping[str, Node]) -> Differences:
    """Compare node by node: values, versions, times, sequence numbers and children."""
    lasting = {path: node for path, node in target.items() if not node.is_ephemeral}
    children = source.children()
    changed = [
        path
        for path, asked in source.nodes.items()
        if path in lasting and not _is_equal(asked, children[path], lasting[path])
    ]
    return Differences(
        missing=tuple(sorted(source.nodes.keys() - lasting.keys())),
        changed=tuple(sorted(changed)),
        surplus=tuple(sorted(path for path in target if path not in source.nodes or path not in lasting)),
    )


def _is_equal(asked: SourceNode, children: list[str], node: Node) -> bool:
    record = node.record
    has = SourceNode(
        data=record.data,
        version=record.version,
        ctime_ms=record.ctime_ms,
        mtime_ms=record.mtime_ms,
        creations=node.creations,
    )
    return has == asked and sorted(node.children) == children


def _record(asked: SourceNode, old: Node | None) -> Record:
    created = NONE if old is None else old.revision if old.record.created == NONE else old.record.created
    return Record(
        version=asked.version, created=created, ctime_ms=asked.ctime_ms, mtime_ms=asked.mtime_ms, data=asked.data
    )


def _check(path: str, asked: SourceNode) -> None:
    size = len(asked.data or b"")
    if size > DATA_BYTES_MAX:
        raise ConfigError(f"the node {path!r} has {size} bytes, and {DATA_BYTES_MAX} are the most: divide its value")
    try:
        check_path(path)
    except BadArgumentsError as error:
        raise ConfigError(f"a node cannot be copied: {error}") from error


def _batches(nodes: Iterable[list[Operation]]) -> Iterator[list[Operation]]:
    """Yield the operations of as many nodes as fit into one command."""
    batch: list[Operation] = []
    size = 0
    for operations in nodes:
        more = sum(len(operation.value) + len(operation.key.encode()) + 32 for operation in operations)
        if batch and (
            len(batch) + len(operations) > OPERATIONS_MAX or size + more > COMMAND_BYTES_MAX - NAME_BYTES_MAX
        ):
            yield batch
            batch, size = [], 0
        batch += operations
        size += more
    if batch:
        yield batch
