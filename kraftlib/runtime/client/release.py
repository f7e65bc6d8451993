"""The end of a replica's threads and stores, which a disk or a call of the application may hold up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from kraftlib.errors import StorageError
from kraftlib.runtime.background import BackgroundThread
from kraftlib.runtime.disk import Disk, call_soon_from_anywhere
from kraftlib.runtime.opening import Opened
from kraftlib.types import ReplicaId

logger = logging.getLogger("kraftlib.runtime")

BACKGROUND_ENDS_WITHIN_S = 10.0
"""Work in the background ends at its next step; a call of the application there may take longer, or never end."""

DISK_ENDS_WITHIN_S = 30.0
"""Time for the last flush and the clean end of the log. A disk that hangs may never end it."""


class Release:
    """Releases the threads and stores of a replica. Made, and `run`, on the loop of the replica."""

    def __init__(self, node_id: ReplicaId, *, background: BackgroundThread, disk: Disk, opened: Opened) -> None:
        self._loop = asyncio.get_running_loop()
        self._node_id = node_id
        self._background = background
        self._disk = disk
        self._opened = opened

    async def run(self, *, has_failed: Callable[[], bool]) -> None:
        """Release threads and stores, which waits for a flush that is under way, on a thread of their own.

        The executor of the loop may be busy with calls of the host that never end, and a host must be able to exit.
        Raises: StorageError, unless the replica `has_failed` before.
        """
        released: asyncio.Future[None] = self._loop.create_future()
        thread = threading.Thread(target=self._try_to_release, args=(released,), name="kraftlib-release", daemon=True)
        thread.start()
        try:
            await self._wait_for_release(released)
            released.result()
        except StorageError as error:
            if not has_failed():
                raise
            logger.warning("replica %d: closing after its failure: %s", self._node_id, error)
        except TimeoutError:
            released.add_done_callback(lambda late: late.exception())  # it was logged by then
            logger.error(
                "replica %d: its disk does not answer; the replica is closed, and its directory stays locked until the"
                " disk does",
                self._node_id,
            )
        finally:
            if released.done():
                thread.join()  # it has told, and does nothing more

    async def _wait_for_release(self, released: asyncio.Future[None]) -> None:
        """Wait, also when this is cancelled meanwhile: the end goes on. Raises: TimeoutError, CancelledError then."""
        deadline = self._loop.time() + BACKGROUND_ENDS_WITHIN_S + DISK_ENDS_WITHIN_S
        cancelled: asyncio.CancelledError | None = None
        while not released.done():
            try:
                await asyncio.wait((released,), timeout=deadline - self._loop.time())
            except asyncio.CancelledError as error:
                cancelled = error
            if not released.done() and self._loop.time() >= deadline:
                raise TimeoutError
        if cancelled is not None:
            raise cancelled

    def _try_to_release(self, released: asyncio.Future[None]) -> None:
        """On the thread: release everything, and tell `released` how that ended."""
        try:
            self._release()
        except BaseException as error:  # noqa: BLE001 - the end of the replica is told of it
            call_soon_from_anywhere(self._loop, released.set_exception, error)
        else:
            call_soon_from_anywhere(self._loop, released.set_result, None)

    def _release(self) -> None:
        if self._background.close(BACKGROUND_ENDS_WITHIN_S):
            self._disk.close()
            self._opened.close()
            return
        logger.error(
            "replica %d: a call of the state machine in the background (restore, or the values of a snapshot) has not"
            " ended; the replica is closed, and its directory stays locked until that call returns",
            self._node_id,
        )
        try:
            self._disk.close()
            self._opened.log.flush()
        finally:
            threading.Thread(target=self._release_later, name="kraftlib-release", daemon=True).start()

    def _release_later(self) -> None:
        """Release the stores once no thread writes into their directory any more."""
        self._background.close()
        try:
            self._opened.close()
        except StorageError as error:
            logger.warning("replica %d: closing late: %s", self._node_id, error)
