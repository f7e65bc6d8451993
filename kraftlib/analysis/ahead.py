"""Stages of work that overlap: the next item is made by a thread, while the last one is worked on.

For stages that spend their time in Arrow, numpy, checksums and files, all of which let other threads run meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class _End:
    """Comes last; with the error that ended it, if there was one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(items: Iterable[T], *, depth: int = 2) -> Generator[T, None, None]:
    """Yield `items`, of which up to `depth` are made before they are asked for. An error in making one is raised here.

    A caller that stops before the end closes it: the thread ends then, and `items` are closed, too.
    """
    made: queue.Queue[T | _End] = queue.Queue(depth)
    gone = threading.Event()

    def put(item: T | _End) -> None:
        while not gone.is_set():
            with suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for item in items:
                put(item)
                if gone.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - of another thread, to be raised in this one
            put(_End(error))
        else:
            put(_End())
        finally:
            if isinstance(items, Generator):
                items.close()

    thread = threading.Thread(target=work, name="kraftlib-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        gone.set()
        thread.join()
