"""Settings of consumer groups (KIP-848, KIP-932, KIP-1071) and of client metrics (KIP-714), as Kafka 4.3 takes them.

Brokers act on them; neither a group nor a subscription need exist. The bounds of a group's settings are the defaults of
the brokers' settings of the same names (`group.consumer.min.session.timeout.ms` and its like).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftlib.controller.config_values import (
    BLANKS,
    INT_MAX,
    Check,
    ConfigType,
    Setting,
    anything,
    boolean,
    one_of,
    parts_of,
    whole,
)
from kraftlib.controller.configs import CLIENT_METRICS, GROUP
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode

_TIME: Final = r"T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?"
_DURATION: Final = re.compile(rf"by_duration:(?i:P(?=[0-9T])(?:[0-9]{{1,9}}D)?(?:{_TIME})?)")


def _offset_reset(text: str) -> bool:
    return text in ("latest", "earliest") or _DURATION.fullmatch(text) is not None


def _number(default: int, lowest: int, highest: int) -> tuple[ConfigType, str, Check]:
    return ConfigType.INT, str(default), whole(lowest, highest)


_KINDS: Final = ("consumer", "share", "streams")
OF_GROUPS: Final[Mapping[str, Setting]] = {
    key: Setting(*what, synonyms=((key if what[0] is not ConfigType.INT else f"group.{key}", 1),))
    for key, what in {
        **{f"{kind}.session.timeout.ms": _number(45_000, 45_000, 60_000) for kind in _KINDS},
        **{f"{kind}.heartbeat.interval.ms": _number(5_000, 5_000, 15_000) for kind in _KINDS},
        **{f"{kind}.assignment.interval.ms": _number(1_000, 0, 15_000) for kind in _KINDS},
        "share.record.lock.duration.ms": _number(30_000, 15_000, 60_000),
        "share.delivery.count.limit": _number(5, 2, 10),
        "share.partition.max.record.locks": _number(2_000, 100, 4_000),
        "share.auto.offset.reset": (ConfigType.STRING, "latest", _offset_reset),
        "share.isolation.level": (
            ConfigType.STRING,
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
        ),
        "share.renew.acknowledge.enable": (ConfigType.BOOLEAN, "true", boolean),
        "streams.num.standby.replicas": _number(0, 0, 2),
        "streams.initial.rebalance.delay.ms": _number(3_000, 0, INT_MAX),
    }.items()
}
"""The settings of groups. Those of brokers that stand in for them have their defaults."""

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
OF_CLIENTS: Final = frozenset(
    "client_instance_id client_id client_software_name client_software_version client_source_address "
    "client_source_port".split()
)
"""The properties of a client that a subscription may match."""

OF_METRICS: Final[Mapping[str, Setting]] = {
    INTERVAL: Setting(ConfigType.INT, "300000", whole(100, 3_600_000)),
    MATCH: Setting(ConfigType.LIST, "", anything),
    METRICS: Setting(ConfigType.LIST, "", anything),
}
"""The settings of client metrics, as DescribeConfigs names them."""

WORDS: Final = {GROUP: "group", CLIENT_METRICS: "client metrics"}


def check_other_name(kind: int, name: str) -> None:
    """Raises: RefusedError with INVALID_REQUEST for an empty name: there are no settings for all of them."""
    if not name:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Default {WORDS[kind]} resources are not allowed.")


def check_other_config(kind: int, key: str, value: str) -> None:
    """Raises: RefusedError, if Kafka would not take this value of a group or of client metrics."""
    if kind == GROUP:
        _check_group(key, value)
    elif key == MATCH:
        _check_patterns(value)
    elif key == INTERVAL:
        if not whole(-INT_MAX - 1, INT_MAX)(value.strip(BLANKS)):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value[:20]} for configuration {INTERVAL}")
        if not 100 <= int(value.strip(BLANKS)) <= 3_600_000:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid value {value[:20]} for {INTERVAL}: 100 to 3600000")
    elif key != METRICS:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key[:40]}")


def _check_group(key: str, value: str) -> None:
    setting = OF_GROUPS.get(key)
    if setting is None:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key[:40]}")
    if not setting.check(value.strip(BLANKS)):
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value[:40]} for configuration {key}")


def _check_patterns(value: str) -> None:
    """Check `PROPERTY=PATTERN,...`. Patterns are not run here."""
    for part in parts_of(value):
        if not part:
            continue
        name, _, pattern = part.partition("=")
        if name.strip(BLANKS) not in OF_CLIENTS or not pattern or "=" in pattern:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part[:40]}")
        try:
            re.compile(pattern.strip(BLANKS))
        except (re.error, OverflowError, RecursionError) as error:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part[:40]}") from error
