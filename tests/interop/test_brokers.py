"""Three brokers of Kafka on three controllers of ours: what Kafka ships lives on it, and what is killed is no loss."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from tests.interop.clusters import FIRST_BROKER, Cluster
from tests.interop.kafka import (
    ACLS,
    CLUSTER,
    CONFIGS,
    CONSUMER,
    COPIER,
    ELECTION,
    FEATURES,
    GROUPS,
    LOG_DIRS,
    PERFORMANCE,
    QUORUM,
    REASSIGN,
    SHARE_CONSUMER,
    SHARE_GROUPS,
    TOPICS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    VERSIONS,
    KafkaNode,
)
from tests.interop.lab import Lab
from tests.interop.logs import assert_equal_logs
from tests.interop.processes import wait_for
from tests.interop.test_havoc import Record
from tests.interop.traffic import Traffic

KILLS: Final = int(os.environ.get("KRAFTLIB_KILLS", "3"))
"""How often the active controller is killed. Some hours of it: `KRAFTLIB_KILLS=1000`."""

USUAL: Final[Mapping[str, str]] = {
    "a partition is new there": r"Expected partition \S+ with topic id \S+ to exist, but it was missing",
    "two brokers want one topic": r"Auto topic creation failed for __\S+ .*'TOPIC_ALREADY_EXISTS'",
    "a topic is not known there yet": r"ReplicaFetcher .* Received UNKNOWN_TOPIC_\S+ .* returned transiently",
    "an epoch is not known there yet": r"ReplicaFetcher .* Partition \S+ marked as failed",
    "a broker has stopped": r"ReplicaFetcher .*(Error in response for fetch|Connection to node 1\d .* could not)",
    "a new leader knows of less that is committed": "Non-monotonic update of high watermark",
    "a batch comes before another one, or too late": r"Error processing append operation on partition",
}
"""What brokers say at WARN and above on controllers of Kafka as well, now and then: it is up to what comes first."""

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


GONE: Final = r"Connection to node \S+ .* could not be established"
"""What a broker says of controllers and brokers that have been stopped."""


def unusual(broker: KafkaNode, *also: str) -> list[str]:
    """Return the warnings and errors of a broker that one on a controller of Kafka does not have; `also` are usual."""
    texts = (*USUAL.values(), *also)
    return [line for line in broker.warnings() if not any(re.search(text, line) for text in texts)]


def usual(cluster: Cluster) -> str:
    """Return which of the usual warnings the brokers of a cluster have had."""
    lines = [line for node in cluster.brokers for line in node.warnings()]
    return ", ".join(name for name, text in USUAL.items() if any(re.search(text, line) for line in lines)) or "none"


def counted(text: str, name: str) -> int:
    """Return how many records a verifiable client has sent or taken, in its events of this name."""
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    mine = [event for event in events if event["name"] == name]
    return sum(sum(part["count"] for part in event["partitions"]) if "partitions" in event else 1 for event in mine)


def clients(cluster: Cluster) -> None:
    """Producers and consumers of all kinds."""
    release, run = cluster.lab.release, cluster.lab.tools.run
    words = ["--bootstrap-server", cluster.bootstrap, "--topic", "orders", "--max-messages", 300]
    words += ["--repeating-keys", 30]  # else all of them may go to one partition
    made = release.tool(VERIFIABLE_PRODUCER, *words).ok().out  # what it says, it says as its process ends
    assert counted(made, "producer_send_success") == 300
    protocols = ["classic", "consumer"] if release.is_modern else [None]
    for protocol in protocols:
        words = ["--topic", "orders", "--group-id", f"group-{protocol}", "--max-messages", 300]
        words += ["--reset-policy", "earliest", *(["--group-protocol", protocol] if protocol else [])]
        seen = cluster.tool(VERIFIABLE_CONSUMER, *words).out
        assert counted(seen, "records_consumed") == 300
    assert f"group-{protocols[0]}" in cluster.tool(GROUPS, "--list").out

    words = ["--broker-list", cluster.bootstrap, "--input-topic", "orders", "--input-partition", 0]
    words += ["--output-topic", "copies", "--consumer-group", "copier", "--transaction-size", 7]
    run(COPIER, *words, "--transactional-id", "copier", "--enable-random-aborts").ok()
    copied = read(cluster, "copies", "--isolation-level", "read_committed")
    assert sorted(copied) == sorted(read(cluster, "orders", "--partition", 0))
    assert len(copied) > 0

    words = ["--topic", "copies", "--num-records", 500, "--record-size", 100, "--throughput", -1]
    words += ["--producer-props", f"bootstrap.servers={cluster.bootstrap}"]
    run(PERFORMANCE, *words, "--transactional-id", "quick", "--transaction-duration-ms", 50).ok()

    rows = [f"{number % 5}:{number}" for number in range(100)]
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    cluster.produce("compacted", rows, *keyed)
    time.sleep(0.1)  # the segment is old enough to be rolled by what comes next
    cluster.produce("compacted", ["last:1"], *keyed)
    wait_for("the cleaner", lambda: len(read(cluster, "compacted")) <= 10)
    assert set(read(cluster, "compacted")) == {"95", "96", "97", "98", "99", "1"}

    if release.at_least(4, 2):
        cluster.configure("groups", "sharers", "share.auto.offset.reset=earliest")
        words = ["--topic", "orders", "--group", "sharers", "--max-messages", 300, "--timeout-ms", 30_000]
        assert len(cluster.tool(SHARE_CONSUMER, *words).out.split()) == 300
        assert "sharers" in cluster.tool(SHARE_GROUPS, "--list").out


def read(cluster: Cluster, topic: str, *words: object) -> list[str]:
    """Return the values of a topic, in the order in which a consumer finds them."""
    return cluster.lab.tools.run(
        CONSUMER, "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--timeout-ms", 1_500,
        *(("--offset", "earliest") if "--partition" in words else ("--from-beginning",)), *words,
    ).out.split()  # fmt: skip


def administration(cluster: Cluster) -> None:
    """The tools of an operator."""
    cluster.topics("--create", "--topic", "moved", "--replica-assignment", "10:11,11:12")
    cluster.topics("--alter", "--topic", "moved", "--partitions", 3)
    cluster.configure("topics", "moved", "retention.ms=200000")
    cluster.wait_shown({"retention.ms=200000"}, TOPICS, "--describe", "--topic", "moved")
    plan = cluster.lab.home / "plan.json"
    rows = [{"topic": "moved", "partition": 0, "replicas": [12, 11, 10]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    cluster.tool(REASSIGN, "--reassignment-json-file", plan, "--execute")
    verify = ("--reassignment-json-file", plan, "--verify")
    wait_for("the reassignment", lambda: "is completed" in cluster.tool(REASSIGN, *verify).out, every_s=0.2)
    cluster.tool(ELECTION, "--election-type", "preferred", "--topic", "moved", "--partition", 0)
    moved = ("--describe", "--topic", "moved")
    wait_for("the first replica", lambda: re.search(r"Partition: 0\s+Leader: 12\s", cluster.topics(*moved).out))

    rule = (
        "--allow-principal",
        "User:ann",
        "--operation",
        "Read",
        "--topic",
        "o",
        "--resource-pattern-type",
        "prefixed",
    )
    cluster.tool(ACLS, "--add", *rule)
    cluster.wait_shown({"User:ann"}, ACLS, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    for setting in ("producer_byte_rate=1000", "SCRAM-SHA-256=[password=secret]"):
        cluster.configure("users", "ann", setting)
    told = {"producer_byte_rate=1000.0", "SCRAM-SHA-256=iterations=4096"}
    cluster.wait_shown(told, CONFIGS, "--entity-type", "users", "--entity-name", "ann", "--describe")
    cluster.tool(ACLS, "--remove", "--force", *rule)
    wait_for("no rule at any broker", lambda: "User:ann" not in cluster.tool(ACLS, "--list").out)
    for name in (FIRST_BROKER, ""):
        words = ("--entity-name", name) if name else ("--entity-default",)
        cluster.tool(CONFIGS, "--entity-type", "brokers", *words, "--alter", "--add-config", "log.retention.ms=900000")
    of_broker = ("--entity-type", "brokers", "--entity-name", FIRST_BROKER, "--describe")
    cluster.wait_shown({"log.retention.ms=900000"}, CONFIGS, *of_broker)

    lab = cluster.lab
    assert "metadata.version" in cluster.tool(FEATURES, "describe").out
    told = lab.tools.run(CLUSTER, "cluster-id", "--bootstrap-server", cluster.bootstrap).ok().out
    assert lab.cluster_id in told
    status = cluster.tool(QUORUM, "describe", "--status").out
    assert re.search(rf"LeaderId:\s+{cluster.active()}\b", status)
    assert all(f'"id": {number}' in status for number in (1, 2, 3, 10, 11, 12))
    assert cluster.tool(QUORUM, "describe", "--replication").out.count("Follower") == 2
    assert '"broker":12' in cluster.tool(LOG_DIRS, "--describe").out
    shown = cluster.tool(VERSIONS).out
    assert all(f":{node.endpoint.port} (id: {node.node_id}" in shown for node in cluster.brokers)
    asked = lab.tools.run(QUORUM, "--bootstrap-controller", cluster.servers[0], "describe", "--status").ok()
    assert "LeaderId" in asked.out


@pytest.mark.parametrize("whose", ["ours", pytest.param("Kafka's", marks=pytest.mark.slow)])
def test_all_that_kafka_ships_lives_on_three_brokers(lab: Lab, whose: str, record_property: Record) -> None:
    """All clients and admin tools, a broker that leaves and returns; no WARN without a cause in Kafka."""
    kafka = (1, 2, 3) if whose == "Kafka's" else ()
    cluster = Cluster(lab, controllers=3, kafka=kafka, brokers=3, properties=AUTHORIZER, of_kafka=AUTHORIZER)
    cluster.start_brokers()
    for topic, partitions in {"orders": 3, "copies": 1}.items():
        cluster.topics("--create", "--topic", topic, "--partitions", partitions, "--replication-factor", 3)
    settings = ("cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.01")
    words = [word for setting in settings for word in ("--config", setting)]
    cluster.topics("--create", "--topic", "compacted", "--partitions", 1, "--replication-factor", 3, *words)
    clients(cluster)
    administration(cluster)

    first = cluster.brokers[0]
    assert first.stop() == 143  # in controlled shutdown
    assert unusual(first) == []
    wait_for("other leaders", lambda: "Leader: 10" not in cluster.topics("--describe").out)
    first.start()
    first.wait_started()
    cluster.wait_in_sync()
    cluster.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    wait_for("leadership again", lambda: "Leader: 10" in cluster.topics("--describe").out)
    assert [line for node in cluster.brokers for line in unusual(node)] == []
    record_property("usual warnings", usual(cluster))


def test_nothing_acknowledged_is_lost_while_controllers_and_brokers_are_killed(
    lab: Lab, record_property: Record
) -> None:
    """kill -9 of the active controller again and again, and of brokers, under two producers."""
    cluster = Cluster(
        lab, controllers=3, brokers=3, properties={"broker.heartbeat.interval.ms": 500},
        words=("--broker-session-timeout-ms", "3000"),
    )  # fmt: skip
    cluster.start_brokers()
    with Traffic(cluster) as traffic:
        for kills in range(1, KILLS + 1):
            killed = cluster.active()
            cluster.controllers[killed].kill()
            cluster.active(but=killed)
            cluster.topics("--create", "--topic", f"topic-{kills}", "--partitions", 2, "--replication-factor", 3)
            victim = cluster.brokers[kills % 3]
            if kills % 4 == 1:
                victim.kill()
                traffic.wait_for_more()
                victim.start()
                victim.wait_started()
            elif kills % 4 == 3:
                assert victim.stop() == 143
                victim.start()
                victim.wait_started()
            cluster.controllers[killed].start()
            traffic.wait_for_more()
            cluster.wait_in_sync()
            cluster.caught_up()
        traffic.wait_for_more()
    for name, count in traffic.check().items():
        record_property(name, count)
    record_property("active controllers killed", KILLS)
    record_property("slowest acknowledgement, ms", traffic.slowest_ms("plain"))
    assert set(cluster.topics("--list").out.split()) >= {f"topic-{number}" for number in range(1, KILLS + 1)}
    for node in cluster.brokers:
        assert node.stop() == 143
        assert node.complaints() == []
    offset = cluster.caught_up()
    for controller in cluster.controllers.values():
        controller.stop()
    assert_equal_logs(*(controller.partition for controller in cluster.controllers.values()), end_offset=offset)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["ours", "Kafka's"])
def test_everything_is_restarted_one_by_one(lab: Lab, whose: str, record_property: Record) -> None:
    """SIGTERM and a start, of each controller, the active one last, and of each broker, under two producers."""
    cluster = Cluster(lab, controllers=3, kafka=(1, 2, 3) if whose == "Kafka's" else (), brokers=3)
    cluster.start_brokers()
    with Traffic(cluster) as traffic:
        active = cluster.active()
        for number in sorted(cluster.controllers, key=lambda number: number == active):
            cluster.controllers[number].stop()
            traffic.wait_for_more()
            cluster.controllers[number].start()
            cluster.topics("--create", "--topic", f"topic-{number}", "--partitions", 2, "--replication-factor", 3)
            cluster.caught_up()
        for node in cluster.brokers:
            assert node.stop() == 143
            assert unusual(node, GONE) == []
            node.start()
            node.wait_started()
            cluster.wait_in_sync()
            traffic.wait_for_more()
    for name, count in traffic.check().items():
        record_property(name, count)
    record_property("slowest acknowledgement, ms", traffic.slowest_ms("plain"))
    assert set(cluster.topics("--list").out.split()) >= {"topic-1", "topic-2", "topic-3"}
    assert [line for node in cluster.brokers for line in unusual(node, GONE)] == []


@pytest.mark.slow
@pytest.mark.since("4.0")
@pytest.mark.parametrize("whose", ["ours", "Kafka's"])
def test_brokers_are_upgraded_one_by_one_and_then_the_features(lab: Lab, whose: str, record_property: Record) -> None:
    """3.9.2 to this release under two producers; then `kafka-features upgrade`, and what the old level did not have."""
    older = attrs.evolve(lab.release, version="3.9.2", scratch=lab.home)
    kafka = (1, 2, 3) if whose == "Kafka's" else ()
    cluster = Cluster(lab, controllers=3, kafka=kafka, brokers=3, release="3.9", of_brokers=older)
    cluster.start_brokers()
    with Traffic(cluster) as traffic:
        for node in cluster.brokers:
            assert node.stop() == 143
            assert unusual(node) == []
            node.use(lab.release)
            node.start()
            node.wait_started()
            cluster.wait_in_sync()
            traffic.wait_for_more()
        assert re.search(r"metadata.version.*FinalizedVersionLevel: 3.9-IV0", cluster.tool(FEATURES, "describe").out)
        cluster.tool(FEATURES, "upgrade", "--release-version", lab.release.minor)
        traffic.wait_for_more()
    traffic.check()
    shown = cluster.tool(FEATURES, "describe").out
    level = re.search(r"metadata.version.*FinalizedVersionLevel: (\S+)", shown)
    assert level is not None
    assert level[1].startswith(lab.release.minor)
    words = ["--topic", "plain", "--group-id", "new", "--max-messages", 100, "--reset-policy", "earliest"]
    seen = cluster.tool(VERIFIABLE_CONSUMER, *words, "--group-protocol", "consumer").out
    assert counted(seen, "records_consumed") == 100
    assert [line for node in cluster.brokers for line in unusual(node)] == []
    record_property("usual warnings", usual(cluster))
