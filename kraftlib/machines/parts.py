"""The values of a snapshot of several machines, part by part."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlib.machines.messages import prefix_of


class Parts:
    """The values of a snapshot, and which one is next."""

    def __init__(self, values: Iterator[bytes]) -> None:
        self._values = values
        self.next: bytes | None = None
        self.take()

    def take(self) -> bytes | None:
        """Return the next value and look at the one behind it; None at the end."""
        taken, self.next = self.next, next(self._values, None)
        return taken

    def of(self, name: str) -> Iterator[bytes]:
        """Yield the values of the part that begins here."""
        prefix = prefix_of(name)
        while self.next is not None and self.next.startswith(prefix):
            value = self.next
            self.take()
            yield value[len(prefix) :]
