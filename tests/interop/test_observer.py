"""An observer of real Kafka: `kraftlib observe` through elections, snapshots, restarts, and beside Kafka's shell."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig
from kraftlib.records.serde import BytesSerde
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import Endpoint
from tests.interop.kafka import CONFIGS, TOPICS, KafkaNode, Release
from tests.interop.lab import BUSY, Lab, Quorum
from tests.interop.logs import assert_equal_logs
from tests.interop.ours import ROOT
from tests.interop.processes import Process, wait_for

PATIENCE_MS = 30_000


class Observe(Process):
    """`kraftlib observe` as a process."""

    def __init__(self, home: Path, servers: list[Endpoint], *words: str) -> None:
        command = [sys.executable, "-m", "kraftlib.cli", "observe", "--bootstrap", ",".join(map(str, servers)), *words]
        super().__init__(
            command, log=home / f"observe{'-once' * ('--once' in words)}.log", environment={"PYTHONPATH": str(ROOT)}
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return the feed so far."""
        return [
            json.loads(line) for line in self.log_text().splitlines() if line.startswith("{") and line.endswith("}")
        ]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of the records of one type."""
        return [line["data"] for line in self.lines() if line.get("type") == kind]

    def wait_for_topic(self, name: str, *, kind: str = "TOPIC_RECORD") -> None:
        """Wait until the feed tells of this topic."""
        wait_for(f"{kind} of {name}", lambda: name in [data.get("name") for data in self.records(kind)])


def once(quorum: Quorum, *words: str) -> dict[str, Any]:
    """Return what `kraftlib observe --once` says."""
    servers = [node.endpoint for node in quorum.controllers]
    process = Observe(quorum.lab.home, servers, "--once", "--output", "json", *words)
    process.start()
    wait_for("observe --once", lambda: not process.running)
    assert process.status == 0, process.log_text()
    return process.lines()[-1]


def topics(release: Release, node: KafkaNode, *words: object) -> None:
    """Run `kafka-topics` at a broker."""
    release.tool(TOPICS, "--bootstrap-server", node.endpoint, *words).ok()


def shown_by_kafka(release: Release, partition: Path, scratch: Path, picture: dict[str, Any]) -> dict[str, Any]:
    """Return what Kafka's shell says of a copy of this log, in the shape of our picture."""
    scratch.mkdir(exist_ok=True)
    (log,) = partition.glob("*.log")
    copy = scratch / log.name
    shutil.copy(log, copy)
    having = [f"/image/topics/byName/{name}" for name in picture["topics"]]
    having += [f"/image/cluster/brokers/{number}" for number in picture["brokers"]]
    places = [f"/image/{name}" for name in ("cluster", "configs", "topics")]  # 4.0's stumbles over its features
    found = release.shell(copy, "find", *places, having=having).splitlines()
    names = sorted({path.split("/")[4] for path in found if path.startswith("/image/topics/byName/")})
    partitions = {}
    for name in names:
        for number in picture["topics"].get(name, {}).get("partitions", {}):
            text = release.shell(copy, "cat", f"/image/topics/byName/{name}/{number}", having=["leader="])
            partitions[name, number] = dict(re.findall(r"(\w+)=(\[[^\]]*\]|-?\w+)", text))
    return {
        "topics": names,
        "brokers": sorted(path.rpartition("/")[2] for path in found if path.startswith("/image/cluster/brokers/")),
        "controllers": sorted(
            path.rpartition("/")[2] for path in found if path.startswith("/image/cluster/controllers/")
        ),
        "configs": sorted(
            path.rpartition("/")[2] for path in found if path.startswith("/image/configs/") and path.count("/") == 3
        ),
        "partitions": partitions,
    }


@pytest.mark.each_release
def test_the_metadata_of_a_cluster_is_followed_through_kill_9_of_its_leader(lab: Lab) -> None:
    """A broker, topics, configs, a killed leader, a deleted topic: a feed without a gap, the picture of the shell."""
    # The shell hangs on levels that it does not know, and it may be that of an earlier release.
    as_of = lab.release.of_tools.minor if lab.release.of_tools != lab.release else None
    quorum = lab.static(kafka=[1, 2], ours=[3], properties=BUSY, as_of=as_of)
    quorum.start()
    quorum.leading_controller()
    observe = Observe(lab.home, [node.endpoint for node in quorum.nodes.values()], "--output", "json")
    lab.keep(observe)
    observe.start()
    node = quorum.broker(10)
    node.start()
    node.wait_started()
    example = Process(
        [sys.executable, str(ROOT / "examples" / "kafka_topics.py"), str(quorum.nodes[3].endpoint)],
        log=lab.home / "example.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    lab.keep(example)
    example.start()
    topics(lab.release, node, "--create", "--topic", "first", "--partitions", 3, "--config", "retention.ms=12345")
    observe.wait_for_topic("first")

    leader = quorum.leading_controller()
    quorum.nodes[leader["leader_id"]].kill()
    after = quorum.leading_controller(not_id=leader["leader_id"], min_epoch=leader["epoch"] + 1)
    topics(lab.release, node, "--create", "--topic", "second", "--partitions", 2)
    entity = ["--alter", "--entity-type", "topics", "--entity-name", "second"]
    lab.release.tool(
        CONFIGS, "--bootstrap-server", node.endpoint, *entity, "--add-config", "max.message.bytes=4096"
    ).ok()
    topics(lab.release, node, "--delete", "--topic", "first")
    wait_for("the deletion in the feed", lambda: observe.records("REMOVE_TOPIC_RECORD"))
    example.wait_for_line("{'second': 2}")
    assert "{'first': 3}" in example.log_text()

    offsets = [line["offset"] for line in observe.lines() if "offset" in line]
    assert offsets == sorted(offsets)
    assert set(range(1, max(offsets) + 1)) <= set(offsets), "a gap in the feed"
    told = [line["epoch"] for line in observe.lines() if line["event"] == "leader" and line["leader_id"] is not None]
    assert after["epoch"] in told
    picture = once(quorum)
    assert list(picture["topics"]) == ["second"]
    assert picture["faults"] == []
    assert picture["configs"]["TOPIC:second"] == {"max.message.bytes": "4096"}
    (active,) = quorum.controllers
    kafka = shown_by_kafka(lab.release, active.partition, lab.home / "copy", picture)
    assert kafka["topics"] == list(picture["topics"])
    assert kafka["brokers"] == list(picture["brokers"]) == ["10"]
    assert kafka["controllers"] == list(picture["controllers"])
    assert kafka["configs"] == sorted(picture["configs"])
    for (name, number), fields in kafka["partitions"].items():
        ours = picture["topics"][name]["partitions"][number]
        assert fields["leader"] == str(ours["leader"])
        assert fields["leaderEpoch"] == str(ours["leader_epoch"])
        assert fields["partitionEpoch"] == str(ours["partition_epoch"])
        assert json.loads(fields["isr"]) == ours["isr"]
        assert json.loads(fields["replicas"]) == ours["replicas"]


def snapshots(release: Release) -> dict[str, object]:
    """Return the properties of a controller that writes small segments, and snapshots all the time."""
    names = ["internal.metadata.log.segment.bytes"]
    if not release.at_least(4, 1):
        names = ["metadata.log.segment.bytes", "metadata.log.segment.min.bytes"]
    return {
        **BUSY,
        "metadata.log.max.record.bytes.between.snapshots": 1_000,
        "metadata.max.retention.bytes": 1_000,
        **dict.fromkeys(names, 4_096),
    }


def test_a_snapshot_is_fetched_byte_for_byte(lab: Lab) -> None:
    """A controller whose log begins later: its checkpoint arrives as it is, and our restart goes on from there."""
    quorum = lab.dynamic(kafka=[1], properties=snapshots(lab.release))
    node = with_segments_and_snapshots(quorum)
    node.stop()
    opened = open_directory(RaftConfig(node_id=1, directory=node.directory, file_mode=0o644))
    opened.log.delete_before(opened.log.snapshots()[-1])  # what Kafka does itself once a minute
    assert opened.log.start_offset > 0
    opened.close()
    quorum.start()

    follow_from_a_snapshot(lab, node)


@pytest.mark.slow
def test_a_snapshot_is_fetched_after_kafka_has_cleaned_its_log(lab: Lab) -> None:
    """The same, with kraft.version 0, and nobody but Kafka has touched the directory."""
    quorum = lab.static(kafka=[1], properties=snapshots(lab.release))
    node = with_segments_and_snapshots(quorum)
    first = node.partition / "00000000000000000000.log"
    wait_for("the log to begin later", lambda: not first.exists(), timeout_s=100)

    follow_from_a_snapshot(lab, node)


def with_segments_and_snapshots(quorum: Quorum) -> KafkaNode:
    """Return its controller, once its log has come that far."""
    node = quorum.nodes[1]
    assert isinstance(node, KafkaNode)
    quorum.start()
    wait_for("a few segments", lambda: len(list(node.partition.glob("*.log"))) > 3)
    wait_for("a snapshot", lambda: [path for path in node.partition.glob("*.checkpoint") if path.name > f"{1:020}"])
    return node


def follow_from_a_snapshot(lab: Lab, node: KafkaNode) -> None:
    """Follow a controller whose log begins later than at 0, twice from one directory."""
    directory = lab.home / "observer"
    format_directory(directory, node_id=99, cluster_id=lab.cluster_id, no_initial_controllers=True)
    config = RaftConfig(node_id=99, directory=directory, bootstrap_servers=(node.endpoint,))
    with RaftClient(config, serde=BytesSerde()) as client:
        client.wait_for_leader(timeout_ms=PATIENCE_MS)
        snapshot_id = wait_for("a snapshot", lambda: client.latest_snapshot_id())
        assert snapshot_id is not None
        wait_for("records after it", lambda: (client.high_watermark() or 0) > snapshot_id.offset + 3)
        status = client.status()
    name = f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"
    theirs = [path for path in (node.partition / name, node.partition / f"{name}.deleted") if path.exists()]
    assert [path.read_bytes() for path in theirs] == [(directory / "__cluster_metadata-0" / name).read_bytes()]
    assert (status.log_start_offset, status.is_voter) == (snapshot_id.offset, False)

    with RaftClient(config, serde=BytesSerde()) as client:
        before = client.log_end_offset()
        wait_for("more records", lambda: (client.high_watermark() or 0) > before + 3)
        end_offset = client.high_watermark() or 0
    node.stop()
    begin = max(snapshot_id.offset, min(int(path.name[:20]) for path in node.partition.glob("*.log")))
    assert_equal_logs(directory / "__cluster_metadata-0", node.partition, start_offset=begin, end_offset=end_offset)
