"""`kraftlib dump-log FILE…`: the content of the files of a metadata directory, Kafka's or ours.

The text is that of Kafka 4.3.1's `kafka-dump-log --cluster-metadata-decoder`, line by line, so that the two can be
compared. Unlike Kafka's tool, it goes on where a record cannot be decoded, says why, demands the header and the footer
of a checkpoint, and ends with exit status 1 where it found damage (Kafka's ends with 0). It ends with a list on stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from kraftlib.cli.dump_batches import FoundBatch, InvalidTail, walk
from kraftlib.cli.dump_index import dump_offset_index, dump_time_index
from kraftlib.cli.dump_output import JsonOutput, Output, TextOutput
from kraftlib.cli.dump_producers import dump_producer_snapshot
from kraftlib.cli.dump_values import Decoder, control_type
from kraftlib.cli.usage import UsageError
from kraftlib.errors import ConfigError, CorruptBatchError

BOOTSTRAP: Final = "bootstrap.checkpoint"
SNAPSHOT_HEADER: Final = "SNAPSHOT_HEADER"
SNAPSHOT_FOOTER: Final = "SNAPSHOT_FOOTER"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare files and form."""
    parser.description = (
        "Show the batches and records of segments (.log) and checkpoints, and the entries of .index, .timeindex and\n"
        "producer .snapshot files, as `kafka-dump-log --cluster-metadata-decoder` does. Exit status 1: damage found."
    )
    parser.epilog = (
        "examples:\n"
        "  kraftlib dump-log data/__cluster_metadata-0/00000000000000000000.log\n"
        "  kraftlib dump-log --output json data/__cluster_metadata-0/*.checkpoint | jq .last_offset"
    )
    parser.add_argument("names", nargs="*", metavar="FILE", help="a file to show")
    parser.add_argument("--files", default="", metavar="A,B", help="the same, as Kafka's tool takes them")
    parser.add_argument(
        "--print-data-log", action="store_true", help="values are text of your own, not Kafka's metadata"
    )
    parser.add_argument("--skip-record-metadata", action="store_true", help="show only the values of records")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json: one object a batch, a line each"
    )
    # Said by habit; it is what happens anyway.
    parser.add_argument("--cluster-metadata-decoder", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--deep-iteration", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Show all files, then what was wrong with them."""
    names = [*options.names, *filter(None, options.files.split(","))]
    if not names:
        raise UsageError("dump-log needs a file: a segment, a checkpoint or an index")
    decoder = Decoder.TEXT if options.print_data_log else Decoder.METADATA
    output: Output = (
        JsonOutput(sys.stdout, decoder, name_files=len(names) > 1)
        if options.output == "json"
        else TextOutput(sys.stdout, decoder, skip_record_metadata=options.skip_record_metadata)
    )
    damages = [damage for name in names for damage in dump(name, output)]
    sys.stdout.flush()
    for damage in damages:
        print(f"kraftlib: {damage}", file=sys.stderr)
    return 1 if damages else 0


def dump(name: str, output: Output) -> Iterator[str]:
    """Show one file and yield what is wrong with it."""
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{name} is no file")
    output.begin(name)
    match path.suffix:
        case ".log":
            output.heading(f"Log starting offset: {_offset_of(path)}")
            yield from dump_batches(path, output)
        case ".checkpoint":
            output.heading(_checkpoint_heading(path))
            yield from dump_batches(path, output, is_checkpoint=True)
        case ".index":
            yield from dump_offset_index(path, _offset_of(path), output)
        case ".timeindex":
            yield from dump_time_index(path, _offset_of(path), output)
        case ".snapshot":
            yield from dump_producer_snapshot(path, output)
        case _:
            yield f"{path} was not looked at: its name ends in none of .log .checkpoint .index .timeindex .snapshot"


def _offset_of(path: Path) -> int:
    """Return the offset that a segment and its indexes are named by."""
    name = path.name.split(".")[0]
    if not (name.isascii() and name.isdigit()):
        raise ConfigError(f"{path} is not named by its first offset, as 00000000000000000000.log is")
    return int(name)


def _checkpoint_heading(path: Path) -> str:
    if path.name == BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    offset, dash, epoch = path.name.removesuffix(".checkpoint").partition("-")
    if not (dash and f"{offset}{epoch}".isascii() and offset.isdigit() and epoch.isdigit()):
        raise ConfigError(f"{path} is not named by its end offset and epoch, as {0:020}-{0:010}.checkpoint is")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"


def dump_batches(path: Path, output: Output, *, is_checkpoint: bool = False) -> Iterator[str]:
    """Show the batches of one file and yield what is wrong with them."""
    check = _Check(path)
    for found in walk(path):
        if isinstance(found, InvalidTail):
            output.invalid_tail(path, found)
            yield f"{path}: {found.size} invalid bytes at the end, from byte {found.position} on: {found.reason}"
        else:
            yield from _dump_batch(found, output, check)
    if is_checkpoint:
        yield from check.completeness()


def _dump_batch(batch: FoundBatch, output: Output, check: _Check) -> Iterator[str]:
    output.begin_batch(batch)
    yield from check.batch(batch)
    try:
        for record in batch.records():
            trouble = output.record(batch, record)
            if trouble:
                yield f"{check.path}: record {record.offset}: {trouble}"
            yield from check.offset(record.offset)
            if batch.is_control:
                check.control(control_type(record))
    except CorruptBatchError as error:
        output.unreadable(error)
        yield f"{check.path}: batch at byte {batch.position}: {error}"
    output.end_batch()


@attrs.define
class _Check:
    """Checks that span a whole file."""

    path: Path
    last_offset: int | None = None
    first_control: str | None = None
    batches: int = 0
    footer_at: int = 0
    """Number of the batch that ended in a footer, from 1."""

    def batch(self, batch: FoundBatch) -> Iterator[str]:
        """Take note of the next batch."""
        self.batches += 1
        if not batch.is_valid:
            yield f"{self.path}: batch at byte {batch.position} (offset {batch.base_offset}) does not fit its checksum"

    def offset(self, offset: int) -> Iterator[str]:
        """Take note of the next record's offset."""
        if self.last_offset is not None and offset != self.last_offset + 1:
            yield f"Non-consecutive offsets in {self.path}: {self.last_offset} is followed by {offset}"
        self.last_offset = offset

    def control(self, name: str) -> None:
        """Take note of a control record."""
        if self.batches == 1 and self.first_control is None:
            self.first_control = name
        if name == SNAPSHOT_FOOTER:
            self.footer_at = self.batches

    def completeness(self) -> Iterator[str]:
        """Yield what a checkpoint lacks: only one with header and footer is whole."""
        if self.first_control != SNAPSHOT_HEADER:
            yield f"{self.path} does not begin with a snapshot header"
        if self.footer_at == 0:
            yield f"{self.path} has no footer: it is not complete"
        elif self.footer_at != self.batches:
            yield f"{self.path} goes on after its footer"
