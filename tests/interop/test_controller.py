"""Brokers of Kafka on metadata controllers of ours: `kraftlib controller run`, as an operator starts it."""

from __future__ import annotations

import pytest

from tests.interop.clusters import Cluster
from tests.interop.kafka import TOPICS, VERSIONS
from tests.interop.lab import Lab
from tests.interop.processes import wait_for


@pytest.mark.each_release
def test_a_broker_lives_on_one_controller_from_registration_to_controlled_shutdown(lab: Lab) -> None:
    """Also `kafka-topics`, the consoles and the group's own topic; the broker sees nothing to warn of."""
    cluster = Cluster(lab, controllers=1)
    cluster.broker.start()
    cluster.broker.wait_started()

    cluster.topics("--create", "--topic", "orders", "--partitions", 3, "--config", "retention.ms=100000")
    cluster.produce("orders", ["a", "b", "c"])
    assert sorted(cluster.consume("orders", 3)) == ["a", "b", "c"]
    shown = cluster.topics("--describe", "--topic", "orders").out
    assert "PartitionCount: 3" in shown
    assert "retention.ms=100000" in shown
    assert shown.count("Leader: 10") == 3

    cluster.topics("--alter", "--topic", "orders", "--partitions", 4)
    cluster.configure("topics", "orders", "retention.ms=200000")
    described = ("--describe", "--topic", "orders")
    cluster.wait_shown({"PartitionCount: 4", "retention.ms=200000"}, TOPICS, *described)
    cluster.topics("--create", "--topic", "short-lived")
    cluster.topics("--delete", "--topic", "short-lived")
    wait_for("the end of a topic", lambda: "short-lived" not in cluster.topics("--list").out.split())

    # A broker offers its clients no version that its controller does not serve; those of 4.x have no older ones.
    first = 2 if lab.release.is_modern else 0
    assert f"CreateTopics(19): {first} to 7" in cluster.tool(VERSIONS).out
    assert cluster.broker.stop() == 143
    # A broker says so of each partition by which a topic grows, whoever its controller is.
    usual = "Expected partition orders-3 with topic id"
    assert [line for line in cluster.broker.warnings() if usual not in line] == []
    cluster.controllers[1].stop()
    records = cluster.dumped(1)
    names = [record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"]
    assert names == ["orders", "__consumer_offsets", "short-lived"]
    assert [record["type"] for record in records].count("REMOVE_TOPIC_RECORD") == 1
    changes = [record["data"] for record in records if record["type"] == "BROKER_REGISTRATION_CHANGE_RECORD"]
    steps = [change.get("fenced", 0) or 2 * change.get("inControlledShutdown", 0) for change in changes]
    assert [step for step in steps if step] == [-1, 2, 1]  # unfenced, in controlled shutdown, fenced
