"""Work whose time others decide on: in a thread of its own, so that only its caller waits for it.

A server that is dialled says how many rounds of PBKDF2 its client must do, up to a second of them, before it has proved
anything; a name server may not answer at all. In the executor that all of asyncio shares, a few of these would keep
everything else waiting, the end of the loop included.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return or raise what `work` does. If the caller is cancelled, the thread ends by itself."""
    return await begun(work, *arguments)


def begun(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Begin `work` in a thread of its own; return the future of what it returns or raises."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = work(*arguments), None
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="kraftlib-own-thread", daemon=True).start()
    return future
