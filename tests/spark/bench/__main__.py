"""Runs the benchmarks that are asked for, one after the other."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.spark.bench import (
    audit,
    checkpoint,
    compaction,
    cores,
    crossover,
    decoder,
    faults,
    first,
    latency,
    scan,
    sweep,
    tasks,
    truth,
)
from tests.spark.bench.frame import Context, Figure, show

BENCHMARKS: Final[dict[str, Callable[[Context], list[Figure]]]] = {
    "decoder": decoder.measure,
    "scan": scan.measure,
    "processor": scan.measure_processor,
    "first": first.measure,
    "cores": cores.measure,
    "tuples": scan.measure_tuples,
    "lookup": scan.measure_lookup,
    "tasks": tasks.measure,
    "audit": audit.measure,
    "faults": faults.measure,
    "compaction": compaction.measure,
    "checkpoint": checkpoint.measure,
    "latency": latency.measure,
    "sweep": sweep.measure,
    "merges": truth.measure_merges,
    "crossover": crossover.measure,
    "kills": truth.measure_kills,
}


def main() -> int:
    """Measure; with --check, return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="dev.py bench-spark", description="Measure the data pipeline on Spark.")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--only", default=",".join(BENCHMARKS), metavar="A,B", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--mb", type=int, default=1024, metavar="N", help="size of one log (1024)")
    parser.add_argument(
        "--box", type=float, default=150.0, metavar="S", help="seconds after which no round begins (150)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="how often each is measured (3)")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {options.mb} MB a log"
    )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-") as directory:
        context = Context(Path(directory), megabytes=options.mb, rounds=options.rounds, box_s=options.box)
        try:
            for name in names:
                print(f"… {name}", file=sys.stderr, flush=True)
                began = time.monotonic()
                context.begin()
                found = BENCHMARKS[name](context)
                print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
                show(found)  # as they come: a run that is cut short has shown what it measured
                figures += found
        finally:
            context.stop()
    missed = [figure.name for figure in figures if not figure.is_met]
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
