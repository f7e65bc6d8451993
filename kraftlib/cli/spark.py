"""`kraftlib spark VERB …`: the jobs of the data pipeline, on Spark or, with --local, in this process.

The output of a verb is for reading; with --output json it is one JSON object a line, for programs.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any, Final

from kraftlib.cli import spark_state
from kraftlib.cli.spark_rows import reader_options, rows, session, show
from kraftlib.cli.usage import UsageError
from kraftlib.errors import ConfigError

EXAMPLES: Final = """
examples:
  kraftlib spark audit /archive                                  compare replicas; exit status 1: findings
  kraftlib spark report partitions /archive --at-offset 1000     the state at an offset, or --at 2026-11-21T10:00:00Z
  kraftlib spark history topic:events /archive                   every change of one item, with the leader of its epoch
  kraftlib spark sql "SELECT epoch, count(*) FROM log GROUP BY epoch" /archive
  kraftlib spark to-parquet /archive /tier2                      for queries that run again and again
  kraftlib spark compact --metadata /archive /out                the state of a Kafka cluster, as a checkpoint
  kraftlib spark increment --metadata --base 1000 /archive /out  the changes since offset 1000; merge applies them
  kraftlib spark sweep --seeds 0:1000 --profile crashes          simulation seeds on executors

Every command but sql and sweep has --local: the same answer without Spark, faster up to a gigabyte or so. merge
never needs Spark.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    parser.description = "Query logs and snapshots, kraftlib's or Kafka's, with Spark. Needs Java and kraftlib[spark]."
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    audit = _verb(verbs, "audit", run_audit, "compare the replicas below a path")
    report = _verb(verbs, "report", run_report, "topics, partitions, brokers … as of an offset or a time", first="WHAT")
    moment = report.add_mutually_exclusive_group()
    moment.add_argument("--at-offset", type=int, metavar="N", help="the state before this offset (the end of the log)")
    moment.add_argument("--at", metavar="TIME", help="the state at this time, as 2026-11-21T10:00:00Z or ms since 1970")
    history = _verb(verbs, "history", run_history, "the changes of one item, such as topic:events", first="KIND:NAME")
    export = _verb(verbs, "to-parquet", run_to_parquet, "write the records as Parquet into a new directory")
    export.add_argument("out", metavar="OUT", help="the directory to make")
    export.add_argument("--bucket", type=int, metavar="N", help="offsets in one directory (1000000)")
    states = spark_state.add_verbs(functools.partial(_verb, verbs))
    spark_state.add_merge(verbs)
    sql = _verb(verbs, "sql", run_sql, "run SQL; the tables are log, batches and files", first="QUERY")
    sweep = verbs.add_parser("sweep", help="run simulation seeds on executors")
    sweep.set_defaults(job=run_sweep)
    sweep.add_argument("--seeds", required=True, metavar="A:B", help="run the seeds from A up to B, B excluded")
    sweep.add_argument("--profile", default="swarm", metavar="NAME", help="the faults to draw from (swarm)")
    sweep.add_argument("--subject", metavar="FILE.py:NAME", help="a state machine of your own")
    sweep.add_argument("--until-ms", type=int, metavar="T", help="simulated ms of trouble")
    sweep.add_argument(
        "--seed-timeout", type=float, default=300.0, metavar="S", help="seconds that a seed may take (300)"
    )
    for one in (audit, report, history, export, *states):
        one.add_argument("--local", action="store_true", help="without Spark, in this process")
    for one in (audit, report, history, export, *states, sql, sweep):
        one.add_argument(
            "--master", metavar="URL", help="master of Spark (default: that of spark-submit or MASTER, else local)"
        )
        one.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")


def _verb(verbs: Any, name: str, job: Callable[..., int], text: str, *, first: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    parser.set_defaults(job=job)
    if first:
        parser.add_argument("what", metavar=first)
    parser.add_argument("path", metavar="PATH", help="a directory, a file, a glob or a URI")
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the reader",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Run one verb."""
    try:
        status: int = options.job(options)
    except ImportError as error:
        if "kraftlib[spark]" not in str(error):
            raise
        raise ConfigError(str(error)) from error  # of our own packages, which name what is missing
    return status


def run_audit(options: argparse.Namespace) -> int:
    """Compare replicas; 1 if something is wrong with one."""
    from kraftlib.analysis import audit as local

    if options.local:
        found = local.audit(options.path, **reader_options(options))
    else:
        from kraftlib.spark.jobs.audit import audit

        found = audit(session(options), options.path, **reader_options(options))
    if options.output == "json":
        show(({"replica": plain(one)} for one in found.replicas), options)
        show(({"finding": plain(one)} for one in found.findings), options)
        show([{"summary": {"batches": found.batches, "findings": len(found.findings)}}], options)
        return 1 if found.findings else 0
    show(map(plain, found.replicas), options)
    show(map(plain, found.findings), options)
    print(f"{found.batches} batches of {len(found.replicas)} replicas compared, {len(found.findings)} findings")
    return 1 if found.findings else 0


def plain(value: Any) -> dict[str, Any]:
    """Return a value of the audit as plain values."""
    import attrs

    row = attrs.asdict(value)
    if "log" in row:
        cluster, topic, partition = row.pop("log")
        row = {"cluster": cluster, "topic": topic, "partition": partition, **row}
    return row


def run_report(options: argparse.Namespace) -> int:
    """Report on a cluster as it was."""
    moment = {"at_offset": options.at_offset, "at_timestamp": options.at, **reader_options(options)}
    if options.local:
        from kraftlib.analysis.reports import report as local

        show(local(options.path, options.what, **moment).to_pylist(), options)
    else:
        from kraftlib.spark.jobs.reports import report

        show(rows(report(session(options), options.path, options.what, **moment)), options)
    return 0


def run_history(options: argparse.Namespace) -> int:
    """Tell the history of one thing."""
    if options.local:
        from kraftlib.analysis.history import history as local

        show(local(options.path, options.what, **reader_options(options)).to_pylist(), options)
    else:
        from kraftlib.spark.jobs.history import history

        show(rows(history(session(options), options.path, options.what, **reader_options(options))), options)
    return 0


def run_to_parquet(options: argparse.Namespace) -> int:
    """Write Parquet."""
    given: dict[str, Any] = reader_options(options)
    if options.bucket is not None:
        given["bucket"] = options.bucket
    if options.local:
        from kraftlib.analysis.export import to_parquet as local

        local(options.path, options.out, **given)
    else:
        from kraftlib.spark.jobs.parquet import to_parquet

        to_parquet(session(options), options.path, options.out, **given)
    return 0


def run_sql(options: argparse.Namespace) -> int:
    """Answer a query."""
    from kraftlib.spark import read

    spark = session(options)
    for name, view in (("log", "records"), ("batches", "batches"), ("files", "files")):
        given = {**reader_options(options), "view": view}
        read(spark, options.path, **given).createOrReplaceTempView(name)
    show(rows(spark.sql(options.what)), options)
    return 0


def run_sweep(options: argparse.Namespace) -> int:
    """Sweep over seeds; 1 if one of them is not well."""
    from kraftlib.cli.simulate import seed_range
    from kraftlib.spark.jobs.sweep import sweep

    try:
        seeds = seed_range(options.seeds)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--seeds: {error}") from error
    found = sweep(
        session(options),
        seeds,
        profile=options.profile,
        subject=options.subject,
        until_ms=options.until_ms,
        seed_timeout_s=options.seed_timeout,
    )
    bad = 0
    for row in rows(found):
        bad += row["outcome"] != "ok"
        if options.output == "json" or row["outcome"] != "ok":
            show([row], options)
    if options.output == "text":
        print(f"{len(seeds)} seeds, {bad} of them not well")
    return 1 if bad else 0
