"""Pulls that wait: each is woken by records that change what one of its watches selects, and by no others.

One look at the machine for each selector, at the records since the last look, serves all pulls with that selector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from kraftlib.coordination.access import BEFORE_ALL, Gone, Machine
from kraftlib.errors import KraftError
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.proposing import engine_future
from kraftlib.types import Offset


class Arrivals:
    """The waiting pulls of one machine on one node. On the loop of the engine."""

    def __init__(self, node: Node, machine: Machine) -> None:
        self._node: Final = node
        self._machine: Final = machine
        self._waiting: Final[dict[bytes, set[asyncio.Future[None]]]] = {}
        """The pulls that wait, by selector."""
        self._next: asyncio.Future[Any] | None = None
        """Done when something more is applied."""
        self._seen: Offset = BEFORE_ALL
        """The pulls that wait know of all records up to here."""

    @contextmanager
    def awaited(self, selectors: Collection[bytes]) -> Iterator[asyncio.Future[None]]:
        """Give a future that is done when a record after the last one changes what one of the selectors takes.

        It is done, too, when nothing more is applied here. Raises: ReplicaFailedError, ClosedError.
        """
        self._listen()
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        distinct = set(selectors)
        for selector in distinct:
            self._waiting.setdefault(selector, set()).add(woken)
        try:
            yield woken
        finally:
            for selector in distinct:
                self._waiting[selector].discard(woken)
                if not self._waiting[selector]:
                    del self._waiting[selector]

    def _listen(self) -> None:
        if self._next is None:
            applied_offset = self._node.applier.applied_offset
            self._next = engine_future(self._node, partial(self._node.wait_for_offset, applied_offset))
            self._next.add_done_callback(self._applied)
            # Amid a load another thread replaces the state: pulls have seen nothing of the new one.
            self._seen = BEFORE_ALL if self._node.applier.is_loading else self._machine.applied

    def _applied(self, future: asyncio.Future[Any]) -> None:
        self._next = None
        woken = list(self._waiting)
        is_over = future.cancelled() or future.exception() is not None
        if woken and not is_over:
            changed = [selector for selector in woken if self._has_changed(selector)]
            with suppress(KraftError):  # all of them meet it themselves
                self._listen()
                woken = changed
        self._wake(woken)

    def _has_changed(self, selector: bytes) -> bool:
        try:
            found = self._machine.changes(selector, self._seen, most=1)
        except Exception:  # noqa: BLE001 - the pull meets it itself
            return True
        return isinstance(found, Gone) or len(found) > 0

    def _wake(self, selectors: Iterable[bytes]) -> None:
        for selector in selectors:
            for woken in self._waiting[selector]:
                if not woken.done():
                    woken.set_result(None)
