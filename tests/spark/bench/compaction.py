"""From a log to its state beside the textbook plan, a window over all columns; and one hash whatever the partitions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from kraftlib import spark as kraft
from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.compacting import latest, state_rows
from kraftlib.records.batch import assemble
from kraftlib.records.record import Record, encode_block
from kraftlib.spark.jobs.compact import compact
from tests.spark.bench.frame import Context, Figure

RECORDS: Final = 128
VALUE_BYTES: Final = 100
PER_KEY: Final = 8
"""How often a key is written, on average."""

PARTITIONS: Final = (1, 2, 3, 8, 40)
_BYTES_A_RECORD: Final = 123


def keyed_log(directory: Path, megabytes: int) -> int:
    """Write a log of keys and values below `directory`; return how many records it has."""
    chance = random.Random(4)
    count = (megabytes << 20) // _BYTES_A_RECORD // RECORDS * RECORDS
    keys = max(count // PER_KEY, 1)
    pool = chance.randbytes(1 << 20)
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as segment:
        for base in range(0, count, RECORDS):
            records = []
            for offset in range(base, base + RECORDS):
                place = chance.randrange(len(pool) - VALUE_BYTES)
                key = b"%011d" % chance.randrange(keys)
                records.append(Record(offset, 1, key, pool[place : place + VALUE_BYTES], ()))
            block = encode_block(records, base_offset=base, base_timestamp=1)
            segment.write(assemble([block], RECORDS, 0, 1, 1, base, 1).data)
    return count


def windowed(spark: Any, path: Path) -> Any:
    """Return the state by the textbook."""
    kraft.read(spark, path, columns="offset,key,value").createOrReplaceTempView("keyed")
    return spark.sql(
        "SELECT key, value FROM (SELECT key, value, row_number() OVER (PARTITION BY key ORDER BY offset DESC) AS place"
        " FROM keyed) WHERE place = 1 AND value IS NOT NULL"
    )


def summed(state: Any) -> Any:
    """Use every key and value of a state."""
    return state.selectExpr("count(*)", "bit_xor(xxhash64(key, value))").collect()


def measure(context: Context) -> list[Figure]:
    """Return the time of a compaction by that of the window plan, and whether all say the same."""
    spark, path = context.spark, context.directory / "keyed"
    many = keyed_log(path, context.megabytes)
    answers: set[str] = set()

    def here() -> None:
        latest(state_rows(path))

    ours, theirs, twin = context.best(
        lambda: answers.add(str(summed(compact(spark, path)))),
        lambda: answers.add(str(summed(windowed(spark, path)))),
        here,
    )
    beside = f"{ours:.2f} s for {many / 1e6:.1f} M records; window {theirs:.2f} s; one process {twin:.2f} s"
    return [
        Figure(name="compaction, of the window plan", value=ours / theirs, unit="x", goal="<= 0.55", beside=beside),
        Figure(name="  different answers", value=float(len(answers)), unit="", goal="= 1"),
        *measure_hashes(context),
    ]


def measure_hashes(context: Context) -> list[Figure]:
    """Return how many different checkpoints come of one log, through Spark and through the twin."""
    spark, path = context.spark, context.directory / "keyed-eighth"
    keyed_log(path, max(context.megabytes // 16, 1))

    def target(name: str) -> dict[str, str]:
        (context.directory / name).mkdir()
        return {"path": str(context.directory / name), "endOffset": "1", "epoch": "1"}

    twin = write_table(latest(state_rows(path)), parse_checkpoint_options(target("by-the-twin")))
    same = 0
    for count in PARTITIONS:
        options = target(f"by-{count}")
        compact(spark, path).repartition(count).write.format("kraft").mode("append").options(**options).save()
        same += (Path(options["path"]) / twin.path.name).read_bytes() == twin.path.read_bytes()
    name = f"  checkpoints with the twin's hash, of those by {', '.join(map(str, PARTITIONS))} partitions"
    return [
        Figure(
            name=name, value=float(same), unit="", goal=f"= {len(PARTITIONS)}", beside=f"SHA-256 {twin.sha256[:16]}…"
        )
    ]
