"""A tree of nodes, as ZooKeeper has it, on the keys of the coordination machine."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import BadArgumentsError, RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.protocol.serialization import Create, Create2

from kraftlib.compat.kazoo.nodes import ROOT, Node, directory, node_of, split
from kraftlib.compat.kazoo.plans import SEQUENCE, Plan
from kraftlib.coordination.commands import COMMAND_BYTES_MAX, NAME_BYTES_MAX, ROWS_MAX
from kraftlib.coordination.messages import Answer, Ask, Question
from kraftlib.recipes.session import Session
from kraftlib.types import Offset

PATH_BYTES_MAX: Final = NAME_BYTES_MAX - 64
DATA_BYTES_MAX: Final = COMMAND_BYTES_MAX - 16 * NAME_BYTES_MAX
"""A command has its keys, too, some of them twice."""

FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")

PAUSE_S: Final = 0.002


class FailedOperation(Exception):
    """The operation at `index` cannot be done, so none was."""

    def __init__(self, index: int, error: ZookeeperError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Tree:
    """The tree in the eyes of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(self, path: str) -> tuple[Offset, Node | None]:
        """Return a node with its children, or None if it does not exist; and the offset that this is as of."""
        check_path(path)
        prefix = directory(path)
        rows: list[Answer.Row] = []
        first, after = None, ""
        while True:
            question = Question(ask=Ask.KEYS, name=prefix, prefix=True, after=after, most=ROWS_MAX)
            offset, answer = await self._session.ask(question)
            first = offset if first is None else first
            rows += answer.rows
            if not answer.more:
                return first, node_of(path, rows)
            after = answer.rows[-1].name

    async def commit(self, operations: Sequence[Any]) -> list[Any]:
        """Do all operations at once and return their results. Raises: FailedOperation, and nothing was done.

        Where others change the same nodes at the same time it is tried again, as often as that is so.
        """
        for index, operation in enumerate(operations):
            _check(index, operation)
        needed = {operation.path for operation in operations if not isinstance(operation, Create | Create2)}
        touched = _touched(operations)
        attempts = 0
        while True:
            try:
                plan = await self._planned(operations, needed)
            except FailedOperation as failed:
                if failed.index == 0 or needed >= touched:
                    raise
                needed = touched  # a creation before it, of which nothing was read, may be the first to fail
                continue
            done = await self._session.call(plan.transact())
            if done.succeeded:
                return plan.results(done)
            needed = touched
            attempts += 1
            await asyncio.sleep(random.uniform(0, PAUSE_S * min(attempts, 16)))

    async def _planned(self, operations: Sequence[Any], needed: set[str]) -> Plan:
        known = {path: (await self.read(path))[1] for path in sorted(needed)}
        plan = Plan(known, session=self._session.opened, now_ms=time.time_ns() // 1_000_000)
        for index, operation in enumerate(operations):
            try:
                plan.add(operation)
            except ZookeeperError as error:
                raise FailedOperation(index, error) from error
        return plan


def as_results(failed: FailedOperation, count: int) -> list[ZookeeperError]:
    """Return what ZooKeeper answers to a transaction that has failed: an error for each operation."""
    return [
        RolledBackError() if index < failed.index else failed.error if index == failed.index else RuntimeInconsistency()
        for index in range(count)
    ]


def check_path(path: str) -> None:
    """Raises: BadArgumentsError, if no node may have this path."""
    if FORBIDDEN.search(path):
        raise BadArgumentsError(f"the path {path!r} has characters that ZooKeeper does not allow in it")
    size = len(path.encode())
    if size > PATH_BYTES_MAX:
        raise BadArgumentsError(f"a path of {size} bytes is longer than {PATH_BYTES_MAX}: {path[:32]!r}…")


def _check(index: int, operation: Any) -> None:
    try:
        check_path(operation.path)
        data = getattr(operation, "data", None) or b""
        if len(data) > DATA_BYTES_MAX:
            raise BadArgumentsError(f"data of {len(data)} bytes is larger than {DATA_BYTES_MAX}")
    except BadArgumentsError as error:
        raise FailedOperation(index, error) from error


def _touched(operations: Sequence[Any]) -> set[str]:
    """Return the nodes that decide whether the operations can be done."""
    found = set()
    for operation in operations:
        is_creation = isinstance(operation, Create | Create2)
        if not (is_creation and operation.flags & SEQUENCE):
            found.add(operation.path)
        if is_creation and split(operation.path)[0] != ROOT:
            found.add(split(operation.path)[0])
    return found
