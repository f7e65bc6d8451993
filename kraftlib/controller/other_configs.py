"""Settings of consumer groups (KIP-848, KIP-932, KIP-1071) and of client metrics (KIP-714), as Kafka 4.3 takes them.

Brokers act on them; neither a group nor a subscription need exist. The bounds of a group's settings are the defaults of
the brokers' settings of the same names (`group.consumer.min.session.timeout.ms` and its like).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftlib.controller.config_values import INT_MAX, Check, boolean, one_of, parts_of, whole
from kraftlib.controller.configs import CLIENT_METRICS, GROUP
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode

SESSION, HEARTBEAT, ASSIGNMENT = whole(45_000, 60_000), whole(5_000, 15_000), whole(0, 15_000)
_TIME: Final = r"T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?"
_DURATION: Final = re.compile(rf"by_duration:(?i:P(?=[0-9T])(?:[0-9]{{1,9}}D)?(?:{_TIME})?)")


def _offset_reset(text: str) -> bool:
    return text in ("latest", "earliest") or _DURATION.fullmatch(text) is not None


OF_GROUPS: Final[Mapping[str, Check]] = {
    **{f"{kind}.session.timeout.ms": SESSION for kind in ("consumer", "share", "streams")},
    **{f"{kind}.heartbeat.interval.ms": HEARTBEAT for kind in ("consumer", "share", "streams")},
    **{f"{kind}.assignment.interval.ms": ASSIGNMENT for kind in ("consumer", "share", "streams")},
    "share.record.lock.duration.ms": whole(15_000, 60_000),
    "share.delivery.count.limit": whole(2, 10),
    "share.partition.max.record.locks": whole(100, 4_000),
    "share.auto.offset.reset": _offset_reset,
    "share.isolation.level": one_of("read_committed", "read_uncommitted"),
    "share.renew.acknowledge.enable": boolean,
    "streams.num.standby.replicas": whole(0, 2),
    "streams.initial.rebalance.delay.ms": whole(0, INT_MAX),
}

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
OF_CLIENTS: Final = frozenset(
    "client_instance_id client_id client_software_name client_software_version client_source_address "
    "client_source_port".split()
)
"""The properties of a client that a subscription may match."""

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
        if not whole(-INT_MAX - 1, INT_MAX)(value.strip()):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value[:20]} for configuration {INTERVAL}")
        if not 100 <= int(value) <= 3_600_000:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid value {value[:20]} for {INTERVAL}: 100 to 3600000")
    elif key != METRICS:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key[:40]}")


def _check_group(key: str, value: str) -> None:
    check = OF_GROUPS.get(key)
    if check is None:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key[:40]}")
    if not check(value.strip()):
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value[:40]} for configuration {key}")


def _check_patterns(value: str) -> None:
    """Check `PROPERTY=PATTERN,...`. Patterns are not run here."""
    for part in parts_of(value):
        name, _, pattern = part.partition("=")
        if name.strip() not in OF_CLIENTS or not pattern or "=" in pattern:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part[:40]}")
        try:
            re.compile(pattern.strip())
        except (re.error, OverflowError, RecursionError) as error:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part[:40]}") from error
