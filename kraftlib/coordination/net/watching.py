"""The watches of one client: one request for all of them at a time, and a reader for each.

A watch is asked for while its reader has taken everything that came; so the waiting changes are bounded by one answer.
Each answer counts only if the watch still stands where it was asked from: so nothing is delivered twice, even if a
request was repeated, and nothing is lost, since a watch moves on with delivered changes alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.coordination.access import Change
from kraftlib.coordination.net.connection import Connection, LostError
from kraftlib.errors import ClosedError, ConfigError, KraftError
from kraftlib.proposals.outcomes import error_of
from kraftlib.types import Offset
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, WATCHES
from kraftlib.wire.messages.watch import FROM_NOW, WatchRequest, WatchResponse

if TYPE_CHECKING:
    from kraftlib.coordination.net.client import ClientAccess

WAIT_MS: Final = 2_000
"""A pull that finds nothing is answered after this time."""


@attrs.define(eq=False)
class _Watch:
    selector: bytes
    since: Offset
    changes: deque[Change] = attrs.Factory(deque)
    error: Exception | None = None
    news: asyncio.Event = attrs.Factory(asyncio.Event)


class Watching:
    """The watches, and the task that pulls for them while there are any."""

    def __init__(self, client: ClientAccess) -> None:
        self._client: Final = client
        self._watches: list[_Watch] = []
        self._pulling: asyncio.Task[None] | None = None
        self._hungry = asyncio.Event()
        """Set when a watch wants to be asked for that is not."""

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes."""
        self._client.check_open()
        if len(self._watches) >= WATCHES:
            raise KraftError(f"one client has at most {WATCHES} watches: connect another one")
        size = len(selector) + sum(len(watch.selector) for watch in self._watches)
        if size > PROPOSED_BYTES:
            raise ConfigError(f"all selectors of one client are {size} bytes: they may have {PROPOSED_BYTES} together")
        watch = _Watch(selector, FROM_NOW if since is None else since)
        self._watches.append(watch)
        self._hungry.set()
        if self._pulling is None or self._pulling.done():
            self._pulling = asyncio.ensure_future(self._pull())
        try:
            while True:
                while watch.changes:
                    yield watch.changes.popleft()
                if watch.error is not None:
                    raise watch.error
                watch.news.clear()
                self._hungry.set()
                await watch.news.wait()
        finally:
            self._watches.remove(watch)

    async def close(self) -> None:
        """End all of them."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.wait((self._pulling,))
        self._end(ClosedError("this client is closed"))

    def _end(self, error: Exception) -> None:
        for watch in self._watches:
            watch.error = error
            watch.news.set()

    async def _pull(self) -> None:
        while self._watches:
            self._hungry.clear()
            hungry = [watch for watch in self._watches if not watch.changes and watch.error is None]
            if not hungry:
                await self._hungry.wait()
                continue
            try:
                await self._pull_for(hungry)
            except LostError:
                continue  # the next one is made after a pause
            except Exception as error:  # noqa: BLE001 - the readers are told, since no task waits for this one
                self._end(error)
                return

    async def _pull_for(self, hungry: Sequence[_Watch]) -> None:
        """Ask once, and take the answer; or leave it to be taken when it comes, if another watch is hungry before."""
        connection = await self._client.connection()
        asked = [(watch, watch.since) for watch in hungry]
        rows = tuple(WatchRequest.Watch(selector=watch.selector, since=since) for watch, since in asked)
        request = WatchRequest(max_wait_ms=WAIT_MS, watches=rows)
        asking = asyncio.ensure_future(self._client.ask(connection, request, WatchResponse))
        hunger = asyncio.ensure_future(self._hungry.wait())
        try:
            await asyncio.wait((asking, hunger), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                # The next request makes the replica answer this one at once.
                asking.add_done_callback(lambda asking: self._take_late(asked, asking))
                return
            response = asking.result()
        except asyncio.CancelledError:
            asking.cancel()
            raise
        finally:
            hunger.cancel()
        await self._take(asked, response, connection)

    def _take_late(self, asked: Sequence[tuple[_Watch, Offset]], asking: asyncio.Future[WatchResponse]) -> None:
        if not asking.cancelled() and asking.exception() is None and asking.result().error_code == ErrorCode.NONE:
            self._deliver(asked, asking.result())

    async def _take(
        self, asked: Sequence[tuple[_Watch, Offset]], response: WatchResponse, connection: Connection
    ) -> None:
        if response.error_code == ErrorCode.NONE and len(response.found) == len(asked):
            self._deliver(asked, response)
        elif response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise error_of(response.error_code, response.error_message)
        else:
            await self._client.leave(connection)

    @staticmethod
    def _deliver(asked: Sequence[tuple[_Watch, Offset]], response: WatchResponse) -> None:
        for (watch, since), found in zip(asked, response.found, strict=False):
            if watch.since != since or watch.error is not None:
                continue
            if found.error_code != ErrorCode.NONE:
                watch.error = error_of(found.error_code, found.error_message)
                watch.news.set()
                continue
            watch.since = found.next_since
            if found.changes:
                watch.changes.extend(Change(row.offset, row.data, row.full) for row in found.changes)
                watch.news.set()
