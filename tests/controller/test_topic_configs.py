from __future__ import annotations

import pytest

from kraftlib.controller.results import RefusedError
from kraftlib.controller.topic_configs import VALUE_MAX, check_topic_config

GOOD = {
    "cleanup.policy": ["compact", "delete", "compact,delete", "compact, delete", ""],
    "leader.replication.throttled.replicas": ["", "*", "*,", "0:1,1:2", "0:1,"],
    "retention.bytes": ["-5"],
    "internal.segment.bytes": ["-1"],
    "compression.type": ["producer", "zstd"],
    "min.cleanable.dirty.ratio": ["0.5", "1"],
    "preallocate": ["true", "False"],
    "retention.ms": ["-1", "604800000"],
    "min.insync.replicas": ["1"],
    "compression.gzip.level": ["-1", "9"],
}
BAD = {
    "cleanup.policy": ["compress", "compact,", ",compact", "compact,,delete"],
    "follower.replication.throttled.replicas": ["0", "0:x", "*,0:1", "0:1:2"],
    "segment.bytes": ["1048575"],
    "compression.type": ["rar", "ZSTD"],
    "min.cleanable.dirty.ratio": ["1.1", "half"],
    "preallocate": ["yes"],
    "retention.ms": ["-2", "1.5", str(1 << 63)],
    "min.insync.replicas": ["0"],
    "compression.gzip.level": ["10", "0"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GOOD.items() for value in values])
def test_a_value_that_kafka_takes_is_taken(key: str, value: str) -> None:
    check_topic_config(key, value)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_a_value_that_kafka_refuses_is_refused(key: str, value: str) -> None:
    with pytest.raises(RefusedError, match=key):
        check_topic_config(key, value)


def test_the_length_of_a_value_is_bounded() -> None:
    key = "leader.replication.throttled.replicas"
    check_topic_config(key, "0:1," * (VALUE_MAX // 4))
    with pytest.raises(RefusedError, match="32768"):
        check_topic_config(key, "0:1," * (VALUE_MAX // 4 + 1))
