"""Names in order, in chunks: to add one, or take one out, costs as much among a million as among a thousand."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

CHUNK: Final = 1_000
"""Names of a chunk, about: it is cut in two at twice as many."""


class SortedNames:
    """A set of names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered = sorted(names)
        self._chunks = [ordered[at : at + CHUNK] for at in range(0, len(ordered), CHUNK)]
        self._lasts = [chunk[-1] for chunk in self._chunks]
        """The greatest name of each chunk; none is empty."""

    def add(self, name: str) -> None:
        """Add a name that is not there."""
        if not self._chunks:
            self._chunks, self._lasts = [[]], [name]
        at = min(bisect_left(self._lasts, name), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, name)
        if len(chunk) >= 2 * CHUNK:
            self._chunks[at : at + 1] = halves = [chunk[:CHUNK], chunk[CHUNK:]]
            self._lasts[at : at + 1] = [half[-1] for half in halves]
        else:
            self._lasts[at] = chunk[-1]

    def remove(self, name: str) -> None:
        """Take out a name that is there."""
        at = bisect_left(self._lasts, name)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]

    def since(self, start: str) -> Iterator[str]:
        """Yield the names that sort at `start` or after it, in order. They must not change meanwhile."""
        first = bisect_left(self._lasts, start)
        for at in range(first, len(self._chunks)):
            chunk = self._chunks[at]
            yield from islice(chunk, bisect_left(chunk, start) if at == first else 0, None)
