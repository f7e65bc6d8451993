"""How long it takes from an append to the rows in `foreachBatch`, beside Spark's own source of text files."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kraftlib import spark as kraft
from kraftlib.archive.directory import open_archive
from kraftlib.archive.writer import ArchiveWriter
from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure

APPENDS: Final = 40
WARM_UP: Final = 5
PATIENCE_S: Final = 120.0


class Arrivals:
    """Counts the rows that a query has had in its hands."""

    def __init__(self, frame: Any, checkpoint: Path) -> None:
        self._rows = 0
        self._changed = threading.Condition()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        self.query = writer.start()

    def _take(self, frame: Any, number: int) -> None:
        rows = len(frame.collect())
        with self._changed:
            self._rows += rows
            self._changed.notify_all()

    def time(self, append: Callable[[], int]) -> float:
        """Append some rows; return the seconds until they are there."""
        with self._changed:
            wanted = self._rows
        began = time.perf_counter()
        wanted += append()
        with self._changed:
            if not self._changed.wait_for(lambda: self._rows >= wanted, PATIENCE_S):
                raise TimeoutError(f"{wanted} rows did not arrive: {self.query.exception()}")
        return time.perf_counter() - began


def measure(context: Context) -> list[Figure]:
    """Return the median of many appends, each of them in turn with one to a text file."""
    spark, home = context.spark, context.directory
    kraft.register(spark)
    archive, texts = open_archive(home / "stream", cluster_id="bench"), home / "texts"
    texts.mkdir()
    batches = iter(data.batches(APPENDS + WARM_UP))
    writer = ArchiveWriter(archive, segment_bytes=1 << 30)

    def to_archive() -> int:
        batch = next(batches)
        writer.write([batch])
        return batch.record_count

    def to_text() -> int:
        made = home / "text.part"
        made.write_text("row\n" * data.RECORDS)
        made.rename(texts / f"{time.monotonic_ns()}.txt")
        return data.RECORDS

    records = spark.readStream.format("kraft").load(str(home / "stream")).select("offset", "value")
    seconds: dict[str, list[float]] = {"ours": [], "text": []}
    # One after the other: two queries at once would share the processors.
    ours = Arrivals(records, home / "checkpoint-ours")
    seconds["ours"] = [ours.time(to_archive) for _ in range(APPENDS + WARM_UP)][WARM_UP:]
    ours.query.stop()
    theirs = Arrivals(spark.readStream.text(str(texts)), home / "checkpoint-text")
    seconds["text"] = [theirs.time(to_text) for _ in range(APPENDS + WARM_UP)][WARM_UP:]
    theirs.query.stop()
    writer.close()
    medians = {name: 1_000 * statistics.median(times) for name, times in seconds.items()}
    ninth = 1_000 * statistics.quantiles(seconds["ours"], n=10)[-1]
    return [
        Figure(name="append to foreachBatch, median", value=medians["ours"], unit="ms", goal="<= 300",
               beside=f"p90 {ninth:.0f} ms; Spark's own text files {medians['text']:.0f} ms")
    ]  # fmt: skip
