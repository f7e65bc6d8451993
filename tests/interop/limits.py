"""What controllers of older releases do not know of what is drawn, and what they do otherwise than those of 4.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlib.wire.messages.describe_cluster import DescribeClusterRequest


@attrs.frozen(kw_only=True)
class Limits:
    """Of one release."""

    versions: Mapping[type[Any], int] = attrs.field(factory=dict)
    """The newest versions of requests of which it does not have the newest one."""
    has_old_versions: bool = False
    """Whether it has the versions that Kafka 4.0 took away (KIP-896)."""
    last_operation: int = 15
    """The last code of an operation in a rule of access."""
    registers_alike: bool = True
    """Before 4.x a fenced broker that comes back as another process need not wait for the end of its session, and one
    without features is refused with another error."""
    may_unregister: bool = True
    """Whether brokers are unregistered. Before 4.x a controller that is no broker has no configuration."""
    not_asked: frozenset[str] = frozenset()
    """Kinds of requests (names of methods of `Draw`) on which it decides by other rules."""
    not_configured: frozenset[int] = frozenset()
    """Types of resources that it does not know."""
    not_described: frozenset[int] = frozenset()
    """Types of resources of which it names other settings."""
    not_drawn: frozenset[str] = frozenset()
    """Settings for which it has other rules, or values."""
    not_compared: frozenset[str] = frozenset()
    """Settings for which it has another default, or which only one side has."""


LIMITS: Final[Mapping[str, Limits]] = {
    "3.9": Limits(
        versions={BrokerHeartbeatRequest: 1, DescribeClusterRequest: 1},
        has_old_versions=True,
        last_operation=14,
        registers_alike=False,
        may_unregister=False,
        not_asked=frozenset({"reassign", "update_features"}),
        not_configured=frozenset({32}),
        not_described=frozenset({4, 16, 32}),
        not_drawn=frozenset(
            {"internal.segment.bytes", "cordoned.log.dirs", "share.delivery.count.limit", "listeners"}
            | {"delete , compact, delete", "compact, compact"}
        ),
        not_compared=frozenset(
            """message.downconversion.enable message.format.version message.timestamp.difference.max.ms
            message.timestamp.after.max.ms internal.segment.bytes""".split()
        ),
    ),
}
