"""`kraftlib snapshot create|list|verify|convert`: snapshots of a replica, and the files that they are in.

`create` asks a running `kraftlib run`. The others look at files, ours or Kafka's, and need no replica. `convert` turns
a checkpoint into lines of JSON and back, and a checkpoint with the increments on it into the checkpoint of their end.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.lines import LineClient
from kraftlib.cli.progress import Bar
from kraftlib.cli.usage import UsageError
from kraftlib.codec.json_form import to_json
from kraftlib.errors import ConfigError, CorruptBatchError, KraftError
from kraftlib.records.increment import IncrementReader, check_chain, keyed, merge
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.storage import files, names
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource
from kraftlib.types import OffsetAndEpoch, parse_endpoint

BATCH_BYTES: Final = 32 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the four things that it does."""
    parser.description = "Take snapshots, list and verify them, and turn them into other forms."
    parser.epilog = (
        "examples:\n"
        "  kraftlib snapshot create --clients 127.0.0.1:9101\n"
        "  kraftlib snapshot list data\n"
        "  kraftlib snapshot verify data/__cluster_metadata-0/*.checkpoint\n"
        "  kraftlib snapshot convert 00000000000000000042-0000000003.checkpoint state.jsonl\n"
        "  kraftlib snapshot convert state.jsonl 00000000000000000042-0000000003.checkpoint"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="create|list|verify|convert", required=True)
    create = verbs.add_parser("create", help="let a running `kraftlib run` take a snapshot of its store")
    create.add_argument(
        "--clients", required=True, metavar="HOST:PORT|unix:PATH", help="the address for clients of that replica"
    )
    listing = verbs.add_parser("list", help="the snapshots in a replica's directory")
    listing.add_argument("directory", metavar="DIR", help="the replica's directory, or the one that the files are in")
    verify = verbs.add_parser("verify", help="read checkpoints and increments to their end; exit status 1 on damage")
    verify.add_argument("files", nargs="+", metavar="FILE", help="a .checkpoint or .increment")
    convert = verbs.add_parser("convert", help="to lines of JSON and back, or a chain of increments to a checkpoint")
    convert.add_argument(
        "files", nargs="+", metavar="FILE", help="a checkpoint and its increments, or .jsonl; then the new file"
    )
    convert.add_argument("--key", metavar="FIELD", help="with increments: the field of a JSON value that is its key")
    for verb in (create, listing, verify, convert):
        verb.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")


def run(options: argparse.Namespace) -> int:
    """Do one of the four."""
    match options.verb:
        case "create":
            return _create(options)
        case "list":
            return _list(options)
        case "verify":
            return _verify(options)
        case _:
            return _convert(options)


def _say(options: argparse.Namespace, value: dict[str, Any], text: str) -> None:
    print(json.dumps(value) if options.output == "json" else text, flush=True)


# create -------------------------------------------------------------------------------------------


def _create(options: argparse.Namespace) -> int:
    endpoint = parse_endpoint(options.clients)

    async def ask() -> dict[str, Any]:
        client = await LineClient.connect(endpoint)
        try:
            return await client.ask({"snapshot": True}, timeout_ms=600_000)
        finally:
            await client.close()

    answer = asyncio.run(ask())
    if "error" in answer:
        raise ConfigError(f"{endpoint} says: {answer['message']}")
    taken = answer["snapshot"]
    _say(options, taken, f"snapshot {taken['end_offset']}@{taken['epoch']} is there")
    return 0


# list and verify ----------------------------------------------------------------------------------


def _partition(directory: Path) -> Path:
    partition = directory / names.PARTITION_DIRECTORY
    return partition if partition.is_dir() else directory


def _list(options: argparse.Namespace) -> int:
    partition = _partition(Path(options.directory))
    count = 0
    for name in files.list_names(partition):
        if names.parse_checkpoint_name(name) is None and names.parse_increment_name(name) is None:
            continue
        count += 1
        try:
            described = _described(partition / name)
        except KraftError as error:
            described = {"path": str(partition / name), "kind": "damaged", "error": " ".join(str(error).split())}
        _say(options, described, _line(described))
    if not count and options.output == "text":
        print(f"{partition} has no snapshots", file=sys.stderr)
    return 0


def _described(path: Path) -> dict[str, Any]:
    """Say of a file what its header says. Raises: CorruptBatchError."""
    snapshot_id = _id_of(path)
    with _opened(path) as reader:
        described: dict[str, Any] = {
            "path": str(path),
            "kind": "increment" if isinstance(reader, IncrementReader) else "checkpoint",
            "end_offset": None if snapshot_id is None else snapshot_id.offset,
            "epoch": reader.epoch,
            "size": reader.size,
            "last_timestamp_ms": reader.header.last_contained_log_timestamp,
            "kraft_version": reader.kraft_version,
            "voters": [] if reader.voters is None else [voter.voter_id for voter in reader.voters.voters],
        }
        if isinstance(reader, IncrementReader):
            described["base"] = str(reader.base)
        return described


def _line(described: dict[str, Any]) -> str:
    name = Path(described["path"]).name
    if described["kind"] == "damaged":
        return f"{name}: {described['error']}"
    base = f" on {described['base']}" if "base" in described else ""
    return f"{name}: {described['kind']}{base}, {described['size']} bytes, kraft.version {described['kraft_version']}"


def _id_of(path: Path) -> OffsetAndEpoch | None:
    return names.parse_checkpoint_name(path.name) or names.parse_increment_name(path.name)


def _opened(path: Path) -> SnapshotReader | IncrementReader:
    snapshot_id = _id_of(path)
    epoch = None if snapshot_id is None else snapshot_id.epoch
    kind = IncrementReader if path.suffix == ".increment" else SnapshotReader
    return kind(FileSnapshotSource(path), epoch=epoch)


def _verify(options: argparse.Namespace) -> int:
    damaged = 0
    with Bar("reading", sum(files.size_of(Path(name)) for name in options.files)) as bar:
        for name in options.files:
            path = Path(name)
            try:
                with _opened(path) as reader:
                    records = reader.verify()
                _say(options, {"path": name, "whole": True, "records": records}, f"{name}: whole, {records} records")
            except CorruptBatchError as error:
                damaged += 1
                told = {"path": name, "whole": False, "position": error.position, "error": " ".join(str(error).split())}
                where = "" if error.position is None else f" at byte {error.position}"
                _say(options, told, f"{name}: damaged{where}: {told['error']}")
            bar.advance(files.size_of(path))
    return 1 if damaged else 0


# convert ------------------------------------------------------------------------------------------


def _convert(options: argparse.Namespace) -> int:
    *sources, target = map(Path, options.files)
    if not sources:
        raise UsageError("convert needs the files to convert, and the name of the new file")
    if target.exists():
        raise ConfigError(f"{target} exists: name a file that does not")
    if sources[0].suffix == ".jsonl":
        count = _from_lines(sources, target)
    elif target.suffix == ".jsonl":
        count = _to_lines(sources, target, options.key)
    else:
        count = _to_checkpoint(sources, target, options.key)
    _say(options, {"path": str(target), "records": count}, f"{target}: {count} records")
    return 0


def key_function(field: str | None) -> Callable[[bytes], bytes]:
    """Return the function that finds the key of a JSON value. Raises: UsageError, if its field is not named."""
    if field is None:
        raise UsageError("increments are merged by key: name the field of a value that is its key with --key")
    name = field

    def key_of(value: bytes) -> bytes:
        try:
            return str(json.loads(value)[name]).encode()
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"the value {value[:60]!r} is no JSON object with a field {name!r}") from error

    return key_of


def _values(base: SnapshotReader, increments: Sequence[IncrementReader], key: str | None) -> Iterator[bytes]:
    """Yield the values of a checkpoint with its increments put on it."""
    plain = (value for batch in base.batches() for value in batch.values())
    if not increments:
        yield from plain
        return
    for _, value in merge(keyed(plain, key_function(key)), *(increment.changes() for increment in increments)):
        yield value


def _chain(sources: Sequence[Path]) -> tuple[SnapshotReader, list[IncrementReader], OffsetAndEpoch]:
    """Open a checkpoint and its increments. Raises: ConfigError, if they do not lead on from each other."""
    first = _opened(sources[0])
    rest = [_opened(path) for path in sources[1:]]
    increments = [reader for reader in rest if isinstance(reader, IncrementReader)]
    start = _id_of(sources[0])
    if not isinstance(first, SnapshotReader) or len(increments) < len(rest) or start is None:
        raise UsageError("name a checkpoint as <end offset>-<epoch>.checkpoint, then its increments in order")
    ids = [_id_of(path) or start for path in sources[1:]]
    end = check_chain(start, [(to, reader.base) for to, reader in zip(ids, increments, strict=True)])
    return first, increments, end


def _to_lines(sources: Sequence[Path], target: Path, key: str | None) -> int:
    base, increments, end = _chain(sources)
    last: SnapshotReader | IncrementReader = increments[-1] if increments else base
    head = {
        "end_offset": end.offset,
        "epoch": end.epoch,
        "last_timestamp_ms": last.header.last_contained_log_timestamp,
        "kraft_version": last.kraft_version,
        "voters": None if last.voters is None else to_json(last.voters, last.voters.version),
    }
    count = 0
    # The lines have no footer: a file with the right name is whole.
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with files.storage_errors("write", partial), Bar("converting", base.size) as bar, partial.open("w") as out:
            out.write(json.dumps(head) + "\n")
            for value in _values(base, increments, key):
                out.write(json.dumps(_as_text(value)) + "\n")
                count += 1
                bar.advance(len(value))
            out.flush()
            os.fsync(out.fileno())
        files.rename_new(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _as_text(value: bytes) -> dict[str, str]:
    try:
        return {"value": value.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _to_checkpoint(sources: Sequence[Path], target: Path, key: str | None) -> int:
    base, increments, end = _chain(sources)
    if names.parse_checkpoint_name(target.name) != end:
        raise UsageError(f"the checkpoint of {end} is named {names.checkpoint_name(end)}")
    last: SnapshotReader | IncrementReader = increments[-1] if increments else base
    with Bar("merging", base.size) as bar:
        return _write(
            target, end, _values(base, increments, key), bar,
            last_contained_log_timestamp=last.header.last_contained_log_timestamp,
            kraft_version=last.kraft_version, voters=last.voters,
        )  # fmt: skip


def _from_lines(sources: Sequence[Path], target: Path) -> int:
    snapshot_id = names.parse_checkpoint_name(target.name)
    if len(sources) != 1 or snapshot_id is None:
        raise UsageError(
            "one file of lines becomes one checkpoint, named <end offset, 20 digits>-<epoch, 10>.checkpoint"
        )
    with sources[0].open("rb") as lines, Bar("converting", files.size_of(sources[0])) as bar:
        try:
            head = json.loads(next(lines, b""))
            stamped, version = int(head["last_timestamp_ms"]), int(head["kraft_version"])
            if head["voters"] is not None or version:
                raise ConfigError(
                    f"{sources[0]} is of a dynamic quorum: its voters cannot be taken from lines of text; use the "
                    "checkpoint"
                )
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{sources[0]} does not begin with the line that `snapshot convert` writes: {error!r}"
            ) from error
        return _write(
            target, snapshot_id, map(_from_text, lines), bar, last_contained_log_timestamp=stamped, kraft_version=0
        )


def _from_text(line: bytes) -> bytes:
    try:
        item = json.loads(line)
        return item["value"].encode() if "value" in item else base64.b64decode(item["base64"], validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"the line {line[:60]!r} is no record: {error!r}") from error


def _write(target: Path, snapshot_id: OffsetAndEpoch, values: Iterator[bytes], bar: Bar, **header: Any) -> int:
    sink = FileSnapshotSink(target.parent, snapshot_id)
    count = 0
    try:
        writer = SnapshotWriter(sink.write, epoch=snapshot_id.epoch, batch_bytes=BATCH_BYTES, **header)
        for value in values:
            writer.append([value])
            bar.advance(len(value))
            count += 1
        writer.freeze()
        sink.freeze()
    finally:
        sink.abort()
    return count
