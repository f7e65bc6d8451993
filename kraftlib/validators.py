"""Validators of options and timeouts: a wrong value raises ConfigError, which names it and the allowed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError

MEBIBYTE: Final = 1024 * 1024


def at_least(limit: int) -> Callable[[Any, attrs.Attribute[int], int], None]:
    """Return a validator: an integer not below `limit`."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < limit:
            raise ConfigError(f"{attribute.name}={value!r} must be an integer of at least {limit}")

    return check


def between(low: int, high: int) -> Callable[[Any, attrs.Attribute[int], int], None]:
    """Return a validator: an integer from `low` to `high`."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{attribute.name}={value!r} must be an integer from {low} to {high}")

    return check


def one_of(*allowed: str) -> Callable[[Any, attrs.Attribute[str], str], None]:
    """Return a validator: one of the `allowed` words."""

    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in allowed:
            raise ConfigError(f"{attribute.name}={value!r} must be one of {', '.join(allowed)}")

    return check


def check_whole_timeout(timeout_ms: object, *, least: int) -> None:
    """Raise ConfigError unless `timeout_ms` fits into a request: whole ms, from `least` on."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < least:
        raise ConfigError(f"timeout_ms={timeout_ms!r} must be a whole number of milliseconds, at least {least}")


def is_bool(_: object, attribute: attrs.Attribute[bool], value: bool) -> None:
    """Validate: True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{attribute.name}={value!r} must be true or false")
