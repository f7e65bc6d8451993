"""SIGTERM ends a process as Ctrl-C does: blocks are left one after the other, and release what they hold.

Without a handler, SIGTERM kills the process where it stands, and others wait until its session has expired.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Final

EXIT_STATUS: Final = 128 + signal.SIGTERM
"""The exit status of a process that SIGTERM has ended, as a shell reports it."""


class ExitAtSigterm:
    """Within this block SIGTERM cancels the task that has entered it, or without a loop raises SystemExit.

    Only in the main thread, and only where the process has no handler of its own; elsewhere it does nothing.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._installed = False
        self._handler: object = None
        self._told = False

    def __enter__(self) -> ExitAtSigterm:
        if threading.current_thread() is threading.main_thread():
            self._installed = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._installed:
            try:
                self._task = asyncio.current_task()
            except RuntimeError:  # no loop runs here
                self._task = None
            if self._task is None:
                signal.signal(signal.SIGTERM, _exit)
            else:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._cancel, self._task)
            self._handler = signal.getsignal(signal.SIGTERM)
        return self

    def _cancel(self, task: asyncio.Task[object]) -> None:
        self._told = True
        task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The block may have set a handler of its own, which stays.
        if self._installed and signal.getsignal(signal.SIGTERM) is self._handler:
            if self._task is not None:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._installed = False
        if self._told and isinstance(error, asyncio.CancelledError):
            raise SystemExit(EXIT_STATUS) from None


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(EXIT_STATUS)
