"""A running quorum whose nodes change hands, one by one, under load: Kafka's directory under ours, and back again."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.interop.kafka import TOPICS, KafkaNode, Release
from tests.interop.lab import BUSY, Lab, Quorum
from tests.interop.logs import assert_equal_logs
from tests.interop.ours import OurReplica
from tests.interop.processes import wait_for


class Topics:
    """Creates and deletes topics through a broker, as long as the block runs."""

    def __init__(self, release: Release, broker: KafkaNode) -> None:
        self.release = release
        self.broker = broker
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.done = 0
        """How many changes were acknowledged."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Topics:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(90)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            name = f"topic-{number}"
            if self._tool("--create", "--topic", name, "--partitions", 2):
                self.created.append(name)
            if number % 3 == 0 and self.created:
                name = self.created.pop(0)  # what becomes of it, if the tool does not say, nobody knows
                if self._tool("--delete", "--topic", name):
                    self.deleted.append(name)

    def _tool(self, *words: object) -> bool:
        try:
            done = self.release.tool(TOPICS, "--bootstrap-server", self.broker.endpoint, *words, timeout_s=80)
        except subprocess.TimeoutExpired:
            return False
        self.done += done.status == 0
        return done.status == 0

    def check(self) -> None:
        """See that whatever was acknowledged is so."""
        known = self.release.tool(TOPICS, "--bootstrap-server", self.broker.endpoint, "--list").ok().out.split()
        assert set(self.created) <= set(known)
        assert not set(self.deleted) & set(known)


def to_ours(quorum: Quorum, node_id: int) -> OurReplica:
    """Stop a controller of Kafka, and start a replica of ours on its directory and port."""
    node = quorum.nodes[node_id]
    assert isinstance(node, KafkaNode)
    node.stop()
    replica = quorum.ours(node_id, directory=str(node.directory), file_mode="0644")
    quorum.start(node_id)
    quorum.wait_for_growth()
    return replica


def to_kafka(quorum: Quorum, node_id: int) -> KafkaNode:
    """Stop a replica of ours, and start a controller of Kafka on its directory and port."""
    replica = quorum.nodes[node_id]
    assert isinstance(replica, OurReplica)
    replica.stop()
    node = quorum.kafka(node_id, **{"log.dirs": replica.directory})
    node.directory = replica.directory
    quorum.start(node_id)
    size = log_size(node.partition)
    wait_for("the controller to write", lambda: log_size(node.partition) > size + 500)
    assert node.complaints() == []
    return node


def log_size(partition: Path) -> int:
    """Return how many bytes the segments have."""
    return sum(path.stat().st_size for path in partition.glob("*.log"))


def finish(quorum: Quorum) -> None:
    """Stop everybody and compare what all of them have."""
    for node in quorum.nodes.values():
        node.signal(signal.SIGTERM)
    for node in quorum.nodes.values():
        wait_for(f"the end of {node.node_id}", lambda node=node: not node.running)
    partitions = [node.partition for node in quorum.nodes.values()]
    assert_equal_logs(*partitions, end_offset=common_end(partitions))


def common_end(partitions: list[Path]) -> int:
    """Return where the shortest of these logs ends."""
    from tests.interop.logs import batches

    return min(max(batch.end_offset for batch in batches(partition)) for partition in partitions)


@pytest.mark.each_release
def test_nodes_change_hands_in_a_running_quorum(lab: Lab) -> None:
    """2 controllers + 1 of ours: ours becomes Kafka's, Kafka's becomes ours and Kafka's again; equal logs after."""
    quorum = lab.dynamic(kafka=[1, 2], ours=[3], properties=BUSY)
    quorum.start()
    quorum.wait_for_growth()

    to_ours(quorum, 1)
    to_kafka(quorum, 1)
    to_kafka(quorum, 3)

    finish(quorum)


@pytest.mark.slow
def test_nodes_change_hands_under_load(lab: Lab) -> None:
    """The same with kraft.version 0 and a broker through which topics come and go: every topic is there at the end."""
    quorum = lab.static(kafka=[1, 2], ours=[3], properties=BUSY)
    quorum.start()
    quorum.leader()
    node = quorum.broker(10)
    node.start()
    node.wait_started()
    with Topics(lab.release, node) as topics:
        to_ours(quorum, 1)
        to_kafka(quorum, 1)
        to_kafka(quorum, 3)
        to_ours(quorum, 2)
        to_kafka(quorum, 2)
        wait_for("a few topics", lambda: len(topics.created) >= 3)
    topics.check()
    finish(quorum)
