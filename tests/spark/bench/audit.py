"""The audit of three damaged replicas beside one scan of the records of one of them."""

from __future__ import annotations

import random
import shutil
from typing import Final

from kraftlib import spark as kraft
from kraftlib.spark.jobs.audit import audit
from tests.analysis.faults import KINDS, inject_at
from tests.analysis.test_audit import unmatched
from tests.spark.bench import data
from tests.spark.bench.first import COLUMNS, aggregated
from tests.spark.bench.frame import Context, Figure

FAULTS: Final = 200
APART: Final = 8
"""Batches between two faults at least: the gap behind one must not hide the next."""


def measure(context: Context) -> list[Figure]:
    """Return the time of the audit by that of a scan, and what became of the faults."""
    spark, source = context.spark, context.directory / "log"
    data.log(source, context.megabytes)
    root = context.directory / "replicas"
    places = [root / "cluster=c" / f"replica={number}" / "__cluster_metadata-0" for number in (1, 2, 3)]
    for place in places:
        shutil.copytree(source, place)
    chance = random.Random(9)
    size = data.batches(1)[0].size
    segments = sorted(source.glob("*.log"))
    starts = [(path.name, at) for path in segments for at in range(0, path.stat().st_size, APART * size)]
    faults = [
        inject_at(chance.choice(places) / name, at, chance.choice(KINDS), chance=chance)
        for name, at in chance.sample(starts, min(FAULTS, len(starts)))
    ]
    frame = kraft.read(spark, source, columns=COLUMNS)
    seconds, scan = context.best(lambda: audit(spark, root), lambda: aggregated(frame))
    missed, invented = unmatched(audit(spark, root), faults)
    return [
        Figure(name="audit of three replicas, of one scan", value=seconds / scan, unit="x", goal="<= 1.0",
               beside=f"{seconds:.2f} s, scan {scan:.2f} s"),
        Figure(name=f"  of {len(faults)} faults not found", value=float(len(missed)), unit="", goal="= 0"),
        Figure(name="  findings of no fault", value=float(len(invented)), unit="", goal="= 0"),
    ]  # fmt: skip
