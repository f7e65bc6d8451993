"""Files of ours, read by Kafka's tools: what they print is what we meant, and what `kraftlib dump-log` prints."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftlib.cli import main
from kraftlib.metadata.config_records import ConfigRecord, FeatureLevelRecord
from kraftlib.metadata.frame import encode_record
from kraftlib.metadata.log_records import NoOpRecord
from kraftlib.metadata.topic_records import TopicRecord
from kraftlib.records.batch import encode_batch
from kraftlib.records.compression import Codec
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.storage.bootstrap import InitialController, first_voters
from kraftlib.storage.directory import format_directory
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import Endpoint, OffsetAndEpoch, new_uuid
from tests.interop.kafka import DUMP, Output, Release

NOW_MS = 1_795_255_808_172
TOPIC_ID = new_uuid()
VOTERS = first_voters(
    [InitialController(number, Endpoint("127.0.0.1", 9092 + number), new_uuid()) for number in (1, 2, 3)],
    listener_name="CONTROLLER",
)


def metadata_values(count: int = 5) -> list[bytes]:
    """Values that Kafka's readers of metadata understand."""
    return [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=21), 0),
        encode_record(TopicRecord(name="events", topic_id=TOPIC_ID), 0),
        encode_record(ConfigRecord(resource_type=2, resource_name="events", name="retention.ms", value="5"), 0),
        *[encode_record(NoOpRecord(), 0)] * (count - 3),
    ]


def dump(release: Release, paths: Sequence[Path], *options: str) -> str:
    """Return what Kafka prints of these files, which it must not complain of."""
    shown = release.tool(DUMP, "--cluster-metadata-decoder", "--files", ",".join(map(str, paths)), *options).ok()
    no_complaint(shown)
    return shown.out


def no_complaint(shown: Output) -> None:
    """The exit status is 0 for damaged files as well; and every segment that does not begin at 0 is called a gap."""
    gaps = [line for line in shown.err.splitlines() if "is followed by" in line and "-1 is followed by" not in line]
    assert gaps == []
    assert "isvalid: false" not in shown.out
    assert "invalid bytes" not in shown.out
    assert "Exception" not in shown.err


def our_dump(paths: Sequence[Path]) -> str:
    """Return what `kraftlib dump-log` prints of these files."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["dump-log", "--cluster-metadata-decoder", *map(str, paths)]) == 0
    return out.getvalue()


def like(release: Release, text: str) -> str:
    """Put our text, which is that of 4.1 and later, into the words of the release."""
    if release.at_least(4, 1):
        return text
    lines = [line.partition(" LeaderChange: ")[0] for line in text.splitlines(keepends=True)]
    return "".join(line if line.endswith("\n") else f"{line} controlType: LEADER_CHANGE(2)\n" for line in lines)


@pytest.mark.each_release
def test_kafka_reads_segments_of_every_codec_over_roll_overs(release: Release, tmp_path: Path) -> None:
    """Kafka's dump tool prints our segments as our own does: control batches, five codecs, three segments."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition, segment_bytes=600)
    voters = tuple(LeaderChangeMessage.Voter(voter_id=number) for number in (1, 2, 3))
    change = LeaderChangeMessage(leader_id=1, voters=voters, granting_voters=voters[:2])
    log.append([encode_control_batch([change], timestamp_ms=NOW_MS, epoch=1)])
    for number, codec in enumerate([*Codec, *Codec]):
        values = metadata_values(4 + number % 3)
        log.append(
            [encode_batch(values, timestamp_ms=NOW_MS + number, base_offset=log.end_offset, epoch=1, codec=codec)]
        )
    log.close()
    segments = sorted(partition.glob("*.log"))

    shown = dump(release, segments)

    assert len(segments) >= 3
    assert shown == like(release, our_dump(segments))
    for codec in Codec:
        assert f"compresscodec: {codec.name.lower()}" in shown
    assert '"name":"events"' in shown


@pytest.mark.each_release
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_kafka_reads_checkpoints(release: Release, tmp_path: Path, kraft_version: int) -> None:
    """Kafka's dump tool and metadata shell read our checkpoints of both kraft versions."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition)
    log.append([encode_batch(metadata_values(40), timestamp_ms=NOW_MS, epoch=1)])
    sink = log.create_snapshot(OffsetAndEpoch(epoch=1, offset=40))
    writer = SnapshotWriter(
        sink.write,
        epoch=1,
        last_contained_log_timestamp=NOW_MS,
        kraft_version=kraft_version,
        voters=VOTERS if kraft_version else None,
    )
    writer.append(metadata_values())
    writer.freeze()
    sink.freeze()
    log.close()
    (checkpoint,) = partition.glob("*.checkpoint")

    shown = dump(release, [checkpoint])
    topics = release.shell(checkpoint, "ls", "/image/topics/byName")

    assert shown == like(release, our_dump([checkpoint]))
    assert "Snapshot end offset: 40, epoch: 1" in shown
    assert ("KRaftVoters" in shown) == bool(kraft_version)
    assert topics.split() == ["events"]


@pytest.mark.each_release
def test_kafka_reads_what_format_writes(release: Release, tmp_path: Path) -> None:
    """Kafka's dump tool prints our bootstrap.checkpoint and 0-0 checkpoint as our own does."""
    format_directory(tmp_path / "d", node_id=1, cluster_id="c", standalone=Endpoint("127.0.0.1", 9093))
    checkpoints = sorted((tmp_path / "d").rglob("*.checkpoint"))

    shown = dump(release, checkpoints)

    assert [path.name for path in checkpoints] == [f"{0:020}-{0:010}.checkpoint", "bootstrap.checkpoint"]
    assert shown == like(release, our_dump(checkpoints))
    assert "KRaft bootstrap snapshot" in shown
    assert '"name":"metadata.version"' in shown


@pytest.mark.each_release
def test_kafka_sanity_checks_our_indexes(release: Release, tmp_path: Path) -> None:
    """Kafka's `--index-sanity-check` passes on the indexes that stand beside our segments."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition, segment_bytes=100_000)
    while log.end_offset < 3_000:
        log.append([encode_batch(metadata_values(50), timestamp_ms=NOW_MS, base_offset=log.end_offset, epoch=1)])
    log.close()
    indexes = sorted([*partition.glob("*.index"), *partition.glob("*.timeindex")])

    shown = dump(release, indexes)

    assert len(indexes) >= 2
    assert "Mismatches" not in shown
    assert shown == our_dump(indexes)


def test_a_batch_of_ours_with_opaque_values_is_read(release: Release, tmp_path: Path) -> None:
    """Kafka's `--print-data-log` prints the payloads of opaque records, in every codec."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition)
    for codec in Codec:
        values = [json.dumps({"codec": codec.name, "number": number}).encode() for number in range(3)]
        log.append([encode_batch(values, timestamp_ms=NOW_MS, base_offset=log.end_offset, epoch=2, codec=codec)])
    log.close()
    (segment,) = partition.glob("*.log")

    shown = release.dump(segment, opaque=True).ok()

    no_complaint(shown)
    for codec in Codec:
        assert f'payload: {{"codec": "{codec.name}", "number": 2}}' in shown.out


def test_an_upgrade_in_the_log_is_read(release: Release, tmp_path: Path) -> None:
    """Kafka's dump tool prints the one control batch that makes a static quorum dynamic."""
    partition = tmp_path / "__cluster_metadata-0"
    partition.mkdir()
    log = FileReplicatedLog.open(partition)
    log.append([encode_control_batch([KRaftVersionRecord(kraft_version=1), VOTERS], timestamp_ms=NOW_MS, epoch=3)])
    log.close()
    (segment,) = partition.glob("*.log")

    assert dump(release, [segment]) == our_dump([segment])
