"""The decoder beside the plain loop over records, on one processor, CRC checked by both."""

from __future__ import annotations

from pathlib import Path

from kraftlib.analysis.reading import options_of, read
from kraftlib.records.batch import read_batches
from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure

SHAPES = {"128 records a batch": (128, 100), "4 records a batch": (4, 100), "8,000 records a batch": (8_000, 100)}
COLUMNS = "offset,epoch,timestamp,key,value"


def measure(context: Context) -> list[Figure]:
    """Return rates of the decoder, and their ratio to the plain loop."""
    figures = []
    for name, (records, size) in SHAPES.items():
        batches = data.batches(max(400_000 // records, 1), records=records, size=size)
        path = context.directory / f"decoder-{records}" / f"{0:020d}.log"
        path.parent.mkdir()
        content = b"".join(bytes(batch.data) for batch in batches)
        path.write_bytes(content)
        many = sum(batch.record_count for batch in batches)

        def columns(path: Path = path) -> None:
            for _ in read(options_of(path, columns=COLUMNS)):
                pass

        def plain(content: bytes = content) -> None:
            for batch in read_batches(content):
                for _ in batch.records():
                    pass

        def copied(content: bytes = content) -> None:
            bytearray(content)

        fast, slow, copy = context.best(columns, plain, copied, rounds=3 * context.rounds)
        beside = f"plain loop {many / slow / 1e6:.2f} M/s; memcpy {len(content) / copy / 1e9:.1f} GB/s"
        goals = (">= 4.5", ">= 6") if records == data.RECORDS else ("", "")
        figures += [
            Figure(name=f"decoder, {name}", value=many / fast / 1e6, unit="M records/s", goal=goals[0],
                   beside=beside),
            Figure(name="  of the plain loop", value=slow / fast, unit="x", goal=goals[1]),
        ]  # fmt: skip
    return figures
