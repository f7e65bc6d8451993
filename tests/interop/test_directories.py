"""One directory, two programs: Kafka starts on what we formatted and wrote, we open what Kafka wrote, one at a time."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import DirectoryInUseError
from kraftlib.metadata.frame import encode_record
from kraftlib.metadata.topic_records import TopicRecord
from kraftlib.records.batch import Batch
from kraftlib.records.serde import BytesSerde
from kraftlib.storage.directory import format_directory, open_directory
from kraftlib.types import Endpoint, new_uuid
from tests.interop.kafka import KafkaNode
from tests.interop.lab import BUSY, Lab, Quorum
from tests.interop.processes import wait_for

PATIENCE_MS = 30_000


def kafka_node(quorum: Quorum) -> KafkaNode:
    """Return its one controller."""
    (node,) = quorum.nodes.values()
    assert isinstance(node, KafkaNode)
    return node


def our_config(quorum: Quorum, node: KafkaNode) -> RaftConfig:
    """Return what lets a replica of ours take the place of `node`."""
    is_static = "voters" in quorum.our_words
    return RaftConfig(
        node_id=node.node_id,
        directory=node.directory,
        listen=node.endpoint,
        voters=(StaticVoter(node.node_id, node.endpoint),) if is_static else (),
        bootstrap_servers=() if is_static else (node.endpoint,),
        file_mode=0o644,
    )


def batches_of(config: RaftConfig) -> list[Batch]:
    """Return all that is in a log, opened by us."""
    opened = open_directory(config)
    try:
        found: list[Batch] = []
        offset = opened.log.start_offset
        while offset < opened.log.end_offset:
            found += opened.log.read(offset, 1 << 20)
            offset = found[-1].end_offset
        return found
    finally:
        opened.close()


def segment_bytes(partition: Path) -> bytes:
    """Return the bytes of the log files of a stopped replica."""
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))


def wait_for_records(node: KafkaNode, count: int) -> None:
    """Wait until the log of a controller has grown by so many bytes' worth of records."""
    size = len(segment_bytes(node.partition))
    wait_for(f"{count} records of {node.log.stem}", lambda: len(segment_bytes(node.partition)) > size + 70 * count)


@pytest.mark.each_release
def test_a_directory_goes_back_and_forth(lab: Lab) -> None:
    """Kafka writes, is stopped or killed; we open its directory to the byte, lead on it and write; Kafka goes on."""
    go_back_and_forth(lab.dynamic(kafka=[1], properties=BUSY))


@pytest.mark.each_release
@pytest.mark.slow
def test_a_directory_of_a_static_quorum_goes_back_and_forth(lab: Lab) -> None:
    """The same with kraft.version 0."""
    go_back_and_forth(lab.static(kafka=[1], properties=BUSY))


def go_back_and_forth(quorum: Quorum) -> None:
    """Let Kafka and us take turns on one directory, four times."""
    node = kafka_node(quorum)
    config = our_config(quorum, node)
    for turn, name in enumerate(["first", "second"]):
        node.start()
        node.wait_started()
        wait_for_records(node, 5)
        if turn == 0:
            assert node.stop() == 143
        else:
            node.kill()
        theirs = segment_bytes(node.partition)
        assert b"".join(batch.data for batch in batches_of(config)) == theirs

        with RaftClient(config, serde=BytesSerde()) as client:
            leader = client.wait_for_leader(timeout_ms=PATIENCE_MS)
            appended = client.append([encode_record(TopicRecord(name=name, topic_id=new_uuid()), 0)])
            assert leader.leader_id == 1
        ours = segment_bytes(node.partition)
        assert ours.startswith(theirs)
        assert ours[len(theirs) :] == b"".join(batch.data for batch in batches_of(config))[len(theirs) :]
        node.start()
        node.wait_started()
        wait_for_records(node, 3)
        assert node.complaints() == []
        assert node.stop() == 143
        assert segment_bytes(node.partition).startswith(ours)
        shown = node.release.dump(next(node.partition.glob("*0.log"))).ok()
        assert f'"name":"{name}"' in shown.out
        assert batches_of(config)[-1].last_offset > appended.last_offset


@pytest.mark.parametrize("how", ["static", "standalone"])
def test_kafka_starts_on_a_directory_that_we_formatted(lab: Lab, how: str) -> None:
    """A controller starts on what `kraftlib format` made, for a static quorum and for a dynamic one; so do we after."""
    place = lab.endpoint()
    words = {"controller.quorum.voters": f"1@{place}"}
    ours = {"voters": f"1@{place}"}
    if how == "standalone":
        words, ours = {"controller.quorum.bootstrap.servers": str(place)}, {"bootstrap_servers": str(place)}
    quorum = Quorum(lab, words, ours, {1: place}, dict(BUSY), {})
    node = quorum.kafka(1)
    format_directory(
        node.directory,
        node_id=1,
        cluster_id=lab.cluster_id,
        standalone=place if how == "standalone" else None,
        static_voters=[1] if how == "static" else (),
    )

    node.start()
    node.wait_started()
    wait_for_records(node, 5)
    status = lab.release.quorum([place], "describe", "--status").ok().out

    assert f"ClusterId:              {lab.cluster_id}" in status
    assert node.complaints() == []
    assert node.stop() == 143
    assert b"".join(batch.data for batch in batches_of(our_config(quorum, node))) == segment_bytes(node.partition)


@pytest.mark.each_release
def test_a_running_jvm_keeps_us_out_and_we_keep_it_out(lab: Lab) -> None:
    """Two programs on one directory: the second one is refused, names the directory, and changes nothing."""
    quorum = lab.static(kafka=[1])
    node = kafka_node(quorum)
    config = our_config(quorum, node)
    quorum.start(1)
    with pytest.raises(DirectoryInUseError, match=f"process {node.pid}"):
        open_directory(config)
    assert node.running
    node.stop()

    opened = open_directory(config)
    try:
        before = segment_bytes(node.partition)
        node.start()
        node.wait_for_line("Failed to acquire lock on file .lock")
        assert wait_for("the end of the JVM", lambda: node.status) == 1
        assert segment_bytes(node.partition) == before
    finally:
        opened.close()


@pytest.mark.parametrize("how", ["--standalone", "--no-initial-controllers"])
def test_we_open_what_kafka_formatted(lab: Lab, how: str) -> None:
    """`kafka-storage format` in each dynamic mode: ids and first voters are as Kafka wrote them."""
    place = lab.endpoint()
    quorum = Quorum(lab, {"controller.quorum.bootstrap.servers": str(place)}, {}, {1: place}, {}, {})
    node = quorum.kafka(1)
    node.format(lab.cluster_id, how)
    told = (node.directory / "meta.properties").read_text()

    config = our_config(quorum, node)
    client = RaftClient(config, serde=BytesSerde())
    with client:
        if how == "--standalone":
            client.wait_for_leader(timeout_ms=PATIENCE_MS)
        status = client.status()

    assert status.cluster_id == lab.cluster_id
    assert f"directory.id={status.directory_id}" in told
    assert [voter.id for voter in status.voters] == ([1] if how == "--standalone" else [])
    assert status.kraft_version == (1 if how == "--standalone" else 0)


def test_a_directory_of_another_cluster_is_refused_and_left_alone(lab: Lab) -> None:
    """Kafka's own rules, and nothing written: another cluster id, another node id."""
    quorum = lab.static(kafka=[1])
    node = kafka_node(quorum)
    before = {path: path.stat().st_mtime_ns for path in node.directory.rglob("*") if path.is_file()}
    for wrong in ({"cluster_id": "another"}, {"node_id": 2, "voters": (StaticVoter(2, Endpoint("127.0.0.1", 1)),)}):
        with pytest.raises(ValueError, match=r"cluster|node"):
            open_directory(attrs.evolve(our_config(quorum, node), **wrong))

    assert {path: path.stat().st_mtime_ns for path in before} == before
