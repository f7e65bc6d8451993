"""All controllers of Kafka under running brokers, replaced one by one by controllers of ours, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.interop.clusters import Cluster
from tests.interop.lab import Lab
from tests.interop.logs import assert_equal_logs
from tests.interop.test_brokers import GONE, unusual, usual
from tests.interop.test_havoc import Record
from tests.interop.traffic import Traffic

KAFKAS: Final = (1, 2, 3)
REPLACED: Final = ((1, 4), (2, 5), (3, 6))
BACK: Final = ((4, 7), (5, 8), (6, 9))


def replace(cluster: Cluster, traffic: Traffic, old: int, new: int, *, kafka: bool) -> tuple[Path, int]:
    """Replace a voter by a new one while topics are created; return the old one's log, and what it surely has."""
    cluster.join(new, kafka=kafka)
    cluster.topics("--create", "--topic", f"topic-{new}", "--partitions", 2, "--replication-factor", 3)
    end = cluster.caught_up()
    partition = cluster.controllers[old].partition
    cluster.leave(old)
    assert cluster.active(but=old) in cluster.controllers
    cluster.topics("--alter", "--topic", f"topic-{new}", "--partitions", 3)
    traffic.wait_for_more()
    return partition, end


@pytest.mark.slow
@pytest.mark.parametrize("by", ["ours", "Kafka's"])
def test_all_controllers_are_replaced_one_by_one_and_back(lab: Lab, by: str, record_property: Record) -> None:
    """`add-controller`, `remove-controller` under two producers: brokers notice nothing, and all logs are equal."""
    cluster = Cluster(lab, controllers=3, kafka=KAFKAS, brokers=3, spares=6)
    cluster.start_brokers()
    logs: list[tuple[Path, int]] = []
    with Traffic(cluster) as traffic:
        for number, (old, new) in enumerate(REPLACED + BACK, start=1):
            logs.append(replace(cluster, traffic, old, new, kafka=by != "ours" or number > len(REPLACED)))
            if number == len(REPLACED):
                assert cluster.controllers.keys() == {4, 5, 6}
                cluster.wait_in_sync()
    for name, count in traffic.check().items():
        record_property(name, count)
    record_property("slowest acknowledgement, ms", traffic.slowest_ms("plain"))
    names = set(cluster.topics("--list").out.split())
    assert names >= {f"topic-{new}" for _, new in REPLACED + BACK}
    cluster.wait_in_sync()
    assert [line for node in cluster.brokers for line in unusual(node, GONE)] == []
    record_property("usual warnings", usual(cluster))
    for node in cluster.brokers:
        assert node.stop() == 143
        assert node.complaints() == []
    end = cluster.caught_up()
    for controller in cluster.controllers.values():
        controller.stop()
    last, *others = (controller.partition for controller in cluster.controllers.values())
    record_property("batches", assert_equal_logs(last, *others, end_offset=end))
    for partition, end in logs:
        assert_equal_logs(last, partition, end_offset=end)
