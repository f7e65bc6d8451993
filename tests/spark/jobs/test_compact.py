"""Jobs on Spark: each gives what its twin in one process gives."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.compacting import ROWS, folded, latest, merge_chain, quorum_at, with_positions
from kraftlib.analysis.metadata_state import key_of_value, metadata_state
from kraftlib.analysis.reading import read_table
from kraftlib.errors import ConfigError
from kraftlib.metadata import encode_record
from kraftlib.metadata.broker_records import FenceBrokerRecord
from kraftlib.records.batch import Batch, assemble
from kraftlib.records.increment import IncrementReader
from kraftlib.records.record import Record, encode_block
from kraftlib.spark.jobs.compact import compact, fold, increment, metadata, metadata_increment, quorum
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch
from tests.analysis.kafka_histories import a_history
from tests.archive.archives import a_writer, an_archive, store_checkpoint
from tests.captured import DATA
from tests.storage.replicas import controllers, make_replica

ID = {"endOffset": "3000", "epoch": "1"}


def a_batch(base_offset: int, rows: list[tuple[bytes | None, bytes | None]]) -> Batch:
    """Return a batch whose records have keys."""
    records = [Record(base_offset + at, 1, key, value, ()) for at, (key, value) in enumerate(rows)]
    block = encode_block(records, base_offset=base_offset, base_timestamp=1)
    return assemble([block], len(records), 0, 1, 1, base_offset, 1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 records of 200 keys in several segments; every fifth is a deletion."""
    chance = random.Random(3)
    archive = an_archive(tmp_path_factory.mktemp("log"))
    with a_writer(archive, segment_bytes=20_000) as writer:
        for base in range(0, 3_000, 50):
            rows = [
                (b"key %03d" % chance.randrange(200), None if chance.random() < 0.2 else b"%d" % (base + at))
                for at in range(50)
            ]
            writer.write([a_batch(base, rows)])
    return archive.path


def twin_rows(path: Path, **options: Any) -> pa.Table:
    return with_positions(read_table(path, columns=ROWS, **options))


def state_of(frame: Any) -> list[tuple[bytes, bytes | None]]:
    return sorted((bytes(row.key), None if row.value is None else bytes(row.value)) for row in frame.collect())


def pairs(table: pa.Table) -> list[tuple[bytes, bytes | None]]:
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_a_compaction_gives_the_checkpoint_of_its_twin_to_the_byte(spark: Any, log: Path, tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    twin = write_table(latest(twin_rows(log)), parse_checkpoint_options({"path": str(tmp_path / "twin"), **ID}))

    compact(spark, log).write.format("kraft").mode("append").options(**ID).save(str(tmp_path / "spark"))

    assert (tmp_path / "spark" / twin.path.name).read_bytes() == twin.path.read_bytes()
    assert 100 < twin.records < 200


def test_the_end_and_the_key_may_be_chosen(spark: Any, log: Path) -> None:
    some = compact(spark, log, key="substring(string(key), 1, 6)", keep_deleted=True, endOffset=1_000)
    rows = twin_rows(log, endOffset=1_000)
    shorter = pa.array([key[:6] for key in rows["key"].to_pylist()], pa.binary())

    assert state_of(some) == pairs(latest(rows.set_column(1, "key", shorter), keep_deleted=True))


def test_an_increment_is_what_changed_between_two_ids(spark: Any, log: Path, tmp_path: Path) -> None:
    base, target = OffsetAndEpoch(offset=1_000, epoch=1), OffsetAndEpoch(offset=2_000, epoch=1)
    path = increment(spark, log, tmp_path, base=base, target=target)

    with IncrementReader(FileSnapshotSource(path), epoch=1) as reader:
        assert reader.base == base
        changes = list(reader.changes())
    assert changes == pairs(latest(twin_rows(log, startOffset=1_000, endOffset=2_000), keep_deleted=True))


class Sums:
    """A record adds to the sum of its group."""

    def group_of(self, value: bytes) -> bytes:
        return value[-1:]

    def fold(self, state: dict[bytes, bytes], value: bytes) -> None:
        key = b"sum " + value[-1:]
        state[key] = b"%d" % (int(state.get(key, b"0")) * 3 % 1_000_003 + int(value))


def test_a_fold_on_many_processors_is_the_fold_in_one(spark: Any, tmp_path: Path) -> None:
    """The order of the records counts in it, and a snapshot stands before the log behind it."""
    archive = an_archive(tmp_path)
    with a_writer(archive, segment_bytes=5_000) as writer:
        writer.begin_after(store_checkpoint(archive, 100, 1, values=[b"%d" % number for number in range(40)]))
        for base in range(100, 1_100, 50):
            writer.write([a_batch(base, [(None, b"%d" % (base + at)) for at in range(50)])])
    twin = folded(twin_rows(archive.path, include="latest"), Sums())

    assert state_of(fold(spark, archive.path, Sums())) == pairs(twin)
    assert len(twin) == 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a Kafka cluster in several segments: partitions change, topics go, brokers are fenced."""
    archive = an_archive(tmp_path_factory.mktemp("cluster"))
    records = a_history(random.Random(11), 600)
    values = [encode_record(record, max(type(record).valid_versions)) for record in records]
    with a_writer(archive, segment_bytes=8_000) as writer:
        for base in range(0, 600, 20):
            writer.write([a_batch(base, [(None, value) for value in values[base : base + 20]])])
    return archive.path


def test_the_state_of_a_kafka_cluster_is_that_of_the_twin(spark: Any, cluster: Path) -> None:
    for path, end in ((cluster, 600), (DATA / "kafka-4.3.1" / "n1", 150)):
        assert state_of(metadata(spark, path, endOffset=end)) == pairs(metadata_state(path, endOffset=end))


def test_a_record_that_does_not_fit_fails_the_fold(spark: Any, tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write([a_batch(0, [(None, encode_record(FenceBrokerRecord(id=9), 0))])])
    with pytest.raises(Exception, match="a FenceBrokerRecord is about something that does not exist: id=9"):
        metadata(spark, archive.path).collect()


def test_checkpoints_and_increments_of_a_cluster_merge_into_the_bytes_of_a_full_build(
    spark: Any, cluster: Path, tmp_path: Path
) -> None:
    ids = [OffsetAndEpoch(offset=offset, epoch=1) for offset in (200, 400, 600)]

    def options(name: str, at: OffsetAndEpoch) -> dict[str, str]:
        return {"path": str(tmp_path / name), "endOffset": str(at.offset), "epoch": "1"}

    for name, at in (("base", ids[0]), ("full", ids[2])):
        state = metadata(spark, cluster, include="log", endOffset=at.offset)
        state.write.format("kraft").mode("append").options(**options(name, at)).save()
    (base,), (full,) = (list((tmp_path / name).iterdir()) for name in ("base", "full"))
    steps = [metadata_increment(spark, cluster, tmp_path, base=a, target=b) for a, b in pairwise(ids)]
    (tmp_path / "merged").mkdir()
    merged = merge_chain(base, steps, parse_checkpoint_options(options("merged", ids[2])), key_of=key_of_value)

    assert merged.path.read_bytes() == full.read_bytes()


def test_records_without_keys_and_columns_of_the_job_are_told(spark: Any, log: Path, tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write([a_batch(0, [(b"k", b"v"), (None, b"v")])])
    with pytest.raises(Exception, match="the record at position 1 has no key"):
        compact(spark, archive.path).collect()
    with pytest.raises(ConfigError, match="view and columns itself"):
        compact(spark, log, view="batches")


def test_who_votes_is_what_the_twin_says(spark: Any, tmp_path: Path) -> None:
    replica = make_replica(tmp_path / "r", voters=controllers(1, 2, 3))
    assert quorum(spark, replica) == quorum_at(replica)
    assert quorum(spark, replica, endOffset=1, include="log") == (0, None)
