"""The source behind an audit plans as the view of batches does, and tells all of them."""

from __future__ import annotations

from pathlib import Path

from kraftlib.analysis.audit import FIXED, audit_options
from kraftlib.analysis.audit_stretches import STRETCHES
from kraftlib.analysis.reading import read, text_options
from kraftlib.spark.audits import AuditSource
from tests.analysis.faults import make_replicas, some_batches


def test_every_batch_of_every_replica_is_told_once(tmp_path: Path) -> None:
    make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    options = {"path": str(tmp_path), "maxPartitionBytes": "64k", "parallelism": "2", **text_options(FIXED)}
    source = AuditSource(options)
    reader = source.reader(None)
    partitions = reader.partitions()
    told = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]

    assert len(partitions) > 3
    rows = [row for table in read(audit_options(tmp_path)) for row in table.to_pylist()]
    assert sum(row["batches"] for row in told) == len(rows) == 3 * 60
    assert {row["replica"] for row in told} == {"1", "2", "3"}
    assert source.schema().count("`") == 2 * len(STRETCHES)
