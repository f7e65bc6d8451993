"""The audit on Spark gives the answer of its twin: the same findings, on damaged replicas too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kraftlib.analysis import audit as twin
from kraftlib.errors import ConfigError
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.compression import Codec
from kraftlib.spark.jobs.audit import audit
from tests.analysis.faults import KINDS, inject, make_replicas, some_batches
from tests.analysis.logs import values_batch, write_log
from tests.analysis.test_audit import swap
from tests.captured import DATA


def test_real_controllers_agree(spark: Any) -> None:
    assert audit(spark, DATA / "kafka-4.3.1") == twin.audit(DATA / "kafka-4.3.1")


def test_40_faults_in_three_replicas_are_those_that_the_twin_finds(spark: Any, tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(260, records=2, size=2_500), cuts=(60, 180))
    chance = random.Random(5)
    for number in sorted(chance.sample(range(0, 260, 4), 40), reverse=True):
        inject(chance.choice(places), number, chance.choice(KINDS), chance=chance)
    # What is said of a lost way depends on where a split ends, so both plan alike.
    alike = {"maxPartitionBytes": "64k", "parallelism": 2}
    found = audit(spark, tmp_path, **alike)
    assert found == twin.audit(tmp_path, **alike)
    assert len(found.findings) == 40


def test_disorder_foreign_segments_and_empty_replicas_are_those_that_the_twin_finds(spark: Any, tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(900, size=50), replicas=4, cuts=(300, 600))
    swap(next(places[0].glob("*.log")), 17)
    foreign = [encode_batch([b"other"] * 4, timestamp_ms=1, base_offset=4_800 + 4 * n, epoch=12) for n in range(600)]
    (places[2] / f"{4_800:020d}.log").write_bytes(b"".join(bytes(batch.data) for batch in foreign))
    for segment in places[3].glob("*.log"):
        segment.unlink()
    found = audit(spark, tmp_path)
    assert found == twin.audit(tmp_path)
    assert [(f.replica, f.kind) for f in found.findings] == [("1", "sequence"), ("3", "differs"), ("4", "empty")]


def test_stretches_that_a_replica_lacks_are_no_lag(spark: Any, tmp_path: Path) -> None:
    """Of a log of more records than its bytes make believe; clusters are not mistaken for each other."""
    batches = [values_batch([b""] * 5_000, base_offset=5_000 * n, codec=Codec.ZSTD) for n in range(24)]

    def write(cluster: str, *replicas: list[Batch]) -> None:
        for number, kept in enumerate(replicas, start=1):
            write_log(tmp_path / cluster / f"replica={number}" / "t-0", kept)

    write("cluster=lag", batches, batches, batches[:7])
    write("cluster=lacking", batches, batches[:8] + batches[12:], batches[:20])
    write("cluster=behind", batches[:3], batches, batches[:16] + batches[18:])
    write("cluster=pair", batches[4:], batches[:10] + batches[14:])
    write("cluster=alone", batches)
    write(".", batches[:20], batches, batches[:2] + batches[6:])
    write_log(tmp_path / "replica=1", batches)
    write_log(tmp_path / "replica=2", batches[:18] + batches[20:22])
    empty = tmp_path / "cluster=lag" / "replica=4" / "t-0" / f"{5_002:020d}.log"
    empty.parent.mkdir(parents=True)
    empty.write_bytes(b"")
    found = audit(spark, tmp_path)
    assert found == twin.audit(tmp_path)
    assert [(f.cluster, f.topic, f.replica, f.kind, f.start_offset, f.end_offset) for f in found.findings] == [
        (None, None, "2", "missing", 90_000, 100_000),
        (None, "t", "3", "missing", 10_000, 30_000),
        ("behind", "t", "3", "missing", 80_000, 90_000),
        ("lacking", "t", "2", "missing", 40_000, 60_000),
        ("lag", "t", "4", "empty", None, None),
        ("pair", "t", "2", "missing", 50_000, 70_000),
    ]


def test_whatever_replicas_lack_is_what_the_twin_finds(spark: Any, tmp_path: Path) -> None:
    batches = [values_batch([b"v"] * 3_000, base_offset=3_000 * n, codec=Codec.ZSTD) for n in range(30)]
    chance = random.Random(8)
    for cluster in range(24):
        for replica in range(chance.choice((2, 3, 3, 4))):
            start, end = chance.choice((0, 0, 6)), chance.choice((30, 30, 17))
            hole = chance.randrange(start + 1, end)
            kept = batches[start:hole] + batches[hole + chance.choice((0, 0, 1, 2, 5)) : end]
            place = tmp_path / f"cluster={cluster}" / f"replica={replica}" / "t-0"
            write_log(place, kept, cuts=chance.choice(((), (3,), (hole - start,))))
    found = audit(spark, tmp_path)
    assert found == twin.audit(tmp_path)
    assert len(found.findings) > 12


def test_a_fleet_of_many_replicas_is_audited_in_one_go(spark: Any, tmp_path: Path) -> None:
    """What Spark is asked must not get deeper with each replica."""
    batches = some_batches(2, records=1, size=40)
    places = [place for n in range(8) for place in make_replicas(tmp_path / f"cluster={n}", batches, replicas=90)]
    for place in places:
        place.parent.rename(place.parents[2] / place.parent.name)
    inject(places[100].parents[2] / places[100].parent.name / places[100].name, 1, "epoch", chance=random.Random(1))
    found = audit(spark, tmp_path)
    assert [(f.cluster, f.replica, f.kind) for f in found.findings] == [("1", "11", "differs")]
    assert len(found.replicas) == 720


def test_logs_without_a_batch_cannot_be_audited(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(ConfigError, match="holds no batch"):
        audit(spark, tmp_path)
