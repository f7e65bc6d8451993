"""What the progress of a stream says: how far the log reaches, and how far the query is behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

from kraftlib import spark as kraft
from kraftlib.spark.stream import StreamReader
from kraftlib.spark.stream_options import parse_stream_options
from tests.archive.archives import a_writer, an_archive
from tests.storage.builders import a_batch, some_batches

PATIENCE_S = 180
BATCHES = some_batches(1, 1, 2, 2, 3, records=5, size=40)


class Heard(StreamingQueryListener):
    """Keeps the progress of every batch, as a listener that alerts would get it."""

    def __init__(self) -> None:
        self.progress: list[Any] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's names)
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.progress.append(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.ended.set()


@pytest.fixture
def heard(spark: Any) -> Iterator[Heard]:
    made = Heard()
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)


def test_a_listener_hears_how_far_the_log_reaches_and_how_far_the_query_is_behind(
    spark: Any, heard: Heard, tmp_path: Path
) -> None:
    kraft.register(spark)
    with a_writer(an_archive(tmp_path / "archive"), segment_bytes=600) as writer:
        writer.write(BATCHES)
    frame = spark.readStream.format("kraft").option("maxRecordsPerTrigger", 10).load(str(tmp_path / "archive"))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(PATIENCE_S)
    assert heard.ended.wait(PATIENCE_S)

    batches = [one for one in heard.progress if one.numInputRows]
    latest = [json.loads(one.sources[0].latestOffset) for one in batches]
    assert latest == 3 * [{"v": 1, "epoch": 3, "offset": 25}]
    assert [kraft.lag(one) for one in batches] == [15, 5, 0]
    assert kraft.lag(json.loads(batches[0].json)) == 15


def test_a_report_follows_a_log_that_grows_rolls_and_is_cut(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "archive")
    reader = StreamReader(parse_stream_options({"path": str(archive.path)}))
    told = []
    with a_writer(archive, segment_bytes=600) as writer:
        for batch in BATCHES:
            writer.write([batch])
            told.append(reader.reportLatestOffset())
        writer.write([a_batch(25, 3)])
        told.append(reader.reportLatestOffset())
    assert [place and place["offset"] for place in told] == [5, 10, 15, 20, 25, 26]

    newest = max(archive.partition.glob("*.log"))
    newest.write_bytes(b"")
    place = reader.reportLatestOffset()
    assert place is not None
    assert place["offset"] == int(newest.stem)


def test_a_log_that_is_not_there_is_no_report(tmp_path: Path) -> None:
    assert StreamReader(parse_stream_options({"path": str(tmp_path / "nowhere")})).reportLatestOffset() is None


def test_what_is_committed_and_not_archived_yet_counts_as_lag() -> None:
    end, latest = {"v": 1, "epoch": 3, "offset": 15}, {"v": 1, "epoch": 3, "offset": 20, "high_watermark": 30}
    assert kraft.lag({"sources": [{"endOffset": end, "latestOffset": latest}]}) == 15


@pytest.mark.parametrize(
    "progress",
    [None, {"sources": []}, {"sources": [{"endOffset": '{"offset":3}', "latestOffset": None}]},
     {"sources": [{"endOffset": "7", "latestOffset": "[]"}]}, {"sources": [{"endOffset": "-", "latestOffset": "-"}]}],
)  # fmt: skip
def test_where_the_progress_does_not_say_there_is_no_lag(progress: Any) -> None:
    assert kraft.lag(progress) is None
