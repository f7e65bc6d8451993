"""A progress bar on stderr for long work: only in a terminal, and gone when the work is done."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, TextIO

WIDTH: Final = 30
REPAINT_S: Final = 0.1


class Bar:
    """Shows how much of `total` is done. On anything but a terminal it says nothing, unless told otherwise."""

    def __init__(
        self, what: str, total: int, *, unit: str = "MiB", stream: TextIO | None = None, shown: bool | None = None
    ) -> None:
        self._what = what
        self._total = max(total, 1)
        self._divisor = 1 << 20 if unit == "MiB" else 1
        self._unit = unit
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() if shown is None else shown
        self._done = 0
        self._painted_s = -REPAINT_S

    def advance(self, size: int) -> None:
        """This much more is done."""
        self._done += size
        if self._shown and time.monotonic() - self._painted_s >= REPAINT_S:
            self._painted_s = time.monotonic()
            self._stream.write(f"\r{self.text()}\x1b[K")
            self._stream.flush()

    def text(self) -> str:
        """Return the bar as it is now."""
        share = min(self._done / self._total, 1.0)
        filled = round(share * WIDTH)
        done, total = self._done / self._divisor, self._total / self._divisor
        return f"{self._what} [{'#' * filled}{'.' * (WIDTH - filled)}] {done:.0f} of {total:.0f} {self._unit}"

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._painted_s > 0:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
