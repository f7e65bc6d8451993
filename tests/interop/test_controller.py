"""Brokers of Kafka on metadata controllers of ours: `kraftlib controller run`, as an operator starts it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kraftlib.cli.quorum import describe
from kraftlib.controller import format_controller
from kraftlib.storage.bootstrap import InitialController
from kraftlib.types import Endpoint, new_uuid
from kraftlib.wire_client import UnreachableError
from tests.interop.kafka import ACLS, CONFIGS, CONSUMER, PRODUCER, TOPICS, KafkaNode, Output, broker
from tests.interop.lab import Lab
from tests.interop.logs import assert_equal_logs
from tests.interop.ours import ROOT
from tests.interop.processes import Process, free_ports, wait_for


class Controller(Process):
    """One controller of ours in a process of its own."""

    def __init__(self, lab: Lab, node_id: int, endpoint: Endpoint, servers: list[str], **settings: object) -> None:
        self.endpoint = endpoint
        self.directory = lab.home / f"controller-{node_id}"
        config = lab.home / f"controller-{node_id}.toml"
        values = {
            "node_id": node_id,
            "directory": str(self.directory),
            "listen": str(endpoint),
            "bootstrap_servers": servers,
            **settings,
        }
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
        command = [sys.executable, "-m", "kraftlib.cli", "controller", "run", "-c", str(config), "--verbose"]
        super().__init__(command, log=lab.home / f"{config.stem}.log", environment={"PYTHONPATH": str(ROOT)})

    @property
    def partition(self) -> Path:
        """Where the metadata log is."""
        return self.directory / "__cluster_metadata-0"


class Cluster:
    """Controllers of ours, running, and a broker of Kafka, formatted."""

    def __init__(
        self, lab: Lab, *, controllers: int, properties: Mapping[str, object] | None = None, **settings: object
    ) -> None:
        self.lab = lab
        places = {number: Endpoint("127.0.0.1", port) for number, port in enumerate(free_ports(controllers), start=1)}
        first = [InitialController(number, place, new_uuid()) for number, place in places.items()]
        servers = [str(place) for place in places.values()]
        self.servers = list(places.values())
        self.controllers = {
            number: Controller(lab, number, place, servers, **settings) for number, place in places.items()
        }
        for number, controller in self.controllers.items():
            format_controller(
                controller.directory,
                node_id=number,
                cluster_id=lab.cluster_id,
                initial_controllers=first,
                release=lab.release.minor,
            )
            lab.keep(controller)
            controller.start()
        self.broker: KafkaNode = broker(
            lab.release,
            10,
            home=lab.home,
            endpoint=lab.endpoint(),
            quorum={"controller.quorum.bootstrap.servers": ",".join(servers)},
            properties=properties,
        )
        self.broker.format(lab.cluster_id)
        lab.keep(self.broker)

    def active(self, *, but: int | None = None) -> int:
        """Wait for an active controller; return its number."""

        def known() -> int | None:
            try:
                leader_id = describe(self.servers, timeout_s=5).leader_id
            except UnreachableError:
                return None
            return leader_id if leader_id != but else None

        found = wait_for("an active controller", known)
        assert found is not None
        return found

    def topics(self, *words: object) -> Output:
        """Run `kafka-topics`."""
        return self.lab.release.tool(TOPICS, "--bootstrap-server", self.broker.endpoint, *words).ok()

    def configure(self, kind: str, name: object, setting: str) -> None:
        """Run `kafka-configs --alter`."""
        words = ("--entity-type", kind, "--entity-name", name, "--alter", "--add-config", setting)
        self.lab.release.tool(CONFIGS, "--bootstrap-server", self.broker.endpoint, *words).ok()

    def produce(self, topic: str, lines: list[str]) -> None:
        """Run `kafka-console-producer`, which is idempotent and so asks for producer ids."""
        text = "".join(f"{line}\n" for line in lines)
        words = ("--bootstrap-server", self.broker.endpoint, "--topic", topic)
        self.lab.release.tool(PRODUCER, *words, text=text).ok()

    def consume(self, topic: str, count: int) -> list[str]:
        """Run `kafka-console-consumer` in a group of its own; return what it printed."""
        words = ("--bootstrap-server", self.broker.endpoint, "--topic", topic, "--from-beginning")
        bounds = ("--max-messages", count, "--timeout-ms", 60_000)
        return self.lab.release.tool(CONSUMER, *words, *bounds).ok().out.split()

    def dumped(self, number: int) -> list[Mapping[str, Any]]:
        """Return the records in the log of a controller, as Kafka's dump tool reads them."""
        (segment,) = self.controllers[number].partition.glob("*.log")
        text = self.lab.release.dump(segment).ok()
        assert "isvalid: false" not in text.out
        assert "invalid bytes" not in text.out
        assert text.err.strip() == ""
        payloads = [line.partition("payload: ")[2] for line in text.out.splitlines() if "payload: " in line]
        return [json.loads(payload) for payload in payloads]


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
    shown = cluster.topics("--describe", "--topic", "orders").out
    assert "PartitionCount: 4" in shown
    assert "retention.ms=200000" in shown
    cluster.topics("--create", "--topic", "short-lived")
    cluster.topics("--delete", "--topic", "short-lived")
    assert "short-lived" not in cluster.topics("--list").out.split()

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


def test_tools_change_access_rules_quotas_and_users(lab: Lab) -> None:
    """`kafka-acls` and `kafka-configs` through a broker with Kafka's own authorizer, which reads the rules."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    cluster = Cluster(lab, controllers=1, properties=properties)
    cluster.broker.start()
    cluster.broker.wait_started()

    def acls(*words: object) -> str:
        return lab.release.tool(ACLS, "--bootstrap-server", cluster.broker.endpoint, *words).ok().out

    rule = (
        "--allow-principal",
        "User:ann",
        "--operation",
        "Read",
        "--topic",
        "ord",
        "--resource-pattern-type",
        "prefixed",
    )
    acls("--add", *rule)
    assert "principal=User:ann" in acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    for setting in ("producer_byte_rate=1000", "SCRAM-SHA-256=[password=secret]"):
        cluster.configure("users", "ann", setting)
    words = ("--entity-type", "users", "--entity-name", "ann", "--describe")
    shown = lab.release.tool(CONFIGS, "--bootstrap-server", cluster.broker.endpoint, *words).ok().out
    assert "producer_byte_rate=1000.0" in shown
    assert "SCRAM-SHA-256=iterations=4096" in shown
    acls("--remove", "--force", *rule)
    assert "User:ann" not in acls("--list")

    assert cluster.broker.stop() == 143
    assert cluster.broker.complaints() == []
    cluster.controllers[1].stop()
    types = [record["type"] for record in cluster.dumped(1)]
    for kind in ("ACCESS_CONTROL_ENTRY", "REMOVE_ACCESS_CONTROL_ENTRY", "CLIENT_QUOTA", "USER_SCRAM_CREDENTIAL"):
        assert types.count(f"{kind}_RECORD") == 1


def test_a_cluster_goes_on_when_its_active_controller_is_killed(lab: Lab) -> None:
    """What was created stays, the broker needs no restart, and the logs of all controllers have the same bytes."""
    cluster = Cluster(lab, controllers=3)
    cluster.broker.start()
    cluster.broker.wait_started()
    cluster.topics("--create", "--topic", "before", "--partitions", 2)
    cluster.produce("before", ["1", "2"])

    killed = cluster.active()
    cluster.controllers[killed].kill()
    active = cluster.active(but=killed)
    cluster.topics("--create", "--topic", "after", "--partitions", 2)
    cluster.produce("after", ["3", "4"])
    assert sorted(cluster.consume("before", 2) + cluster.consume("after", 2)) == ["1", "2", "3", "4"]
    assert set(cluster.topics("--list").out.split()) >= {"before", "after"}

    cluster.controllers[killed].start()
    end = describe(cluster.servers, timeout_s=5).high_watermark
    wait_for(
        "the log of the one that was killed",
        lambda: min(row.log_end_offset for row in describe(cluster.servers, timeout_s=5).voters) >= end,
    )
    assert cluster.broker.stop() == 143
    assert cluster.broker.complaints() == []
    for controller in cluster.controllers.values():
        controller.stop()
    assert_equal_logs(*(controller.partition for controller in cluster.controllers.values()), end_offset=end)
    types = [record["type"] for record in cluster.dumped(active)]
    assert types.count("REGISTER_BROKER_RECORD") == 1  # a failover is no reason to register anew
