"""Controllers of Kafka and of ours in one quorum: whichever leads, brokers live on, and all write the same metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.interop.clusters import Cluster
from tests.interop.kafka import ACLS, CONFIGS
from tests.interop.lab import Lab
from tests.interop.logs import assert_equal_logs, batches
from tests.interop.test_havoc import Record

MOVES_MAX: Final = 8
COMPARED: Final = 3
OF_KAFKA: Final = {"metadata.log.max.record.bytes.between.snapshots": 1}
"""Controllers of Kafka write a checkpoint after each batch, as ours do with `snapshot_interval_records` 1."""

OF_3_9: Final = "ZK_MIGRATION_STATE_RECORD"
"""A record that checkpoints of 3.9 have, and those of 4.x and ours have not."""


def change(cluster: Cluster, number: int) -> None:
    """Have the active controller write records of all kinds."""
    name = f"topic-{number}"
    cluster.topics("--create", "--topic", name, "--partitions", 2, "--config", "retention.ms=100000")
    cluster.topics("--alter", "--topic", name, "--partitions", 3)
    rule = ("--allow-principal", f"User:user-{number}", "--operation", "Read", "--topic", name)
    cluster.tool(ACLS, "--add", *rule)
    words = ("--entity-type", "users", "--entity-name", f"user-{number}", "--alter", "--add-config")
    cluster.tool(CONFIGS, *words, "producer_byte_rate=1000")
    cluster.tool(CONFIGS, *words, "SCRAM-SHA-256=[password=secret]")
    cluster.produce(name, ["a", "b"])
    if number > 1:
        cluster.topics("--delete", "--topic", f"topic-{number - 1}")
        cluster.tool(ACLS, "--remove", "--force", *rule)


def plain(record: Mapping[str, Any]) -> str:
    """Return a record as a text that can be compared: Kafka has features in the order of a hash map."""
    data = dict(record["data"])
    if "features" in data:
        data["features"] = sorted(data["features"], key=repr)
    return json.dumps({**record, "data": data}, sort_keys=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kafka", [(1,), (1, 2)], ids=["1 of Kafka, 2 of ours", "2 of Kafka, 1 of ours"])
def test_controllers_of_kafka_and_ours_take_turns(lab: Lab, kafka: tuple[int, ...], record_property: Record) -> None:
    """The active controller ends, again and again, while topics come and go; logs and checkpoints are equal."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    cluster = Cluster(
        lab, controllers=3, kafka=kafka, properties=authorizer, of_kafka={**OF_KAFKA, **authorizer},
        snapshot_interval_records=1,
    )  # fmt: skip
    cluster.start_brokers()
    led: list[bool] = []
    """Whether the active controller was Kafka's, in the order of their turns."""
    while not (led.count(True) >= 2 and led.count(False) >= 2):
        assert len(led) < MOVES_MAX, led
        active = cluster.active()
        led.append(active in kafka)
        change(cluster, len(led))
        cluster.caught_up()
        # One of the other kind stands alone and waits for a vote. The third replica gives it, since it has just started
        # and waits for a leader before it stands itself.
        heir = next(number for number in cluster.controllers if (number in kafka) != led[-1])
        (third,) = set(cluster.controllers) - {active, heir}
        cluster.controllers[third].stop()
        cluster.controllers[active].stop()
        cluster.controllers[third].start()
        cluster.active(but=active)
        cluster.controllers[active].start()
        cluster.caught_up()
    record_property("turns of Kafka's controllers", led.count(True))
    record_property("turns of ours", led.count(False))
    names = cluster.topics("--list").out.split()
    assert f"topic-{len(led)}" in names
    assert "topic-1" not in names
    assert cluster.broker.stop() == 143
    assert cluster.broker.complaints() == []
    end = cluster.caught_up()
    for controller in cluster.controllers.values():
        controller.stop()
    partitions = {number: controller.partition for number, controller in cluster.controllers.items()}
    # Whoever comes late begins with a checkpoint.
    begin = max(next(batches(partition)).base_offset for partition in partitions.values())
    record_property("batches", assert_equal_logs(*partitions.values(), start_offset=begin, end_offset=end))

    written = [
        {path.name for path in partition.glob("*.checkpoint") if int(path.name[:20]) > 0}
        for partition in partitions.values()
    ]
    common = sorted(set.intersection(*written))
    record_property("checkpoints with equal names", len(common))
    assert len(common) >= COMPARED
    for name in [*common[:1], *common[-COMPARED + 1 :]]:
        first, *others = (
            sorted(plain(record) for record in cluster.dumped_file(partition / name) if record["type"] != OF_3_9)
            for partition in partitions.values()
        )
        assert len(first) > 0
        for other in others:
            assert other == first, name
