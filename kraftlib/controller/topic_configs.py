"""The configuration of topics: which keys there are, and which values they take (Kafka's LogConfig)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode

VALUE_MAX: Final = 1 << 15
"""Kafka's bound on a config value, in characters."""


def _whole(lowest: int, highest: int = (1 << 63) - 1) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return lowest <= int(text) <= highest
        except ValueError:
            return False

    return check


def _fraction(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def _one_of(*names: str) -> Callable[[str], bool]:
    return lambda text: text in names


def _cleanup_policy(text: str) -> bool:
    return {part.strip() for part in text.split(",") if part.strip()} <= {"compact", "delete"}


def _anything(text: str) -> bool:
    return True


_BOOLEAN: Final = lambda text: text.lower() in ("true", "false")  # noqa: E731 - one of many checks in the table below
_INT: Final = (1 << 31) - 1

CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "cleanup.policy": _cleanup_policy,
    "compression.gzip.level": _whole(-1, 9),
    "compression.lz4.level": _whole(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _whole(-131072, 22),
    "delete.retention.ms": _whole(0),
    "errors.deadletterqueue.group.enable": _BOOLEAN,
    "file.delete.delay.ms": _whole(0),
    "flush.messages": _whole(1),
    "flush.ms": _whole(0),
    "follower.replication.throttled.replicas": _anything,
    "index.interval.bytes": _whole(0, _INT),
    "internal.segment.bytes": _whole(1, _INT),
    "leader.replication.throttled.replicas": _anything,
    "local.retention.bytes": _whole(-2),
    "local.retention.ms": _whole(-2),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _whole(0, _INT),
    "message.timestamp.after.max.ms": _whole(0),
    "message.timestamp.before.max.ms": _whole(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _fraction,
    "min.compaction.lag.ms": _whole(0),
    "min.insync.replicas": _whole(1, _INT),
    "preallocate": _BOOLEAN,
    "remote.copy.disabled": _BOOLEAN,
    "remote.delete.on.disable": _BOOLEAN,
    "remote.storage.enable": _BOOLEAN,
    "retention.bytes": _whole(-1),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(14, _INT),
    "segment.index.bytes": _whole(4, _INT),
    "segment.jitter.ms": _whole(0),
    "segment.ms": _whole(1),
    "unclean.leader.election.enable": _BOOLEAN,
}
"""A check of the value for each key of a topic, of 3.9 to 4.3."""

LISTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
}
"""Keys whose values are lists, to which APPEND and SUBTRACT apply, and their defaults."""


def check_topic_config(key: str, value: str | None) -> None:
    """Raises: RefusedError with INVALID_CONFIG, if a topic has no such key, or if it does not take this value."""
    if key not in CHECKS:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
    if value is None:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
    if len(value) > VALUE_MAX:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"The value of {key} has {len(value)} characters, above {VALUE_MAX}"
        )
    if not CHECKS[key](value.strip()):
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {key}")
