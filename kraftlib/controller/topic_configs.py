"""The configuration of topics: its keys, their possible values, and the values in force (Kafka's LogConfig).

A key that a topic does not set has the value of a setting of brokers: of the node that is asked, of all brokers, or
the default of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kraftlib.controller.config_values import (
    BLANKS,
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Setting,
    Source,
    boolean,
    fraction,
    one_of,
    parts_of,
    whole,
)
from kraftlib.controller.configs import BROKER, Configs
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode

VALUE_MAX: Final = (1 << 15) - 1
"""Kafka's bound on a config value; no string in the log has more bytes."""

HOUR_MS: Final = 3_600_000
MIN_IN_SYNC: Final = "min.insync.replicas"
MIN_LAG: Final = "min.compaction.lag.ms"
MAX_LAG: Final = "max.compaction.lag.ms"
REMOTE: Final = "remote.storage.enable"


_THROTTLED: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _cleanup_policy(text: str) -> bool:
    return {*parts_of(text)} <= {"compact", "delete"}


def _throttled(text: str) -> bool:
    """Whether these are `PARTITION:BROKER,...`, or all replicas."""
    parts = parts_of(text)
    return "".join(parts) == "*" or all(map(_THROTTLED.fullmatch, parts))


def _gzip_level(text: str) -> bool:
    return whole(1, 9)(text) or whole(-1, -1)(text)


def _int(default: int, lowest: int, broker: str = "", *, highest: int = INT_MAX) -> Setting:
    return Setting(ConfigType.INT, str(default), whole(lowest, highest), ((broker, 1),) if broker else ())


def _long(default: int, lowest: int, *brokers: tuple[str, int], fallback: tuple[str, str] | None = None) -> Setting:
    return Setting(ConfigType.LONG, str(default), whole(lowest), brokers, fallback)


def _flag(broker: str = "") -> Setting:
    return Setting(ConfigType.BOOLEAN, "false", boolean, ((broker, 1),) if broker else ())


def _word(default: str, broker: str, *names: str) -> Setting:
    return Setting(ConfigType.STRING, default, one_of(*names), ((broker, 1),))


SETTINGS: Final[Mapping[str, Setting]] = {
    "cleanup.policy": Setting(ConfigType.LIST, "delete", _cleanup_policy, (("log.cleanup.policy", 1),)),
    "compression.gzip.level": Setting(ConfigType.INT, "-1", _gzip_level, (("compression.gzip.level", 1),)),
    "compression.lz4.level": _int(9, 1, "compression.lz4.level", highest=17),
    "compression.type": _word(
        "producer", "compression.type", "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"
    ),
    "compression.zstd.level": _int(3, -131072, "compression.zstd.level", highest=22),
    "delete.retention.ms": _long(24 * HOUR_MS, 0, ("log.cleaner.delete.retention.ms", 1)),
    "file.delete.delay.ms": _long(60_000, 0, ("log.segment.delete.delay.ms", 1)),
    "flush.messages": _long(LONG_MAX, 1, ("log.flush.interval.messages", 1)),
    "flush.ms": _long(
        LONG_MAX, 0, ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1),
        fallback=("log.flush.scheduler.interval.ms", str(LONG_MAX)),
    ),
    "follower.replication.throttled.replicas": Setting(ConfigType.LIST, "", _throttled, may_repeat=True),
    "index.interval.bytes": _int(4096, 0, "log.index.interval.bytes"),
    "internal.segment.bytes": _int(0, -INT_MAX - 1),
    "leader.replication.throttled.replicas": Setting(ConfigType.LIST, "", _throttled, may_repeat=True),
    "local.retention.bytes": _long(-2, -2, ("log.local.retention.bytes", 1)),
    "local.retention.ms": _long(-2, -2, ("log.local.retention.ms", 1)),
    MAX_LAG: _long(LONG_MAX, 1, ("log.cleaner.max.compaction.lag.ms", 1)),
    "max.message.bytes": _int(1_048_588, 0, "message.max.bytes"),
    "message.timestamp.after.max.ms": _long(HOUR_MS, 0, ("log.message.timestamp.after.max.ms", 1)),
    "message.timestamp.before.max.ms": _long(LONG_MAX, 0, ("log.message.timestamp.before.max.ms", 1)),
    "message.timestamp.type": _word("CreateTime", "log.message.timestamp.type", "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": Setting(
        ConfigType.DOUBLE, "0.5", fraction, (("log.cleaner.min.cleanable.ratio", 1),)
    ),
    MIN_LAG: _long(0, 0, ("log.cleaner.min.compaction.lag.ms", 1)),
    MIN_IN_SYNC: _int(1, 1, MIN_IN_SYNC),
    "preallocate": _flag("log.preallocate"),
    "remote.log.copy.disable": _flag(),
    "remote.log.delete.on.disable": _flag(),
    REMOTE: _flag(),
    "retention.bytes": _long(-1, -LONG_MAX - 1, ("log.retention.bytes", 1)),
    "retention.ms": _long(
        168 * HOUR_MS, -1, ("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS),
        fallback=("log.retention.hours", "168"),
    ),
    "segment.bytes": _int(1 << 30, 1 << 20, "log.segment.bytes"),
    "segment.index.bytes": _int(10 << 20, 4, "log.index.size.max.bytes"),
    "segment.jitter.ms": _long(
        0, 0, ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS), fallback=("log.roll.jitter.hours", "0")
    ),
    "segment.ms": _long(
        168 * HOUR_MS, 1, ("log.roll.ms", 1), ("log.roll.hours", HOUR_MS), fallback=("log.roll.hours", "168")
    ),
    "unclean.leader.election.enable": _flag("unclean.leader.election.enable"),
}  # fmt: skip
"""Every key of a topic in 4.3."""

HIDDEN: Final = frozenset({"internal.segment.bytes"})
"""Keys that an answer names only where a topic sets them."""


def check_topic_config(key: str, value: str) -> None:
    """Raises: RefusedError with INVALID_CONFIG, if a topic has no such key, or if it does not take this value."""
    if key not in SETTINGS:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
    if len(value) > VALUE_MAX:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"The value of {key} has {len(value)} characters, above {VALUE_MAX}"
        )
    if not SETTINGS[key].check(value.strip(BLANKS)):
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {key}")


def check_together(
    configs: Configs, values: Mapping[str, str], *, node_id: int, has_remote_storage: bool = False
) -> None:
    """Raises: RefusedError with INVALID_CONFIG, if a topic cannot have all of these values, each of which it takes."""
    if REMOTE in values and SETTINGS[REMOTE].written(values[REMOTE]) == "true" and not has_remote_storage:
        text = "Tiered storage is disabled: topics cannot be configured with remote log storage."
        raise RefusedError(ErrorCode.INVALID_CONFIG, text)
    if not values.keys() & {MIN_LAG, MAX_LAG}:
        return
    lowest, highest = (int(in_force(configs, values, key, node_id=node_id)[0]) for key in (MIN_LAG, MAX_LAG))
    if lowest > highest:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{MIN_LAG} is above {MAX_LAG}: {lowest} > {highest}")


def in_force(configs: Configs, topic: Mapping[str, str], key: str, *, node_id: int) -> tuple[str, Source]:
    """Return the value of a key for a topic that sets `topic`, as the node with this id knows it, and its source."""
    setting = SETTINGS[key]
    if key in topic:
        return setting.written(topic[key]), Source.TOPIC
    found = configs.in_general.get((key, node_id))
    if found is None:
        of_broker = ((value, source) for _, _, value, source in of_brokers(configs, setting, node_id=node_id))
        found = configs.in_general[key, node_id] = next(of_broker, (setting.default, Source.DEFAULT))
    return found


def as_given(configs: Configs, key: str, *, node_id: int) -> tuple[str, Source]:
    """Return the value of a key for a topic that does not set it, as it was given, and its source."""
    value, source = in_force(configs, {}, key, node_id=node_id)
    if source is not Source.DEFAULT:
        _, value, _, source = next(of_brokers(configs, SETTINGS[key], node_id=node_id))
    return value, source


def of_brokers(configs: Configs, setting: Setting, *, node_id: int) -> Iterator[tuple[str, str, str, Source]]:
    """Yield what brokers have in place of a key, the strongest first: name, value as given, value as read, source.

    Both values are in the unit of the topic. A value that no broker would take has no effect.
    """
    for resource, source in ((str(node_id), Source.DYNAMIC_BROKER), ("", Source.DYNAMIC_DEFAULT_BROKER)):
        values = configs.of(BROKER, resource)
        for name, factor in setting.synonyms:
            given = values.get(name, "")
            text = given.strip(BLANKS)
            if name in values and setting.check(text):
                value = str(int(text) * factor) if factor > 1 else setting.written(text)
                yield name, value if factor > 1 else given, value, source
