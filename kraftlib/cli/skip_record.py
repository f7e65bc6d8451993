"""`kraftlib skip-record DIR --offset N --reason TEXT`: the way past a record that no state machine can apply."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Final

from kraftlib.cli.usage import UsageError
from kraftlib.offline.skipping import skip_record
from kraftlib.storage import names
from kraftlib.storage.claim import check_formatted
from kraftlib.storage.skips_file import read_skips

SHOWN: Final = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the directory, the record and the reason."""
    parser.description = (
        "Have the state machine skip a committed record, on a stopped replica. The record stays in the log.\n"
        "First look for a remedy in the code: a state machine that has a result for the record. If there is none,\n"
        "stop every replica, run this with the same offset in every directory, and start them. A replica that was\n"
        "left out stops at the record, as before. Without --offset: print what is skipped."
    )
    parser.epilog = 'example:\n  kraftlib skip-record data --offset 4711 --reason "ticket 12: apply divides by zero"'
    parser.add_argument("directory", metavar="DIR", type=Path, help="the directory: with meta.properties in it")
    parser.add_argument("--offset", type=int, metavar="N", help="the record that the error of the state machine names")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why: it comes into the audit log at every start")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")


def run(options: argparse.Namespace) -> int:
    """Skip it, or list what is skipped."""
    if options.reason and options.offset is None:
        raise UsageError(f"--reason {options.reason!r} needs --offset N: the record that is to be skipped")
    if options.offset is not None:
        now_ms = time.time_ns() // 1_000_000
        done = skip_record(options.directory, options.offset, reason=options.reason, now_ms=now_ms)
        if options.output == "text":
            shown = repr(done.value[:SHOWN]) + ("…" if len(done.value) > SHOWN else "")
            print(f"record {done.skip.offset} of epoch {done.skip.epoch}, {len(done.value)} bytes: {shown}")
            print("is not applied here from the next start on; do the same in the directory of every other replica")
    check_formatted(options.directory)
    skips = read_skips(options.directory / names.PARTITION_DIRECTORY)
    if options.output == "json":
        print(json.dumps([{"offset": each.offset, "epoch": each.epoch, "reason": each.reason} for each in skips]))
    elif options.offset is None:
        print(
            "\n".join(f"{each.offset} of epoch {each.epoch}: {each.reason}" for each in skips) or "no record is skipped"
        )
    return 0
