"""One directory, two programs: Kafka starts on what we formatted and wrote, we open what Kafka wrote, one at a time."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import DirectoryInUseError, KraftError
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
    """Return what lets a replica of ours take the place of `node`: its own server.properties."""
    return attrs.evolve(RaftConfig.from_properties(node.properties_file, tell=lambda text: None), file_mode=0o644)


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
        assert_kafkas_vote_counts(config, node)
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


def assert_kafkas_vote_counts(config: RaftConfig, node: KafkaNode) -> None:
    """What Kafka wrote last is what we vote by, whatever stands in the mirror of our own last vote."""
    written = json.loads((node.partition / "quorum-state").read_text())
    opened = open_directory(config)
    try:
        election = opened.elections.read()
    finally:
        opened.close()
    assert election is not None
    voted = -1 if election.voted_key is None else election.voted_key.id
    leader = -1 if election.leader_id is None else election.leader_id
    assert (election.epoch, leader, voted) == (written["leaderEpoch"], written["leaderId"], written["votedId"])


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
        release=lab.release.version,
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


def flipped(path: Path) -> None:
    """Flip a bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rewritten(path: Path, old: str, new: str) -> None:
    """Put other words into a text file."""
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text))


LOG, STATE = "__cluster_metadata-0/00000000000000000000.log", "__cluster_metadata-0/quorum-state"
OTHER_TOPIC = "c29tZSBvdGhlciB0b3BpYw"
"""Not what one wrong byte could make of the right one: that would be mended."""

TROUBLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "damage in the midst of the log": (
        lambda d: flipped(d / LOG),
        r"log is damaged: .* Nothing was cut|the batch has CRC",
    ),
    "a log of a later format": (
        lambda d: (d / LOG).write_bytes((d / LOG).read_bytes()[:16] + b"\x03" + (d / LOG).read_bytes()[17:]),
        r"log is damaged: .* Nothing was cut|magic 3, only 2 is supported",
    ),
    "meta.properties of a later format": (
        lambda d: rewritten(d / "meta.properties", "version=1", "version=2"),
        r"meta.properties: version is 2, only 1 is known",
    ),
    "no meta.properties": (lambda d: (d / "meta.properties").unlink(), r"is not formatted: run `kraftlib format"),
    "quorum-state of a later format": (
        lambda d: rewritten(d / STATE, r'"data_version":\d', '"data_version":7'),
        r"data version 7, only 0 and 1 are known|lost its election state",
    ),
    "quorum-state is garbage": (lambda d: (d / STATE).write_text("?"), r"quorum-state.*forgotten"),
    "quorum-state is empty": (lambda d: (d / STATE).write_text(""), r"quorum-state.*forgotten"),
    "a log of another topic": (
        lambda d: rewritten(d / "__cluster_metadata-0/partition.metadata", "topic_id: .*", "topic_id: " + OTHER_TOPIC),
        r"partition.metadata is of another topic",
    ),
}
"""What can be wrong with a directory: how it comes about, and what is said."""

DERIVED = (".index", ".timeindex", "leader-epoch-checkpoint")
"""Files that hold nothing but what the log holds, as do those that are ours alone: made anew where they do not fit."""


def test_what_is_wrong_with_a_directory_of_kafka_is_said_and_nothing_is_written(lab: Lab) -> None:
    """Damage, later formats, garbage in a real directory of Kafka's: an error that names file and remedy, no change."""
    quorum = lab.dynamic(kafka=[1], properties=BUSY)
    node = kafka_node(quorum)
    quorum.start(1)
    wait_for_records(node, 20)
    node.stop()
    for number, (what, (spoil, said)) in enumerate(TROUBLE.items()):
        place = lab.home / f"spoilt-{number}"
        shutil.copytree(node.directory, place)
        for path in place.rglob("*.checkpoint"):
            path.chmod(0o600)
        spoil(place)
        before = contents(place)
        with pytest.raises(KraftError, match=said), RaftClient(attrs.evolve(our_config(quorum, node), directory=place)):
            pytest.fail(f"started in spite of {what}")
        assert contents(place) == before, what


def test_an_unclean_stop_costs_the_torn_tail_and_no_more(lab: Lab) -> None:
    """A directory after kill -9 with half a batch at the end: that is cut, the rest kept to the byte, and we lead."""
    quorum = lab.dynamic(kafka=[1], properties=BUSY)
    node = kafka_node(quorum)
    quorum.start(1)
    wait_for_records(node, 20)
    node.kill()
    log = node.directory / LOG
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:40])

    with RaftClient(our_config(quorum, node), serde=BytesSerde()) as client:
        client.wait_for_leader(timeout_ms=PATIENCE_MS)
    assert log.read_bytes().startswith(whole)
    assert whole[:40] not in log.read_bytes()[len(whole) :]


def contents(directory: Path) -> dict[str, bytes]:
    """Return everything that cannot be derived from the rest."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith(DERIVED) and not path.name.startswith((".lock", "kraftlib-"))
    }


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
    # Since 4.4 who waits to be taken in knows that the quorum is a dynamic one.
    assert status.kraft_version == (1 if how == "--standalone" or lab.release.at_least(4, 4) else 0)


def test_a_directory_of_another_cluster_is_refused_and_left_alone(lab: Lab) -> None:
    """Kafka's own rules, and nothing written: another cluster id, another node id."""
    quorum = lab.static(kafka=[1])
    node = kafka_node(quorum)
    before = {path: path.stat().st_mtime_ns for path in node.directory.rglob("*") if path.is_file()}
    for wrong in ({"cluster_id": "another"}, {"node_id": 2, "voters": (StaticVoter(2, Endpoint("127.0.0.1", 1)),)}):
        with pytest.raises(ValueError, match=r"cluster|node"):
            open_directory(attrs.evolve(our_config(quorum, node), **wrong))

    assert {path: path.stat().st_mtime_ns for path in before} == before
