"""The options of a stream: what is misspelt, or does not go together, is told before anything is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from kraftlib.errors import ConfigError
from kraftlib.spark.source import KraftDataSource
from kraftlib.spark.stream import StreamReader
from kraftlib.spark.stream_options import parse_stream_options, without_stream_options
from kraftlib.spark.tables import register
from kraftlib.types import Endpoint
from tests.archive.archives import a_writer, an_archive, store_checkpoint
from tests.captured import DATA
from tests.storage.builders import a_batch


def test_names_have_no_case_and_values_have_their_meaning() -> None:
    asked = parse_stream_options(
        {"path": "/a", "MAXRECORDSPERTRIGGER": "5", "ongap": "Snapshot", "bootstrap": "a:1,b:2", "patiencems": "1500"},
        ("offset", "key"),
    )

    assert (asked.max_records, asked.snapshots, asked.patience_s) == (5, True, 1.5)
    assert asked.servers == (Endpoint("a", 1), Endpoint("b", 2))
    assert (asked.reading.path, asked.reading.columns) == ("/a", ("offset", "key"))


def test_the_columns_follow_from_the_other_options() -> None:
    assert without_stream_options({"path": "/a", "onGap": "snapshot", "maxbytespertrigger": "1"}) == {"path": "/a"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startOffset": "5"}, "a stream goes on from the end in its checkpoint"),
        ({"maxBytesPerTriger": "5"}, "'maxBytesPerTrigger', of a stream"),
        ({"maxRecordsPerTrigger": "0"}, "above 0"),
        ({"onGap": "skip"}, "onGap='skip' must be one of fail, snapshot"),
        ({"view": "batches"}, "view=records"),
        ({"clusterId": "x"}, "clusterId goes with bootstrap"),
        ({"bootstrap": "nowhere"}, "'nowhere' is no endpoint"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_stream_options({"path": "/tmp", **options})


def test_the_names_of_sparks_source_of_kafka_stand_for_ours() -> None:
    asked = parse_stream_options({"path": "/a", "maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"})
    assert (asked.max_records, asked.snapshots, asked.start) == (5, True, "earliest")
    assert parse_stream_options({"path": "/a", "startingOffsets": "Latest"}).start == "latest"
    assert parse_stream_options({"path": "/a", "startingoffsets": "42", "failondataloss": "true"}).start == 42


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "-1"}, "must be earliest, latest, an offset, or a time"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "must be earliest, latest, an offset, or a time"),
        ({"maxOffsetsPerTrigger": "5", "maxRecordsPerTrigger": "6"}, "under another name"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' must be a whole number above 0"),
        ({"failOnDataLoss": "false", "onGap": "fail"}, "failOnDataLoss=false is onGap=snapshot"),
        ({"subscribe": "t"}, "of this one it is path"),
        ({"kafka.bootstrap.servers": "a:1"}, "of this one it is bootstrap"),
        ({"endingOffsets": "latest"}, "availableNow"),
    ],
)
def test_what_has_another_name_here_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_stream_options({"path": "/tmp", **options})
    assert "\n" not in str(caught.value)


def test_a_stream_begins_where_it_is_told_to() -> None:
    path = str(DATA / "kafka-4.3.1" / "n1")
    places = {
        start: StreamReader(
            parse_stream_options({"path": path, "startingOffsets": start, "visibility": "uncommitted"})
        ).initialOffset()
        for start in ("earliest", "0", "81", "2026-11-21T10:10:16.491Z", "2030-01-01", "latest")
    }
    assert [place["offset"] for place in places.values()] == [0, 0, 81, 274, 275, 275]
    with pytest.raises(ConfigError, match="startingOffsets=999 is no offset at which a batch begins"):
        StreamReader(
            parse_stream_options({"path": path, "startingOffsets": "999", "visibility": "uncommitted"})
        ).initialOffset()


@pytest.mark.parametrize("start", ["102", "2023-11-14T22:13:22Z"])
def test_a_stream_begins_behind_a_gap_without_the_records_that_are_gone(start: str, tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.begin_after(store_checkpoint(archive, 100, 4))
        writer.write([a_batch(100 + n, epoch=4, timestamp=1_700_000_000_000 + 1_000 * n) for n in range(5)])
    reader = StreamReader(parse_stream_options({"path": str(tmp_path), "startingOffsets": start}))
    assert reader.initialOffset() == {"v": 1, "epoch": 4, "offset": 102}


def test_a_query_begins_there_and_takes_no_more_at_a_time(spark: Any) -> None:
    register(spark)
    options = {"startingOffsets": "81", "maxOffsetsPerTrigger": "50", "visibility": "uncommitted"}
    frame = spark.readStream.format("kraft").options(**options).load(str(DATA / "kafka-4.3.1" / "n1"))
    query = frame.writeStream.format("memory").queryName("begun").trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    assert sorted(row.offset for row in spark.table("begun").collect()) == list(range(81, 275))
    assert len(query.recentProgress) > 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"startingOffsets": '{"t":{"0":1}}'}, "must be earliest, latest"), ({"view": "batches"}, "view=records")],
)
def test_a_stream_that_cannot_be_ends_with_our_error(options: dict[str, str], complaint: str, spark: Any) -> None:
    """Raised where the reader is made, it would be hidden behind an error of Spark's own worker."""
    register(spark)
    frame = spark.readStream.format("kraft").options(**options).load(str(DATA / "kafka-4.3.1" / "n1"))
    query = frame.writeStream.format("memory").queryName("refused").trigger(availableNow=True).start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(180)
    lines = [line for line in str(caught.value).splitlines() if "Error" in line]
    assert "kraftlib.errors.ConfigError: " in lines[-1]
    assert complaint in lines[-1]


def test_no_stream_is_written_as_a_checkpoint(spark: Any, tmp_path: Path) -> None:
    register(spark)
    frame = spark.readStream.format("kraft").option("visibility", "uncommitted").load(str(DATA / "kafka-4.3.1" / "n1"))
    sink = frame.selectExpr("value AS key", "value").writeStream.format("kraft")
    query = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(str(tmp_path / "o"))
    with pytest.raises(PySparkException, match="a checkpoint is a state, and no stream is written as one"):
        query.awaitTermination(180)


def test_a_spark_without_streams_of_this_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)  # PySpark 4.1 has no such module
    monkeypatch.delitem(sys.modules, "kraftlib.spark.stream", raising=False)
    schema = StructType([StructField("offset", LongType())])
    reader = KraftDataSource({"path": str(DATA / "kafka-4.3.1" / "n1")}).streamReader(schema)
    for ask in (reader.initialOffset, lambda: reader.latestOffset({}, None)):
        with pytest.raises(ConfigError, match=r"a stream needs PySpark 4\.2 or newer"):
            ask()
