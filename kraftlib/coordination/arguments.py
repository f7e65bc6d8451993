"""Checks what callers give to an access and to the recipes, before anything happens: errors name value and remedy."""

from __future__ import annotations

from typing import Any, Final

from kraftlib.coordination.access import AtLeast, Consistency, Linearizable, Stale
from kraftlib.errors import ConfigError

OFFSET_MAX: Final = 2**63 - 1


def check_text(name: str, value: object, *, may_be_empty: bool = True) -> str:
    """Return a name, a key, a prefix or an owner. Raises: ConfigError, unless it is text that UTF-8 can hold."""
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ConfigError(f"{name}={value!r} must be text" + ("" if may_be_empty else " that is not empty"))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{name}={value!r} is no text that UTF-8 can hold: {error.reason}") from None
    return value


def check_name(name: object) -> str:
    """Return the name of a lock, a map, a queue or another thing of many. Raises: ConfigError."""
    return check_text("name", name, may_be_empty=False)


def check_bytes(name: str, value: object) -> bytes:
    """Return bytes. Raises: ConfigError."""
    if not isinstance(value, bytes):
        raise ConfigError(f"{name}={value!r} must be bytes, for instance text.encode()")
    return value


def check_whole(name: str, value: Any, *, least: int, most: int = OFFSET_MAX) -> int:
    """Return a whole number within its bounds. Raises: ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upto = "at least" if most == OFFSET_MAX else f"{most} at most, and at least"
        raise ConfigError(f"{name}={value!r} must be a whole number, {upto} {least}")
    return value


def check_flag(name: str, value: object) -> bool:
    """Return a truth value. Raises: ConfigError."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} must be True or False")
    return value


def check_since(value: Any) -> int | None:
    """Return the offset after which something is looked for; None is from now on. Raises: ConfigError."""
    return None if value is None else check_whole("since", value, least=-1)


def check_consistency(value: object) -> Consistency:
    """Return a consistency. Raises: ConfigError."""
    if isinstance(value, AtLeast):
        check_whole("AtLeast.offset", value.offset, least=-1)
        return value
    if isinstance(value, Linearizable | Stale):
        return value
    raise ConfigError(
        f"consistency={value!r} must be LINEARIZABLE, STALE or AtLeast(offset) of kraftlib.coordination.access"
    )
