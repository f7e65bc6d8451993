"""The decorator of small values that are made and dropped for every record: events, actions, some messages.

For a type checker `frozen` is that of attrs, so no code assigns to a field. At run time the fields are plain slots: the
`__init__` of a frozen class sets each field by a call, which takes four times as long, and a commit makes some thirty
such objects of up to fourteen fields. A value that is kept, or is the key of a dictionary, stays `attrs.frozen`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen
else:
    import attrs

    def frozen(cls: type | None = None, *, eq: bool = True, **options: bool) -> object:
        """Return a class with slots that is compared, and hashed, by its fields; `options` are those of attrs."""
        return attrs.define(cls, eq=eq, unsafe_hash=True if eq else None, **options)


__all__ = ["frozen"]
