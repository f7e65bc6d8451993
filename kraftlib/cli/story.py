"""Prints progress for a person: lines with the time since the start, in colour if rich is installed."""

from __future__ import annotations

import time
from typing import Any

WIDTH = 9


class Story:
    """Lines of the form `  1.23 s  what happened`."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._console = _console()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    def title(self, text: str) -> None:
        """Begin."""
        self._print(text, "bold")

    def tell(self, text: str, *, style: str = "") -> None:
        """Say what has happened, with the time."""
        self._print(f"{f'{self.elapsed_s:.2f} s':>{WIDTH}}  {text}", style)

    def more(self, text: str, *, style: str = "") -> None:
        """Say more about the same."""
        self._print(f"{'':>{WIDTH}}  {text}", style)

    def good(self, text: str) -> None:
        """Say what held."""
        self.tell(text, style="green")

    def bad(self, text: str) -> None:
        """Say what did not hold."""
        self.tell(text, style="bold red")

    def _print(self, text: str, style: str) -> None:
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


def _console() -> Any:
    """Return rich's console; None where rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console()
