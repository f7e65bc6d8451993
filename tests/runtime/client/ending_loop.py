"""An event loop that ends while another thread hands work over to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

from tests.runtime.quorum import PATIENCE_S

GRACE_S = 0.3
"""The time that the loop has to end amid a hand-over. One that waits for the hand-over does not end."""


class EndingLoop(asyncio.SelectorEventLoop):
    """What is handed over by `end_amid` reaches it after its last turn and before it is closed, if that can be."""

    def __init__(self) -> None:
        super().__init__()
        self._giver: int | None = None
        self._end: Callable[[], object] = lambda: None
        self._has_ended, self._is_given = threading.Event(), threading.Event()
        self._is_given.set()

    def end_amid(self, end: Callable[[], object]) -> None:
        """Call `end` on another thread amid the next hand-over of this one."""
        self._giver, self._end = threading.get_ident(), end

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._giver:
            return super().call_soon_threadsafe(callback, *args, context=context)
        self._giver = None
        self._is_given.clear()
        threading.Thread(target=self._end, daemon=True).start()
        self._has_ended.wait(GRACE_S)
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        finally:
            self._is_given.set()

    def close(self) -> None:
        self._has_ended.set()
        self._is_given.wait(PATIENCE_S)
        super().close()
