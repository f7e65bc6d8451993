"""Values of configurations: their types, which text is one, and how Kafka writes it (Kafka's ConfigDef)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import attrs

Check = Callable[[str], bool]
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1


class ConfigType(enum.IntEnum):
    """A type, by the number that DescribeConfigs gives it."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(enum.IntEnum):
    """Where a value comes from, by the number that answers give it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


@attrs.frozen
class Setting:
    """One key: its type, its default as Kafka writes it, and which values it takes."""

    kind: ConfigType
    default: str
    check: Check
    synonyms: tuple[tuple[str, int], ...] = ()
    """The settings of brokers that stand in for it, and the factors of their values."""
    fallback: tuple[str, str] | None = None
    """The last of these with its default, where it is another one than the first."""

    def written(self, value: str) -> str:
        """Return a value that it takes as Kafka writes it."""
        text = value.strip()
        if self.kind in (ConfigType.INT, ConfigType.LONG):
            return str(int(text))
        if self.kind is ConfigType.DOUBLE:
            return str(float(text))
        if self.kind is ConfigType.LIST:
            return ",".join(parts_of(text))
        return text.lower() if self.kind is ConfigType.BOOLEAN else text


def whole(lowest: int, highest: int = LONG_MAX) -> Check:
    """Return a check for numbers of this range, both ends included."""

    def check(text: str) -> bool:
        try:
            return lowest <= int(text) <= highest
        except ValueError:
            return False

    return check


def fraction(text: str) -> bool:
    """Whether this is a number between 0 and 1."""
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def boolean(text: str) -> bool:
    """Whether this is true or false."""
    return text.lower() in ("true", "false")


def one_of(*names: str) -> Check:
    """Return a check for these words."""
    return lambda text: text in names


def anything(text: str) -> bool:
    """Whether this is text."""
    return True


def parts_of(text: str) -> list[str]:
    """Return the values of a list."""
    return [part.strip() for part in text.split(",") if part.strip()]
