"""`kraftlib spark compact | increment | merge`: from a log to its state, as checkpoints and as increments of them.

Records of KRaft have no keys, so an option says how they are grouped: `--metadata` for logs of Kafka clusters,
`--key` in SQL for one's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.spark_rows import reader_options, session, show
from kraftlib.cli.usage import UsageError

WRITTEN_BY: Final = ("kraftVersion", "voters", "batchMaxBytes")
"""Options of `-w`; the others follow from the log."""


def add_verbs(verb: Callable[..., argparse.ArgumentParser]) -> list[argparse.ArgumentParser]:
    """Declare the verbs; return those that may run on Spark."""
    compact = verb("compact", run_compact, "write the state of a log as a checkpoint")
    compact.add_argument("out", metavar="OUT", help="the directory for the checkpoint")
    compact.add_argument(
        "--end-offset", type=int, metavar="N", help="the state before this offset (the end of the log)"
    )
    compact.add_argument("--epoch", type=int, metavar="N", help="epoch of the checkpoint (that of its last record)")
    compact.add_argument(
        "--voters",
        metavar="LIST",
        help="its voters, for a dynamic quorum: id@host:port:directoryId,… (those of the log, if any)",
    )
    compact.add_argument(
        "-w", "--write", action="append", default=[], metavar="NAME=VALUE", help=f"of {', '.join(WRITTEN_BY)}"
    )
    increment = verb("increment", run_increment, "write the changes between two offsets")
    increment.add_argument("out", metavar="OUT", help="the directory in which the increment gets its name")
    increment.add_argument(
        "--base", type=int, required=True, metavar="N", help="end offset of the checkpoint or increment before it"
    )
    increment.add_argument(
        "--end-offset", type=int, metavar="N", help="its own end offset (default: the end of the log)"
    )
    for one in (compact, increment):
        one.add_argument("--metadata", action="store_true", help="the log is that of a Kafka cluster: fold its records")
        one.add_argument(
            "--key", default="key", metavar="SQL", help="the key of a record: SQL over key and value (key)"
        )
        one.add_argument(
            "--value",
            default="value",
            metavar="SQL",
            help="the value to keep: SQL over key and value (value); NULL deletes the key",
        )
    return [compact, increment]


def add_merge(verbs: Any) -> argparse.ArgumentParser:
    """Declare the verb that needs neither Spark nor a log."""
    merge: argparse.ArgumentParser = verbs.add_parser(
        "merge", help="merge a checkpoint and its increments into one checkpoint, in one pass in this process"
    )
    merge.set_defaults(job=run_merge)
    merge.add_argument("files", nargs="+", metavar="FILE", help="a checkpoint, then its increments in order")
    merge.add_argument("out", metavar="OUT", help="the directory in which the new checkpoint gets its name")
    how = merge.add_mutually_exclusive_group(required=True)
    how.add_argument("--metadata", action="store_true", help="of the state of a Kafka cluster")
    how.add_argument("--key", metavar="FIELD", help="the field of a JSON value that is its key")
    merge.add_argument("--output", choices=("text", "json"), default="text", help="json: one object")
    return merge


def run_compact(options: argparse.Namespace) -> int:
    """Write a checkpoint."""
    from kraftlib.analysis.checkpoint import parse_checkpoint_options, prepare, write_table
    from kraftlib.analysis.compacting import id_at

    given = reader_options(options)
    at, timestamp_ms = id_at(options.path, options.end_offset, **given)
    epoch = at.epoch if options.epoch is None else options.epoch
    reading = {**given, "endOffset": at.offset}
    spark = None if options.local else session(options)
    target = {
        "path": options.out,
        "endOffset": str(at.offset),
        "epoch": str(epoch),
        "lastContainedLogTimestamp": str(timestamp_ms),
        **_quorum(options, spark, reading),
        **_written_by(options),
    }
    parsed = parse_checkpoint_options(target)
    prepare(parsed, overwrite=False)  # before the state is told, which takes its time
    if spark is None:
        write_table(_state_here(options, reading), parsed)
    else:
        _state_on_spark(options, spark, reading).write.format("kraft").mode("append").options(**target).save()
    show([{"path": str(parsed.target), "end_offset": at.offset, "epoch": epoch}], options)
    return 0


def _quorum(options: argparse.Namespace, spark: Any, reading: dict[str, Any]) -> dict[str, str]:
    """Return kraft.version and voters as options of the writer: as told, else those of the log."""
    from kraftlib.analysis.checkpoint import voters_text
    from kraftlib.analysis.compacting import quorum_at

    if options.voters:
        return {"kraftVersion": "1", "voters": options.voters}
    if any(word.partition("=")[0] in ("kraftVersion", "voters") for word in options.write):
        return {}
    if spark is None:
        kraft_version, voters = quorum_at(options.path, **reading)
    else:
        from kraftlib.spark.jobs.compact import quorum

        kraft_version, voters = quorum(spark, options.path, **reading)
    if voters is None:
        return {}
    return {"kraftVersion": str(kraft_version), "voters": voters_text(voters)}


def run_increment(options: argparse.Namespace) -> int:
    """Write an increment."""
    from kraftlib.analysis import compacting
    from kraftlib.analysis.metadata_state import metadata_state

    given: dict[str, Any] = reader_options(options)
    base, _ = compacting.id_at(options.path, options.base, **given)
    target, timestamp_ms = compacting.id_at(options.path, options.end_offset, **given)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    where: dict[str, Any] = {"base": base, "target": target, "timestamp_ms": timestamp_ms}
    if options.local:
        given["include"] = "log"
        if options.metadata:
            before, after = (metadata_state(options.path, **{**given, "endOffset": at.offset}) for at in (base, target))
            changes = compacting.difference(before, after)
        else:
            between = {**given, "startOffset": base.offset, "endOffset": target.offset}
            changes = compacting.latest(_rows_here(options, between), keep_deleted=True)
        path = compacting.write_increment(changes, Path(options.out), **where)
    else:
        from kraftlib.spark.jobs import compact as jobs

        job = jobs.metadata_increment if options.metadata else jobs.increment
        how = {} if options.metadata else {"key": options.key, "value": options.value}
        path = job(session(options), options.path, options.out, **where, **how, **given)
    show([{"path": str(path), "base": base.offset, "end_offset": target.offset, "epoch": target.epoch}], options)
    return 0


def run_merge(options: argparse.Namespace) -> int:
    """Merge a chain."""
    from kraftlib.analysis.checkpoint import parse_checkpoint_options
    from kraftlib.analysis.compacting import merge_chain, timestamp_of
    from kraftlib.analysis.metadata_state import key_of_value
    from kraftlib.cli.snapshot import key_function
    from kraftlib.storage import names

    base, *increments = map(Path, options.files)
    end = names.parse_increment_name(increments[-1].name) if increments else None
    if end is None:
        raise UsageError("name a checkpoint as <end offset>-<epoch>.checkpoint, then its increments in order")
    Path(options.out).mkdir(parents=True, exist_ok=True)
    target = parse_checkpoint_options(
        {
            "path": options.out,
            "endOffset": str(end.offset),
            "epoch": str(end.epoch),
            "lastContainedLogTimestamp": str(timestamp_of(increments[-1])),
        }
    )
    key_of = key_of_value if options.metadata else key_function(options.key)
    written = merge_chain(base, increments, target, key_of=key_of)
    show([{"path": str(written.path), "records": written.records, "sha256": written.sha256}], options)
    return 0


def _written_by(options: argparse.Namespace) -> dict[str, str]:
    given = {}
    for word in options.write:
        name, equals, value = word.partition("=")
        if not equals or name not in WRITTEN_BY:
            raise UsageError(f"--write {word}: expected NAME=VALUE, of {', '.join(WRITTEN_BY)}")
        given[name] = value
    return given


def _state_here(options: argparse.Namespace, reading: dict[str, Any]) -> Any:
    from kraftlib.analysis.compacting import latest
    from kraftlib.analysis.metadata_state import metadata_state

    return metadata_state(options.path, **reading) if options.metadata else latest(_rows_here(options, reading))


def _rows_here(options: argparse.Namespace, reading: dict[str, Any]) -> Any:
    from kraftlib.analysis.compacting import state_rows

    if (options.key, options.value) != ("key", "value"):
        raise UsageError("--key and --value are SQL, which Spark understands: leave out --local")
    return state_rows(options.path, **reading)


def _state_on_spark(options: argparse.Namespace, spark: Any, reading: dict[str, Any]) -> Any:
    from kraftlib.spark.jobs.compact import compact, metadata

    if options.metadata:
        return metadata(spark, options.path, **reading)
    return compact(spark, options.path, key=options.key, value=options.value, **reading)
