"""A map whose pictures cost little: they share everything that has not changed since the one before.

    builder = MapBuilder()
    builder["a"] = 1
    picture = builder.freeze()    never changes
    builder["a"] = 2              copies one bucket of `BUCKETS`, once until the next `freeze`

Keys have no order: sort them where it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

BUCKETS: Final = 512
"""A power of two. A picture of a million keys costs the copy of this many references, and a change that of 2,000."""


class SharedMap(Mapping[K, V]):
    """A picture: nothing of it changes, so that any thread may read it."""

    __slots__ = ("_buckets", "_length")

    def __init__(self, buckets: Sequence[dict[K, V]] = ({},) * BUCKETS, length: int = 0) -> None:
        self._buckets = buckets
        self._length = length

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & (BUCKETS - 1)][key]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class MapBuilder(SharedMap[K, V], MutableMapping[K, V]):
    """The map that changes. One thread at a time may use it."""

    __slots__ = ("_own",)

    def __init__(self) -> None:
        super().__init__([{}] * BUCKETS)
        self._own: set[int] = set()
        """The buckets that no picture shares."""

    def __setitem__(self, key: K, value: V) -> None:
        bucket = self._bucket(key)
        self._length += key not in bucket
        bucket[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        del self._bucket(key)[key]
        self._length -= 1

    def freeze(self) -> SharedMap[K, V]:
        """Return a picture of the map as it is now."""
        self._own.clear()
        return SharedMap(tuple(self._buckets), self._length)

    def _bucket(self, key: K) -> dict[K, V]:
        """Return the bucket of a key, as one that may be changed."""
        number = hash(key) & (BUCKETS - 1)
        if number not in self._own:
            self._own.add(number)
            self._buckets[number] = dict(self._buckets[number])  # type: ignore[index]
        return self._buckets[number]
