"""Two hundred faults, each in a cluster of its own: what one audit finds, in this process and on Spark."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.analysis import audit as twin
from kraftlib.analysis.audit_findings import Finding
from kraftlib.records.batch import encode_batch
from kraftlib.spark.jobs.audit import audit
from kraftlib.types import OffsetAndEpoch
from tests.analysis.faults import KINDS, inject, make_replicas, some_batches
from tests.analysis.logs import write_snapshot
from tests.analysis.test_audit import repeat, swap
from tests.spark.bench.frame import Context, Figure

BATCHES: Final = some_batches(36, records=4, size=700)
CUTS: Final = (12, 24)
OF_FILES: Final = ("swapped", "repeated", "emptied", "removed", "renamed", "foreign", "no footer", "beyond")
OF_TWO: Final = ("flip", "crc", "epoch down", "base", "length", "magic", "swapped", "emptied", "renamed")
"""With two replicas a fault must show for itself."""
DRAWN: Final = 150


@attrs.frozen
class Planted:
    """A fault, and where it is."""

    cluster: str
    replica: str
    kind: str


def measure(context: Context) -> list[Figure]:
    """Return how many faults were not found, how many findings accuse a sound replica, and where Spark differs."""
    root = context.directory / "faults"
    chance = random.Random(22)
    wanted = [(kind, 3) for kind in KINDS for _ in range(4)] + [(kind, 3) for kind in OF_FILES]
    wanted += [("swapped", 3), ("repeated", 3)] + [(kind, 2) for kind in OF_TWO]
    wanted += [(chance.choice((*KINDS, *OF_FILES[:2])), chance.choice((3, 3, 3, 4))) for _ in range(DRAWN)]
    faults = [plant(root, f"c{number}", *each, chance=chance) for number, each in enumerate(wanted)]
    began = time.perf_counter()
    local = twin.audit(root)
    between = time.perf_counter()
    spark = audit(context.spark, root)
    ended = time.perf_counter()
    missed, accused = judged(local.findings, faults)
    different = set(local.findings) ^ set(spark.findings)
    return [
        Figure(name=f"of {len(faults)} faults, not found", value=float(missed), unit="", goal="= 0",
               beside=f"{len(local.findings)} findings, {len(local.replicas)} replicas"),
        Figure(name="  findings that accuse a sound replica", value=float(accused), unit="", goal="= 0"),
        Figure(name="  findings of Spark or of one process only", value=float(len(different)), unit="", goal="= 0",
               beside=f"Spark {ended - between:.1f} s, one process {between - began:.1f} s"),
    ]  # fmt: skip


def judged(findings: Sequence[Finding], faults: Sequence[Planted]) -> tuple[int, int]:
    """Return how many faults nobody found, and how many findings are of another replica."""
    hurt = {fault.cluster: fault.replica for fault in faults}
    accused = [finding for finding in findings if hurt[finding.cluster or ""] != finding.replica]
    return len(set(hurt) - {finding.cluster for finding in findings}), len(accused)


def plant(root: Path, cluster: str, kind: str, replicas: int, *, chance: random.Random) -> Planted:
    """Make a cluster with one fault of this kind."""
    make_replicas(root / "made", BATCHES, replicas=replicas, cuts=CUTS)
    (root / "made" / "cluster=c").rename(root / f"cluster={cluster}")
    (root / "made").rmdir()
    replica = str(chance.randrange(replicas) + 1)
    place = root / f"cluster={cluster}" / f"replica={replica}" / "__cluster_metadata-0"
    if kind in KINDS:
        inject(place, chance.randrange(len(BATCHES)), kind, chance=chance)
    else:
        harm(place, kind)
    return Planted(cluster, replica, kind)


def harm(place: Path, kind: str) -> None:
    """Do what concerns more than one batch."""
    segments = sorted(place.glob("*.log"))
    last = segments[-1]
    match kind:
        case "swapped":
            swap(last, 3)
        case "repeated":
            repeat(last, 3)
        case "emptied":
            for segment in segments:
                segment.write_bytes(b"")
        case "removed":
            shutil.rmtree(place)
            node, cluster = (place.parents[up].name.partition("=")[2] for up in (0, 1))
            (place.parent / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={node}\n")
        case "renamed":
            for suffix in (".log", ".index"):
                last.with_suffix(suffix).rename(place / f"{int(last.stem) + 8:020d}{suffix}")
        case "foreign":
            first, end = int(last.stem), BATCHES[-1].end_offset
            foreign = [
                encode_batch([b"other"] * 4, timestamp_ms=1, base_offset=n, epoch=9) for n in range(first, end, 4)
            ]
            last.write_bytes(b"".join(bytes(batch.data) for batch in foreign))
            last.with_suffix(".index").unlink()
        case "no footer":
            write_snapshot(place, [b"a"], at=OffsetAndEpoch(offset=16, epoch=5), footer=False)
        case "beyond":
            write_snapshot(place, [b"a"], at=OffsetAndEpoch(offset=100_000, epoch=9))
        case _:
            raise ValueError(kind)
