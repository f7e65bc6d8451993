"""Ranges of versions, as Kafka's schemas write them: `3`, `0-2`, `12+`, `none`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

_OPEN_END: Final = 0x7FFF
_TEXT: Final = re.compile(r"([0-9]+)(?:(\+)|-([0-9]+))?", re.ASCII)


@attrs.frozen
class Versions:
    """Versions from `first` to `last`, both inclusive; none at all, if `last` is smaller."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == _OPEN_END:
            return f"{self.first}+"
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    def intersection(self, other: Versions) -> Versions:
        """Return the versions that lie in both."""
        both = Versions(max(self.first, other.first), min(self.last, other.last))
        return both if both.first <= both.last else NO_VERSIONS


NO_VERSIONS: Final = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """Read `3`, `0-2`, `12+` or `none`.

    Raises: ValueError, if it is anything else.
    """
    if text == "none":
        return NO_VERSIONS
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no range of versions: expected one like 3, 0-2, 12+ or none")
    first = int(match[1])
    return Versions(first, _OPEN_END if match[2] else int(match[3] or first))
