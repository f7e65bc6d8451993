"""Values of configurations: their types, which text is one, and how Kafka writes it (Kafka's ConfigDef)."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import attrs

Check = Callable[[str], bool]
BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""The characters that Java's `String.trim` cuts off: control characters, and of Unicode's spaces this one alone."""

_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+(?=[fFdD]?$)", re.ASCII
)
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
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
    may_repeat: bool = False
    """Whether a value of a list that comes twice counts twice."""

    def written(self, value: str) -> str:
        """Return a value that it takes as Kafka writes it."""
        text = value.strip(BLANKS)
        if self.kind in (ConfigType.INT, ConfigType.LONG):
            return str(int(text))
        if self.kind is ConfigType.DOUBLE:
            return double_text(number(text))
        if self.kind is ConfigType.LIST:
            return ",".join(parts_of(text) if self.may_repeat else dict.fromkeys(parts_of(text)))
        return text.lower() if self.kind is ConfigType.BOOLEAN else text


def whole(lowest: int, highest: int = LONG_MAX) -> Check:
    """Return a check for numbers of this range, both ends included."""

    def check(text: str) -> bool:
        if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
            return False
        try:
            return lowest <= int(text) <= highest
        except ValueError:  # more digits than Python takes, and than Java's numbers have
            return False

    return check


def number(text: str) -> float:
    """Return the number that Java's `Double.parseDouble` reads. Raises: ValueError, if it reads none."""
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    found = _HEXADECIMAL.match(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is no number")
    return float.fromhex(found[0])


def double_text(value: float) -> str:
    """Return a number as Java's `Double.toString` writes it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest).rstrip('0') or '0'}E{len(rest) + int(exponent)}"


def fraction(text: str) -> bool:
    """Whether this is a number between 0 and 1; Java's NaN is neither below nor above."""
    try:
        return not (number(text) < 0.0 or number(text) > 1.0)
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
    """Return the values of a list, empty ones included; of no text there are none."""
    trimmed = text.strip(BLANKS)
    return _COMMA.split(trimmed) if trimmed else []
