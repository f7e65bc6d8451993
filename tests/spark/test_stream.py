"""`spark.readStream.format("kraft")`: every committed record once, whatever happens to the query or the quorum."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.spark import register
from kraftlib.spark.stream import StreamReader
from kraftlib.spark.stream_options import parse_stream_options
from kraftlib.types import Endpoint
from tests.archive.archives import a_writer, an_archive, store_checkpoint
from tests.cli.processes import free_port
from tests.storage.builders import a_batch, some_batches

PATIENCE_S = 60
BATCHES = some_batches(1, 1, 2, 2, 3, records=5, size=40)


class Query:
    """A query that keeps what each of its batches holds, and can be started again from its checkpoint."""

    def __init__(self, spark: Any, archive: Path, checkpoint: Path) -> None:
        register(spark)
        self._spark, self._archive, self._checkpoint = spark, archive, checkpoint
        self.batches: dict[int, list[int]] = {}
        self._arrived = threading.Condition()
        self.query: Any = None

    def start(self, *, once: bool = False, **options: object) -> Query:
        reader = self._spark.readStream.format("kraft").options(**options)
        frame = reader.load(str(self._archive))
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        self.query = (writer.trigger(availableNow=True) if once else writer).start()
        return self

    def _take(self, frame: Any, batch_id: int) -> None:
        rows = sorted(row.offset for row in frame.select("offset").collect())
        with self._arrived:
            self.batches[batch_id] = rows
            self._arrived.notify_all()

    def run(self, **options: object) -> list[list[int]]:
        """Read what there is now; return the offsets of the new batches."""
        before = len(self.batches)
        self.start(once=True, **options)
        assert self.query.awaitTermination(PATIENCE_S)
        return [self.batches[number] for number in sorted(self.batches)][before:]

    @property
    def offsets(self) -> list[int]:
        return [offset for number in sorted(self.batches) for offset in self.batches[number]]

    def wait_for(self, count: int) -> None:
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.offsets) >= count or not self.query.isActive, PATIENCE_S)
        assert arrived
        assert self.query.isActive, self.query.exception()

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    return an_archive(tmp_path / "archive")


@pytest.fixture
def query(spark: Any, tmp_path: Path) -> Iterator[Query]:
    made = Query(spark, tmp_path / "archive", tmp_path / "checkpoint")
    yield made
    made.stop()


def test_what_an_archive_gets_arrives_as_it_comes_and_goes_on_after_a_restart(
    query: Query, archive: ArchiveDirectory
) -> None:
    with a_writer(archive, segment_bytes=600) as writer:
        writer.write(BATCHES[:2])
        query.start(maxBytesPerTrigger=700)
        query.wait_for(10)
        writer.write(BATCHES[2:4])
        query.wait_for(20)
        query.stop()
        writer.write(BATCHES[4:])
        query.start()
        query.wait_for(25)

    assert query.offsets == list(range(25))


def test_available_now_with_a_limit_reads_what_there_is_in_portions(query: Query, archive: ArchiveDirectory) -> None:
    with a_writer(archive) as writer:
        writer.write(BATCHES)
        assert query.run(maxRecordsPerTrigger=10) == [[*range(10)], [*range(10, 20)], [*range(20, 25)]]
        assert query.run() == []
        writer.write([a_batch(25, 3)])
        assert query.run() == [[25]]


def test_a_batch_whose_commit_was_lost_is_planned_again_with_the_same_records(
    query: Query, archive: ArchiveDirectory, tmp_path: Path
) -> None:
    with a_writer(archive) as writer:
        writer.write(BATCHES[:3])
        query.run(maxRecordsPerTrigger=5)
        before = dict(query.batches)
        newest = max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        writer.write(BATCHES[3:])
        query.batches.clear()
        query.run(maxRecordsPerTrigger=5)

    assert query.batches.pop(int(newest.name)) == before[int(newest.name)]
    assert query.offsets == [*range(15, 25)]


def test_a_log_that_was_truncated_or_exchanged_is_an_error_and_no_rewind(
    query: Query, archive: ArchiveDirectory
) -> None:
    with a_writer(archive) as writer:
        writer.write(BATCHES[:2])
    query.run()
    (segment,) = archive.partition.glob("*.log")
    whole = segment.read_bytes()
    for data, complaint in (
        (whole[: BATCHES[0].size], "the log ends at offset 5"),
        (b"".join(batch.data for batch in some_batches(1, 7, records=5, size=40)), "is of epoch 7 there"),
    ):
        segment.write_bytes(data)
        with pytest.raises(Exception, match=complaint):
            query.run(patienceMs=100)


def test_a_gap_is_an_error_or_the_checkpoint_that_stands_for_it(query: Query, archive: ArchiveDirectory) -> None:
    with a_writer(archive) as writer:
        writer.write(BATCHES[:1])
        writer.begin_after(store_checkpoint(archive, 100, 4))
        writer.write([a_batch(100, epoch=4)])
    with pytest.raises(Exception, match="lacks the records from offset 5 to 100"):
        query.run()
    assert query.offsets == [*range(5)]

    # Of the checkpoint: header, one record, footer; offsets count from its beginning.
    assert query.run(onGap="snapshot") == [[0, 1, 2], [100]]


def test_records_of_a_replica_may_not_be_committed_so_it_is_refused_unless_asked_for(
    spark: Any, archive: ArchiveDirectory, tmp_path: Path
) -> None:
    with a_writer(archive) as writer:
        writer.write(BATCHES)
    replica = tmp_path / "replica"
    archive.partition.rename(replica)
    query = Query(spark, replica, tmp_path / "other")
    with pytest.raises(Exception, match="visibility=uncommitted"):
        query.run()

    query.run(visibility="uncommitted")
    assert query.offsets == [*range(25)]


def test_a_live_quorum_is_followed_through_a_restart_of_the_query_and_a_compaction(
    query: Query, tmp_path: Path
) -> None:
    """The records that it compacts meanwhile are in the query's own archive."""
    with voter(tmp_path / "voter") as quorum:
        quorum.wait_for_leader(timeout_ms=PATIENCE_S * 1_000)
        options = {"bootstrap": str(quorum.endpoint), "clusterId": "live"}
        end_offset = quorum.append([b"a", b"b"]).last_offset + 1
        query.start(**options)
        query.wait_for(end_offset)
        for number in range(2):
            end_offset = quorum.append([b"c%d" % number]).last_offset + 1
            query.wait_for(end_offset)  # a quorum does not wait for observers
            quorum.create_snapshot([b"state"], offset=end_offset)
        query.stop()
        end_offset = quorum.append([b"d"]).last_offset + 1
        query.run(**options)

    assert query.offsets == list(range(end_offset))
    latest = json.loads(query.query.lastProgress.sources[0].latestOffset)
    assert latest["offset"] == latest["high_watermark"] == end_offset


def voter(directory: Path) -> RaftClient[bytes]:
    place = Endpoint("127.0.0.1", free_port())
    return RaftClient(
        RaftConfig(node_id=1, cluster_id="live", voters=(StaticVoter(1, place),), listen=place, retention_bytes=0)
    )


def test_a_reader_on_its_way_to_a_worker_leaves_what_it_follows_behind() -> None:
    reader = StreamReader(parse_stream_options({"path": "/nowhere"}))
    reader._tail = object()  # type: ignore[assignment]

    assert {name: value for name, value in reader.__getstate__().items() if value is not None} == {
        "stream_options": reader.stream_options
    }
