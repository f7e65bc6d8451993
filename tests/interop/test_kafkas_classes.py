"""Small files and compressed batches: Kafka's own classes read ours, and we read theirs (`peer/Files.java`)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.metadata.frame import encode_record
from kraftlib.metadata.topic_records import TopicRecord
from kraftlib.records.batch import encode_batch, read_batches
from kraftlib.records.compression import Codec
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.records.serde import BytesSerde
from kraftlib.storage.directory import format_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import Endpoint, new_uuid
from tests.interop.kafka import DUMP, Release
from tests.interop.peer import compiled
from tests.interop.processes import PATIENCE_S, free_ports
from tests.interop.test_files import NOW_MS, metadata_values, no_complaint, our_dump

PATIENCE_MS = 30_000


def ask(release: Release, orders: Sequence[Sequence[object]]) -> list[str]:
    """Give orders to Kafka's classes; return a line for each."""
    done = subprocess.run(
        release.java("Files", classes=compiled(release)),
        input="".join(" ".join(map(str, order)) + "\n" for order in orders),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.each_release
def test_kafka_reads_the_small_files_of_a_replica_that_has_led(release: Release, tmp_path: Path) -> None:
    """quorum-state of both versions, leader-epoch-checkpoint, partition.metadata, meta.properties, producer state."""
    for kraft_version in (0, 1):
        directory = tmp_path / f"replica-{kraft_version}"
        place = Endpoint("127.0.0.1", free_ports(1)[0])
        how: dict[str, Any] = {"standalone": place} if kraft_version else {"static_voters": [7]}
        voters: dict[str, Any] = (
            {"bootstrap_servers": (place,)} if kraft_version else {"voters": (StaticVoter(7, place),)}
        )
        format_directory(directory, node_id=7, cluster_id="AAECAwQFBgcICQoLDA0ODw", **how)
        config = RaftConfig(node_id=7, directory=directory, listen=place, **voters)
        for _ in range(2):  # two epochs
            with RaftClient(config, serde=BytesSerde()) as client:
                client.wait_for_leader(timeout_ms=PATIENCE_MS)
                client.append([b"a value"])
                status = client.status()
        partition = directory / "__cluster_metadata-0"

        names = ("quorum-state", "leader-epoch-checkpoint", "partition.metadata")
        orders = [*((name, partition / name) for name in names), ("meta.properties", directory / "meta.properties")]
        election, epochs, topic_id, meta = ask(release, orders)
        snapshot = max(partition.glob("*.snapshot"))
        shown = release.tool(DUMP, "--files", snapshot).ok()

        epoch, leader, voted, voted_directory = election.split()
        state = json.loads((partition / "quorum-state").read_text())
        assert state["data_version"] == kraft_version
        assert (int(epoch), int(leader), int(voted)) == (status.epoch, state["leaderId"], state["votedId"])
        assert voted_directory == (status.directory_id if kraft_version and voted != "-1" else "-")
        known = [[int(number) for number in pair] for pair in re.findall(r"epoch=(\d+), startOffset=(\d+)", epochs)]
        assert known == [
            list(map(int, line.split()))
            for line in (partition / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        ]
        assert len(known) == 2
        assert topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
        told = dict(re.findall(r"(\w+)=([\w-]+)", meta))
        assert told == {
            "version": "1", "clusterId": "AAECAwQFBgcICQoLDA0ODw", "nodeId": "7", "directoryId": status.directory_id,
        }  # fmt: skip
        no_complaint(shown)
        assert shown.out == our_dump([snapshot])


@pytest.mark.each_release
def test_we_read_batches_of_kafka_in_every_codec(release: Release, tmp_path: Path) -> None:
    """Kafka's classes make a batch with each of five codecs; we read codec, offsets, epoch and the same values."""
    segment = tmp_path / f"{0:020}.log"
    values = {codec: [f"{codec.name}-{number}-" + "x" * 20 * number for number in range(40)] for codec in Codec}
    orders = [
        ("batch", segment, codec.name.lower(), 40 * place, 3, *texts)
        for place, (codec, texts) in enumerate(values.items())
    ]

    assert ask(release, orders) == ["written"] * len(orders)
    batches = list(read_batches(segment.read_bytes(), origin=0))

    assert [batch.codec for batch in batches] == list(values)
    assert [batch.base_offset for batch in batches] == [0, 40, 80, 120, 160]
    assert {batch.epoch for batch in batches} == {3}
    for batch, texts in zip(batches, values.values(), strict=True):
        assert [bytes(value).decode() for value in batch.values()] == texts


@pytest.mark.each_release
def test_kafkas_shell_reads_our_segment(release: Release, tmp_path: Path) -> None:
    """Kafka's metadata shell replays a segment of ours with a topic in each codec."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition)
    voters = (LeaderChangeMessage.Voter(voter_id=1),)
    change = LeaderChangeMessage(leader_id=1, voters=voters, granting_voters=voters)
    log.append([encode_control_batch([change], timestamp_ms=NOW_MS, epoch=1)])
    log.append([encode_batch(metadata_values()[:1], timestamp_ms=NOW_MS, base_offset=1, epoch=1)])
    for codec in Codec:
        value = encode_record(TopicRecord(name=f"of-{codec.name.lower()}", topic_id=new_uuid()), 0)
        log.append([encode_batch([value], timestamp_ms=NOW_MS, base_offset=log.end_offset, epoch=1, codec=codec)])
    for _ in range(3):  # the shell often stops short of the last batch
        idle = encode_batch(metadata_values()[-1:], timestamp_ms=NOW_MS, base_offset=log.end_offset, epoch=1)
        log.append([idle])
    log.close()
    (segment,) = partition.glob("*.log")
    names = sorted(f"of-{codec.name.lower()}" for codec in Codec)

    assert sorted(release.shell(segment, "ls", "/image/topics/byName", having=names).split()) == names
