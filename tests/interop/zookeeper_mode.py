"""Brokers of Kafka 3.9 in ZooKeeper mode, beside a ZooKeeper of their own: how it was before KRaft."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kraftlib.types import Endpoint
from tests.interop.kafka import ACLS, CONFIGS, CONSUMER, PRODUCER, TOPICS, KafkaNode, Output, Release
from tests.interop.lab import Lab
from tests.interop.processes import wait_for
from tests.interop.test_zookeeper import RELEASE, zookeeper

CHROOT: Final = "/kafka"
STARTED: Final = "started (kafka.server.KafkaServer)"
COMMON: Final[Mapping[str, object]] = {
    "offsets.topic.replication.factor": 2,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "super.users": "User:ANONYMOUS",
    "auto.leader.rebalance.enable": "false",  # partitions stay as they are while they are compared
    "controlled.shutdown.retry.backoff.ms": 100,  # the last broker finds nobody who would take its place
}
OF_ZOOKEEPER: Final = ("broker.id", "zookeeper.connect")

QUOTAS: Final = (
    (("users", "ann b"), "producer_byte_rate=1000000"),
    (("users", "ann b"), "SCRAM-SHA-256=[iterations=4096,password=secret]"),
    (("users", None), "request_percentage=90.5"),
    (("users", "bob", "clients", "c/1"), "consumer_byte_rate=5000"),
    (("users", None, "clients", None), "consumer_byte_rate=6000"),
    (("clients", "c2"), "controller_mutation_rate=7"),
    (("ips", "10.0.0.1"), "connection_creation_rate=8"),
    (("brokers", None), "log.cleaner.threads=2"),
    (("brokers", "2"), "background.threads=9"),
)
"""Who or what, and its setting; None is everybody that has none of their own."""
RULES: Final = (
    "--allow-principal User:ann --operation Read --operation DescribeConfigs --topic orders",
    "--deny-principal User:bob --deny-host 10.0.0.9 --operation All --group g- --resource-pattern-type prefixed",
    "--allow-principal User:ann --operation IdempotentWrite --cluster",
)


class OldCluster:
    """A ZooKeeper and two brokers, which keep their metadata there."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.release = Release(RELEASE, lab.home)
        self.server, self.client = zookeeper(lab)
        (host, port), *_ = self.client.hosts
        self.place = f"{host}:{port}"
        self.brokers = [self._broker(number, lab.endpoint()) for number in (1, 2)]
        lab.keep(*self.brokers)

    def _broker(self, number: int, endpoint: Endpoint) -> KafkaNode:
        own = {
            **COMMON,
            "broker.id": number,
            "zookeeper.connect": f"{self.place}{CHROOT}",
            "listeners": f"PLAINTEXT://{endpoint}",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        }
        return KafkaNode(self.release, number, home=self.lab.home, endpoint=endpoint, properties=own)

    @property
    def cluster_id(self) -> str:
        """The id that ZooKeeper has."""
        return str(json.loads(self.client.get(f"{CHROOT}/cluster/id")[0])["id"])

    def start(self, line: str = STARTED) -> None:
        """Start the brokers, and wait until they serve."""
        for node in self.brokers:
            node.start()
        for node in self.brokers:
            node.wait_for_line(line)

    def stop(self) -> None:
        """Stop the brokers, one after the other."""
        for node in self.brokers:
            assert node.stop() == 143

    def to_migrate(self, quorum: Mapping[str, object]) -> None:
        """Have the brokers be ones that are ready for the migration of KIP-866, when they are started again."""
        for node in self.brokers:
            node.properties = {**node.properties, "zookeeper.metadata.migration.enable": "true", **of_kraft(quorum)}
            node.write_properties()

    def to_kraft(self, quorum: Mapping[str, object]) -> None:
        """Have the brokers be ones of KRaft, when they are started again; their directories stay as they are."""
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        for node in self.brokers:
            old = {key: value for key, value in node.properties.items() if key not in OF_ZOOKEEPER}
            roles = {"process.roles": "broker", "authorizer.class.name": authorizer}
            node.properties = {**old, **roles, **of_kraft(quorum)}
            node.write_properties()

    # --- tools -------------------------------------------------------------------------------------------------------

    def tool(self, main: str, *words: object, text: str = "") -> Output:
        """Run a tool that asks the brokers; it succeeds."""
        servers = ",".join(str(node.endpoint) for node in self.brokers)
        return self.lab.tools.run(main, "--bootstrap-server", servers, *words, text=text).ok()

    def fill(self) -> None:
        """Make topics, configurations, quotas, credentials and rules of access."""
        placed = ("--create", "--topic", "orders", "--partitions", 3, "--replication-factor", 2)
        self.tool(TOPICS, *placed, "--config", "retention.ms=900000000")
        self.tool(TOPICS, "--create", "--topic", "clicks.x", "--partitions", 1, "--replication-factor", 1)
        for entity, setting in QUOTAS:
            self.tool(CONFIGS, "--alter", *named(entity), "--add-config", setting)
            name, words = setting.partition("=")[0], ("--describe", *named(entity))
            # ZooKeeper has it; the broker that tells of it hears from ZooKeeper.
            wait_for(name, lambda name=name, words=words: name in self.tool(CONFIGS, *words).out)
        for rule in RULES:
            self.tool(ACLS, "--add", *rule.split())

    def produce(self, lines: list[str]) -> None:
        """Write to the topic of `fill`."""
        self.tool(PRODUCER, "--topic", "orders", text="".join(f"{line}\n" for line in lines))

    def consume(self, count: int) -> set[str]:
        """Read it from the beginning."""
        bounds = ("--max-messages", count, "--timeout-ms", 60_000)
        return set(self.tool(CONSUMER, "--topic", "orders", "--from-beginning", *bounds).out.split())

    def described(self) -> dict[str, list[str]]:
        """Return what tools tell of all that `fill` has made; of partitions, which move, the replicas alone."""
        topics = self.tool(TOPICS, "--describe", "--topic", "orders|clicks.x").out
        found = {"topics": sorted(line.split("\tLeader:")[0] for line in topics.splitlines())}
        found["replicas"] = sorted(part for part in topics.split("\t") if part.startswith("Replicas:"))
        for entity, _ in QUOTAS:
            words = named(entity)
            found[" ".join(words)] = sorted(self.tool(CONFIGS, "--describe", *words).out.splitlines())
        found["rules"] = sorted(line.strip() for line in self.tool(ACLS, "--list").out.splitlines())
        return found


def of_kraft(quorum: Mapping[str, object]) -> dict[str, object]:
    """Return the properties with which a broker finds controllers."""
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    return {"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": protocols, **quorum}


def named(entity: tuple[str | None, ...]) -> list[str]:
    """Return the words of `kafka-configs` for an entity."""
    words: list[str] = []
    for kind, name in zip(entity[::2], entity[1::2], strict=True):
        words += ["--entity-type", str(kind), *(["--entity-default"] if name is None else ["--entity-name", name])]
    return words
