"""Brokers that the network cuts off, from controllers or from other brokers: nothing is lost, and they come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop.clusters import FIRST_BROKER, Cluster
from tests.interop.kafka import KafkaNode
from tests.interop.lab import Lab
from tests.interop.network import NAME, Network
from tests.interop.processes import wait_for
from tests.interop.test_broker_losses import (
    SESSION_MS,
    Partitions,
    come_back,
    end_alike,
    is_out,
    is_whole,
    led_by,
    metadata,
    partitions,
)
from tests.interop.test_havoc import Record
from tests.interop.traffic import Traffic

LAG_MS = 3_000
"""A replica that has fetched nothing for so long leaves the ISR."""

IDEMPOTENT = "plain"
"""The producer that goes on meanwhile. The other one may ask the broker that is cut off who coordinates transactions,
and be told, as long as that broker does not know better, that it does so itself."""

CONTROLLERS = (1, 2, 3)
BROKERS = tuple(range(FIRST_BROKER, FIRST_BROKER + 3))


@contextmanager
def comes_back(cluster: Cluster, node: KafkaNode) -> Iterator[None]:
    """See that a broker that leads something is out in the end of this block, and back after it in the same epoch."""
    before = metadata(cluster)
    lost = led_by(before, node)
    assert lost, f"broker {node.node_id} leads nothing"
    yield
    after = come_back(cluster, node, lost)
    assert after.cluster.brokers[node.node_id].broker_epoch == before.cluster.brokers[node.node_id].broker_epoch


def cut_from_controllers(cluster: Cluster, network: Network, traffic: Traffic, node: KafkaNode) -> None:
    """It is fenced, and others lead. It does not know of that, and other brokers and clients reach it all the time."""
    with comes_back(cluster, node):
        network.cut(node, *CONTROLLERS)
        wait_for("the broker to be fenced", lambda: is_out(metadata(cluster), node), every_s=0.2)
        traffic.wait_for_more(IDEMPOTENT)
        network.mend(node, *CONTROLLERS)
    traffic.wait_for_more()


def cut_from_the_active_one(cluster: Cluster, network: Network, traffic: Traffic, node: KafkaNode) -> None:
    """It is fenced although it reaches the other controllers; one of these becomes active, and takes it back."""
    with comes_back(cluster, node):
        active = cluster.active()
        network.cut(node, active)
        wait_for("the broker to be fenced", lambda: is_out(metadata(cluster), node), every_s=0.2)
        traffic.wait_for_more(IDEMPOTENT)
        cluster.controllers[active].kill()
        cluster.active(but=active)
        wait_for("the broker to be back", lambda: is_whole(metadata(cluster)), every_s=0.2)
        network.mend(node, active)
        cluster.controllers[active].start()
        cluster.caught_up()
    traffic.wait_for_more()


def cut_from_brokers(cluster: Cluster, network: Network, traffic: Traffic, node: KafkaNode) -> None:
    """It leads on alone in its ISR, where nothing is acknowledged, and is in no other one; nobody is fenced.

    That is so where records come: a follower that has all there is stays in the ISR.
    """

    def written() -> Partitions:
        return {place: one for place, one in partitions(metadata(cluster)).items() if place[0] == "plain"}

    before = written()
    led = {place for place, one in before.items() if one.leader == node.node_id}
    assert led
    assert led < before.keys()
    network.cut(node, *BROKERS)
    wait_for(
        "ISRs without each other",
        lambda: all(
            one.isr == (node.node_id,) if place in led else node.node_id not in one.isr
            for place, one in written().items()
        ),
        every_s=0.2,
    )
    assert not any(broker.fenced for broker in metadata(cluster).cluster.brokers.values())
    network.mend(node, *BROKERS)
    wait_for("all replicas in sync", lambda: is_whole(metadata(cluster)), every_s=0.2)
    for place, one in written().items():
        assert (one.leader, one.leader_epoch) == (before[place].leader, before[place].leader_epoch)
        assert one.partition_epoch >= before[place].partition_epoch + 2  # the ISR has shrunk, and grown again
    traffic.wait_for_more()


def cut_from_all(cluster: Cluster, network: Network, traffic: Traffic, node: KafkaNode) -> None:
    """It is fenced, and asks for changes of ISRs that arrive when others have led for long."""
    with comes_back(cluster, node):
        network.cut(node, *CONTROLLERS, *BROKERS)
        wait_for("the broker to be fenced", lambda: is_out(metadata(cluster), node), every_s=0.2)
        traffic.wait_for_more(IDEMPOTENT)
        network.mend(node, *CONTROLLERS, *BROKERS)
    traffic.wait_for_more()


@pytest.mark.parametrize("whose", ["ours", pytest.param("Kafka's", marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_while_the_network_cuts_brokers_off(
    lab: Lab, whose: str, record_property: Record
) -> None:
    """From all controllers, from the active one, from the other brokers, from everybody: fenced, and in sync again."""
    cluster = Cluster(
        lab, controllers=len(CONTROLLERS), brokers=len(BROKERS), kafka=CONTROLLERS if whose == "Kafka's" else (),
        properties={"broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": LAG_MS},
        of_kafka={"broker.session.timeout.ms": SESSION_MS}, words=("--broker-session-timeout-ms", str(SESSION_MS)),
        host=NAME,
    )  # fmt: skip
    network = Network(cluster)
    try:
        cluster.start_brokers()
        first, second, third = cluster.brokers
        with Traffic(cluster) as traffic:
            cut_from_controllers(cluster, network, traffic, first)
            cut_from_the_active_one(cluster, network, traffic, second)
            cut_from_brokers(cluster, network, traffic, third)
            cut_from_all(cluster, network, traffic, first)
        end_alike(cluster, traffic, record_property)
    finally:
        network.close()
