"""Kafka 3.9 with its metadata in ZooKeeper: it is imported, and the same brokers go on with controllers of ours."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import attrs
import pytest

from kraftlib.compat.kazoo.source import read_source
from kraftlib.controller import format_controller
from kraftlib.metadata.frame import decode_record
from kraftlib.metadata.log_records import BeginTransactionRecord
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.migration.nodes import Nodes
from kraftlib.migration.records import Translation
from kraftlib.types import Endpoint, new_uuid, uuid_text
from tests.interop.clusters import Controller
from tests.interop.kafka import DUMP, TOPICS, controller
from tests.interop.kafka import STARTED as SERVES
from tests.interop.lab import Lab
from tests.interop.logs import batches
from tests.interop.ours import ROOT
from tests.interop.processes import Process, wait_for
from tests.interop.zookeeper_mode import CHROOT, QUOTAS, OldCluster

CONTROLLERS: Final = (101, 102, 103)
BEFORE: Final = [f"before-{number}" for number in range(100)]
AFTER: Final = [f"after-{number}" for number in range(100)]
BOOTSTRAP: Final = "Bootstrap records"
OF_THE_CLUSTER: Final = (
    "BeginTransactionRecord EndTransactionRecord ZkMigrationStateRecord NoOpRecord BrokerRegistrationChangeRecord"
)
"""What Kafka's controller writes beside the metadata."""
AT_FIRST: Final = re.compile("AssignmentsManager|Received UNKNOWN_TOPIC_ID")
"""A broker names the directories of its replicas once before it is registered, and is refused, also by Kafka's. A
follower of a new topic, which here is that of offsets, may ask before the leader knows of it."""


def ran(lab: Lab, *words: object) -> str:
    """Run a command of ours to its end; it succeeds, and what it printed is returned."""
    process = Process(
        [sys.executable, "-m", "kraftlib.cli", *map(str, words)],
        log=lab.home / f"{words[0]}.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    lab.keep(process)
    process.start()
    wait_for(f"the end of {words[:2]}", lambda: not process.running)
    assert process.status == 0, process.tail()
    return process.log_text()


def imported(old: OldCluster) -> Any:
    """Import what ZooKeeper has; return what the command says."""
    words = (old.place, old.lab.home / "imported", "--path", CHROOT, "--output", "json")
    return json.loads(ran(old.lab, "controller", "import-zookeeper", *words).splitlines()[-1])


def started(old: OldCluster, told: Any) -> list[Controller]:
    """Start three controllers of ours, which begin with what was imported."""
    lab = old.lab
    places = {number: lab.endpoint() for number in CONTROLLERS}
    voters = ",".join(f"{number}@{place}:{uuid_text(new_uuid())}" for number, place in places.items())
    found = [Controller(lab, number, place, list(map(str, places.values()))) for number, place in places.items()]
    for one in found:
        who = ("--node-id", one.node_id, "--cluster-id", told["cluster_id"], "--initial-controllers", voters)
        ran(lab, "restore", told["checkpoint"], one.directory, *who)
        lab.keep(one)
        one.start()
    return found


@pytest.mark.each_release
@pytest.mark.usefixtures("version")
def test_brokers_of_a_zookeeper_go_on_with_controllers_of_ours(lab: Lab) -> None:
    """Topics keep their ids, records and settings; clients keep their quotas, passwords and rules of access.

    Brokers of 3.9.2 stop, and those of this release start on their directories.
    """
    old = OldCluster(lab)
    old.start()
    old.fill()
    old.produce(BEFORE)
    known = old.described()
    old.stop()

    told = imported(old)
    assert told["cluster_id"] == old.cluster_id
    assert (told["brokers"], told["left_out"]) == ([1, 2], [])
    dumped = lab.tools.run(DUMP, "--cluster-metadata-decoder", "--files", told["checkpoint"]).ok()
    assert dumped.out.count("payload: ") == sum(told["records"].values())
    assert dumped.err == ""
    old.server.kill()

    controllers = started(old, told)
    old.to_kraft({"controller.quorum.bootstrap.servers": ",".join(str(one.endpoint) for one in controllers)})
    for node in old.brokers:
        node.use(lab.release)
    old.start(SERVES)
    assert old.described() == known
    assert old.consume(len(BEFORE)) == set(BEFORE)
    assert [line for node in old.brokers for line in node.warnings() if not AT_FIRST.search(line)] == []

    controllers[0].kill()
    old.produce(AFTER)
    assert old.consume(len(BEFORE + AFTER)) == {*BEFORE, *AFTER}
    wait_for(
        "all replicas in sync", lambda: not old.tool(TOPICS, "--describe", "--under-replicated-partitions").out.strip()
    )


@pytest.mark.slow
@pytest.mark.usefixtures("version")
def test_the_import_has_the_records_of_kafkas_own_migration(lab: Lab) -> None:
    """A controller of Kafka 3.9.2 migrates what was read before. Only leaders differ: the import knows none."""
    old = OldCluster(lab)
    old.start()
    old.fill()
    token = {
        "version": 3, "owner": "User%3Aann", "tokenRequester": "User%3Abob", "renewers": ["User%3Acarl"],
        "issueTimestamp": 1, "maxTimestamp": 1 << 45, "expiryTimestamp": 1 << 44, "tokenId": "abc",
    }  # fmt: skip
    old.client.create(f"{CHROOT}/delegation_token/tokens/abc", json.dumps(token).encode(), makepath=True)
    old.stop()
    place = lab.endpoint()
    quorum = {"controller.quorum.voters": f"3000@{place}"}
    old.to_migrate(quorum)
    old.start()
    ours = wait_for("all replicas in sync", lambda: translated(old))
    theirs = migrated(old, place, quorum)
    assert len(theirs) > len(QUOTAS)
    assert sorted(map(repr, map(plain, ours[1:]))) == sorted(map(repr, map(plain, theirs)))


def translated(old: OldCluster) -> list[Any]:
    """Return the records of an import, once all replicas are in sync: until then partitions change."""
    source = read_source(old.client, CHROOT)
    source.ephemeral_paths.clear()  # brokers take part in Kafka's migration
    found = list(Translation(Nodes(source, CHROOT), new_uuid).records())
    partitions = [one for one in found if isinstance(one, PartitionRecord)]
    return found if all({*one.isr} == {*one.replicas} for one in partitions) else []


def migrated(old: OldCluster, place: Endpoint, quorum: dict[str, object]) -> list[Any]:
    """Have a controller of Kafka migrate the cluster; return the records that it has written for what ZooKeeper had."""
    of_zookeeper = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": f"{old.place}{CHROOT}"}
    kafka = controller(old.release, 3000, home=old.lab.home, endpoint=place, quorum=quorum, properties=of_zookeeper)
    kafka.format(old.cluster_id, "--release-version", "3.9")
    old.lab.keep(kafka)
    kafka.start()
    kafka.wait_for_line("Completed migration of metadata from ZooKeeper to KRaft")
    kafka.stop()
    values = (value for batch in batches(kafka.partition) if not batch.is_control for value in batch.values())
    records = [decode_record(value)[0] for value in values]
    (begin,) = (n for n, one in enumerate(records) if isinstance(one, BeginTransactionRecord) and one.name != BOOTSTRAP)
    return [one for one in records[begin:] if type(one).__name__ not in OF_THE_CLUSTER]


def plain(record: Any) -> dict[str, Any]:
    """Return a record as it can be compared: rules of access get an id by chance, and no broker has a directory yet."""
    names = [one.name for one in attrs.fields(type(record)) if one.name not in ("id", "directories")]
    found = {"": type(record).__name__, **{name: getattr(record, name) for name in names}}
    if isinstance(record, PartitionRecord):
        del found["leader"]
    return {name: int(value) if isinstance(value, int) else value for name, value in found.items()}


@pytest.mark.slow
@pytest.mark.usefixtures("version")
def test_brokers_that_are_ready_to_migrate_are_refused_and_go_on_with_zookeeper(lab: Lab) -> None:
    """Our controller does not claim ZooKeeper (KIP-866): as Kafka's without a migration it takes no such broker."""
    old = OldCluster(lab)
    old.start()
    old.fill()
    old.stop()
    place = lab.endpoint()
    ours = Controller(lab, 3000, place, [str(place)])
    format_controller(ours.directory, node_id=3000, cluster_id=old.cluster_id, standalone=place, release="3.9")
    lab.keep(ours)
    ours.start()
    old.to_migrate({"controller.quorum.bootstrap.servers": place})
    old.start()
    for node in old.brokers:
        node.wait_for_line("the controller returned error BROKER_ID_NOT_REGISTERED")
    old.produce(BEFORE)
    assert old.consume(len(BEFORE)) == set(BEFORE)
    assert old.client.exists(f"{CHROOT}/migration") is None
