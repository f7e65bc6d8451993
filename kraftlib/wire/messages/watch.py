"""Watch (30006): a client pulls what has changed, and waits for it. Private; docs/reference/client-protocol.md.

All watches of a client go in one request. A further request over the same connection ends the wait of this one.
"""

from __future__ import annotations

from typing import Final

from kraftlib.codec.declared import Message, Struct, array, binary, boolean, int16, int32, int64, message, string
from kraftlib.frozen import frozen
from kraftlib.wire.bounds import CHANGES, QUESTION_BYTES, WATCHES

FROM_NOW: Final = -2
"""The `since` of a watch that begins now."""


@message(kind="request", api_key=30_006, versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class WatchRequest(Message):
    """The watches of one client."""

    max_wait_ms: int = int32("0+")
    max_bytes: int = int32("0+", default=1024 * 1024)
    """The size of all changes of the response, but for the first one."""
    watches: tuple[Watch, ...] = array("Watch", "0+", most=WATCHES)

    @frozen(kw_only=True, eq=False, repr=False)
    class Watch(Struct):
        """One watch."""

        selector: bytes = binary("0+", most=QUESTION_BYTES)
        since: int = int64("0+", default=-1)
        """Changes after this offset; -1 all, -2 none yet: the response names the offset to go on from."""


@message(kind="response", api_key=30_006, versions="0", flexible="0+")
@frozen(kw_only=True, eq=False, repr=False)
class WatchResponse(Message):
    """The findings of each watch, in the order of the request."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    found: tuple[Found, ...] = array("Found", "0+", most=WATCHES)

    @frozen(kw_only=True, eq=False, repr=False)
    class Found(Struct):
        """The changes of one watch, and the offset to go on from."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        next_since: int = int64("0+", default=-1)
        changes: tuple[WatchResponse.Change, ...] = array("Change", "0+", most=CHANGES)

    @frozen(kw_only=True, eq=False, repr=False)
    class Change(Struct):
        """The change of one record; if `full`, the state as of `offset`, since history is gone."""

        offset: int = int64("0+")
        full: bool = boolean("0+")
        data: bytes = binary("0+")
