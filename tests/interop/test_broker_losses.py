"""Brokers that are paused, and one whose disk is lost, on controllers of ours: they come back as on Kafka's."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

import pytest

from kraftlib.controller import ClusterState
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.storage.meta_properties import read_meta_properties
from tests.interop.asked import Asked
from tests.interop.clusters import Cluster
from tests.interop.kafka import ELECTION, KafkaNode
from tests.interop.lab import Lab
from tests.interop.logs import assert_equal_logs
from tests.interop.processes import wait_for
from tests.interop.test_havoc import Record
from tests.interop.traffic import PARTITIONS, Traffic

SESSION_MS: Final = 3_000

Partitions = Mapping[tuple[str, int], PartitionRecord]


def metadata(cluster: Cluster) -> ClusterState:
    """Return the metadata as the active controller has written it; no broker is asked, since one may be paused."""
    with closing(Asked(cluster.controllers[cluster.active()].endpoint, cluster.lab.cluster_id)) as asked:
        asked.written()
        return asked.state


def partitions(state: ClusterState) -> Partitions:
    """Return all partitions, by topic and number."""
    topics = state.topics
    return {(topics.topics[id_].name, number): topics.partitions[id_, number] for id_, number in topics.partitions}


def led_by(state: ClusterState, node: KafkaNode) -> Partitions:
    """Return what a broker leads."""
    return {place: one for place, one in partitions(state).items() if one.leader == node.node_id}


def is_out(state: ClusterState, node: KafkaNode) -> bool:
    """Whether a broker is fenced, leads nothing, and is in no ISR."""
    all_of_them = partitions(state).values()
    return state.cluster.brokers[node.node_id].fenced and not any(
        node.node_id in (one.leader, *one.isr) for one in all_of_them
    )


def is_whole(state: ClusterState) -> bool:
    """Whether no broker is fenced, and each replica is in sync."""
    in_sync = all(sorted(one.isr) == sorted(one.replicas) for one in partitions(state).values())
    return in_sync and not any(broker.fenced for broker in state.cluster.brokers.values())


def come_back(cluster: Cluster, node: KafkaNode, lost: Partitions) -> ClusterState:
    """Wait until a broker is in sync again; let it lead what it has lost, which others have led meanwhile."""
    wait_for("all replicas in sync", lambda: is_whole(metadata(cluster)), every_s=0.2)
    now = partitions(metadata(cluster))
    for place, before in lost.items():
        assert now[place].leader_epoch > before.leader_epoch
        assert now[place].leader != node.node_id
    cluster.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    wait_for("its leaderships", lambda: led_by(metadata(cluster), node).keys() >= lost.keys(), every_s=0.2)
    return metadata(cluster)


def pause(cluster: Cluster, traffic: Traffic, node: KafkaNode, *, kill_controller: bool) -> None:
    """SIGSTOP, and SIGCONT once it is fenced: the same process has the same broker epoch."""
    before = metadata(cluster)
    lost = led_by(before, node)
    assert lost, f"broker {node.node_id} leads nothing"
    node.signal(signal.SIGSTOP)
    killed = cluster.active()
    if kill_controller:  # the next one has heard nothing from anybody, and must fence this broker all the same
        cluster.controllers[killed].kill()
        cluster.active(but=killed)
        cluster.controllers[killed].start()
    wait_for("the broker to be fenced", lambda: is_out(metadata(cluster), node), every_s=0.2)
    traffic.wait_for_more()
    node.signal(signal.SIGCONT)
    after = come_back(cluster, node, lost)
    assert after.cluster.brokers[node.node_id].broker_epoch == before.cluster.brokers[node.node_id].broker_epoch
    traffic.wait_for_more()


def wipe(cluster: Cluster, traffic: Traffic, node: KafkaNode) -> None:
    """kill -9, an empty disk that is formatted with the same id, and a start: a new epoch, and all records again."""
    before = metadata(cluster)
    lost = led_by(before, node)
    assert lost, f"broker {node.node_id} leads nothing"
    node.kill()
    shutil.rmtree(node.directory)
    node.format(cluster.lab.cluster_id)
    node.start()
    node.wait_started()
    after = come_back(cluster, node, lost)
    assert after.cluster.brokers[node.node_id].broker_epoch > before.cluster.brokers[node.node_id].broker_epoch
    meta = read_meta_properties(node.directory)
    assert meta is not None
    assert set(places_on(after, node)) == {meta.directory_id}
    traffic.wait_for_more()


def places_on(state: ClusterState, node: KafkaNode) -> Iterator[object]:
    """Yield the directory of each replica of a broker."""
    for one in partitions(state).values():
        yield from (place for id_, place in zip(one.replicas, one.directories, strict=True) if id_ == node.node_id)


@pytest.mark.parametrize("whose", ["ours", pytest.param("Kafka's", marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_while_brokers_are_paused_and_one_is_wiped(
    lab: Lab, whose: str, record_property: Record
) -> None:
    """A broker is paused, another one as the active controller is killed, a third is wiped: all are in sync after."""
    cluster = Cluster(
        lab, controllers=3, brokers=3, kafka=(1, 2, 3) if whose == "Kafka's" else (),
        properties={"broker.heartbeat.interval.ms": 500}, of_kafka={"broker.session.timeout.ms": SESSION_MS},
        words=("--broker-session-timeout-ms", str(SESSION_MS)),
    )  # fmt: skip
    cluster.start_brokers()
    first, second, third = cluster.brokers
    with Traffic(cluster) as traffic:
        pause(cluster, traffic, first, kill_controller=False)
        pause(cluster, traffic, second, kill_controller=True)
        wipe(cluster, traffic, third)
    end_alike(cluster, traffic, record_property)


def end_alike(cluster: Cluster, traffic: Traffic, record_property: Record) -> None:
    """Nothing acknowledged is lost; the brokers end without a complaint, and have equal logs."""
    for name, count in traffic.check().items():
        record_property(name, count)
    record_property("slowest acknowledgement, ms", traffic.slowest_ms("plain"))
    for node in cluster.brokers:
        assert node.stop() == 143
        assert node.complaints() == []
    for number in range(PARTITIONS["plain"]):
        assert_equal_logs(*(node.directory / f"plain-{number}" for node in cluster.brokers), end_offset=sys.maxsize)
