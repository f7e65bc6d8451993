"""A checkpoint must be whole, within the log, alike in all replicas, and what the log comes to."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kraftlib.analysis.audit import audit
from kraftlib.analysis.audit_snapshots import snapshot_findings
from kraftlib.analysis.headers import walk
from kraftlib.metadata import FeatureLevelRecord, encode_record
from kraftlib.records.checksum import crc32c
from kraftlib.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from tests.analysis.faults import inject, make_replicas, some_batches
from tests.analysis.logs import write_snapshot
from tests.captured import DATA


def tamper(path: Path) -> None:
    """Change one byte of the last data record of a checkpoint, and the CRC with it."""
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    headers = walk(bytes(data)).headers
    start, end = int(headers.start[-2]), int(headers.end[-2])
    data[end - 2] ^= 0x01  # in the value of the last record, before its number of headers
    data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4)
    path.write_bytes(data)


@pytest.mark.parametrize("replicas", ["1", "1 4"])
def test_a_checkpoint_of_kafkas_that_does_not_say_what_the_log_comes_to_is_found(tmp_path: Path, replicas: str) -> None:
    shutil.copytree(DATA / "kafka-4.3.1", tmp_path / "k")
    for replica in replicas.split():
        tamper(next((tmp_path / "k" / f"n{replica}").rglob("*0272-0000000004.checkpoint")))
    found = audit(tmp_path / "k").findings
    assert [(f.replica, f.kind, f.end_offset, f.what) for f in found] == [
        (replica, "snapshot", 272, "it does not say what the log comes to") for replica in replicas.split()
    ]


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_log_that_is_itself_in_question_does_not_decide_about_checkpoints(tmp_path: Path, replicas: int) -> None:
    for number in range(1, replicas + 1):
        shutil.copytree(
            DATA / "kafka-4.3.1" / "n1" / "__cluster_metadata-0",
            tmp_path / f"cluster=c/replica={number}/__cluster_metadata-0",
        )
    foreign = next((DATA / "kafka-3.9.2" / "n1").rglob("*.log"))
    shutil.copy(foreign, tmp_path / "cluster=c/replica=1/__cluster_metadata-0" / foreign.name)
    found = [finding for finding in audit(tmp_path).findings if finding.kind == "snapshot"]
    assert [(f.replica, f.end_offset, f.what) for f in found] == [
        ("1", 272, "it ends at 272, and the log of its replica at 236")
    ]


def test_the_majority_decides_between_checkpoints_of_another_state_machine(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    at = OffsetAndEpoch(offset=80, epoch=5)
    for number, place in enumerate(places):
        write_snapshot(place, [b"a", b"b", b"c"] if number != 1 else [b"a", b"x", b"c"], at=at)
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind, finding.end_offset) == ("2", "snapshot", 80)


def test_the_order_of_the_records_of_a_checkpoint_means_nothing(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    for place, values in zip(places, ([b"a", b"b"], [b"b", b"a"], [b"a", b"b"]), strict=True):
        write_snapshot(place, values, at=OffsetAndEpoch(offset=80, epoch=5))
    assert audit(tmp_path).findings == ()


def test_of_two_checkpoints_that_differ_nothing_tells_which_is_right(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    for place, value in zip(places, (b"a", b"b"), strict=True):
        write_snapshot(place, [value], at=OffsetAndEpoch(offset=80, epoch=5))
    assert [(f.replica, f.kind) for f in audit(tmp_path).findings] == [("1", "undecided"), ("2", "undecided")]


def test_a_checkpoint_beyond_its_log_is_found(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60))
    write_snapshot(places[2], [b"a"], at=OffsetAndEpoch(offset=481, epoch=6))
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind, finding.what) == (
        "3",
        "snapshot",
        "it ends at 481, and the log of its replica at 480",
    )


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("epoch", [4, 9])
def test_a_checkpoint_of_an_epoch_that_its_log_has_not_there_is_found(
    tmp_path: Path, replicas: int, epoch: int
) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=replicas)
    write_snapshot(places[-1], [b"a"], at=OffsetAndEpoch(offset=80, epoch=epoch))
    for place in places:
        write_snapshot(place, [b"a"], at=OffsetAndEpoch(offset=160, epoch=5))
    (finding,) = audit(tmp_path).findings
    assert (finding.replica, finding.kind, finding.end_offset, finding.what) == (
        str(replicas),
        "snapshot",
        80,
        f"it is of epoch {epoch}, and the record before offset 80 has epoch 5 in the log",
    )


def test_a_log_that_is_wrong_before_a_checkpoint_does_not_tell_its_epoch(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    inject(places[0], 9, "epoch", chance=random.Random(3))
    for place in places:
        write_snapshot(place, [b"a"], at=OffsetAndEpoch(offset=80, epoch=5))
    assert {(f.replica, f.kind) for f in audit(tmp_path).findings} == {("1", "differs")}


@pytest.mark.parametrize("values", [[b"a"], [b"", b"a"], [bytes([1, 2, 0]), b"a"]])
def test_of_another_state_machine_no_state_is_folded(tmp_path: Path, values: list[bytes]) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    for place in places:
        write_snapshot(place, values, at=OffsetAndEpoch(offset=80, epoch=5))
    ranges = audit(tmp_path).replicas

    def fold(path: str, **options: object) -> list[tuple[bytes, bytes]]:
        raise AssertionError(f"{path} was folded with {options}")

    assert snapshot_findings(tmp_path, ranges, fold, in_logs=()) == []


@pytest.mark.parametrize("kind", ["length", "magic", "crc"])
def test_damage_before_a_checkpoint_does_not_end_the_audit(tmp_path: Path, kind: str) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2)
    for index in tmp_path.rglob("*.index"):
        index.unlink()
    inject(places[0], 5, kind, chance=random.Random(3))
    for place in places:
        write_snapshot(place, [b"a"], at=OffsetAndEpoch(offset=240, epoch=5))
    found = audit(tmp_path).findings
    assert found
    assert {finding.replica for finding in found} == {"1"}
    assert "snapshot" not in {finding.kind for finding in found}


def test_the_checkpoint_with_which_a_node_was_formatted_is_no_state_of_the_log(tmp_path: Path) -> None:
    """That of Kafka 4.4 holds metadata, which the log has behind its first records."""
    node = tmp_path / "n"
    shutil.copytree(DATA / "kafka-4.3.1" / "n1", node)
    place = node / "__cluster_metadata-0"
    place.chmod(0o700)
    feature = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=29), 0)
    for path in place.glob("*-0000000000.checkpoint"):
        path.unlink()
    write_snapshot(place, [feature], at=BOOTSTRAP_SNAPSHOT)
    assert audit(node).findings == ()
