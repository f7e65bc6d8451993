"""Models of the map and the lock of `kraftlib.recipes`, for `check_each`: a history is split by key, or by lock.

    MAP_KEY  ("put", value, owner or None) -> True     ephemeral, if it has an owner
             ("swap", expected value or None, value) -> whether it was the expected one
             ("delete",) -> whether there was one
             ("get",) -> value or None
             ("end", owner) -> True                    the session of this owner has ended

    LOCK     ("grant", owner, token) -> True
             ("write", token) -> whether a write with this fence was taken
             ("release", token) -> True
             ("end", owner) -> True

A grant begins when it is asked for and ends when its caller is told. An owner has one session at a time, and holds a
lock once. The model of the lock demands that one owner holds it at a time, that tokens grow, and that exactly the
writes of the holder are taken. It does not demand that the first who asked is served first: that is seen in the log.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from kraftlib.errors import ConfigError
from kraftlib.testing.linearizability import Model

_NOBODY: Final = ""


def _step_of_key(state: tuple[bytes | None, str | None], action: Any) -> tuple[Hashable, Any]:
    value, owner = state
    match action:
        case ("put", written, writer):
            return (written, writer), True
        case ("swap", expected, written):
            return ((written, None), True) if value == expected else (state, False)
        case ("delete",):
            return (None, None), value is not None
        case ("get",):
            return state, value
        case ("end", ended):
            return ((None, None) if ended == owner else state), True
    raise ConfigError(f"{action!r} is no action on a key")


def _step_of_lock(state: tuple[str, int, int], action: Any) -> tuple[Hashable, Any]:
    holder, token, last = state
    match action:
        case ("grant", owner, granted):
            return ((owner, granted, granted), True) if holder == _NOBODY and granted > last else (state, False)
        case ("write", fence):
            return state, fence == token
        case ("release", released):
            return ((_NOBODY, -1, last) if released == token else state), True
        case ("end", ended):
            return ((_NOBODY, -1, last) if ended == holder else state), True
    raise ConfigError(f"{action!r} is no action on a lock")


MAP_KEY: Final = Model(initial=(None, None), step=_step_of_key)
"""One key of a map."""

LOCK: Final = Model(initial=(_NOBODY, -1, -1), step=_step_of_lock)
"""One lock, or election."""
