"""`kraftlib verify-dir DIR`: read every file of a replica's directory, and report damage.

It changes nothing and may run beside the replica. Exit status 1: something is damaged; the place is named by file and
byte. Works on Kafka's directories, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import attrs

from kraftlib.cli.progress import Bar
from kraftlib.offline.verify import total_bytes, verify_directory
from kraftlib.offline.verify_log import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the directory and the form."""
    parser.description = (
        "Read every file of a replica's directory, kraftlib's or Kafka's, and report damage with its position.\n"
        "Nothing is changed. Exit status 1: damage was found."
    )
    parser.epilog = "examples:\n  kraftlib verify-dir data\n  kraftlib verify-dir data --output json --quiet | jq .path"
    parser.add_argument("directory", metavar="DIR", help="the directory: with meta.properties in it")
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json: one object a file, a line each"
    )
    parser.add_argument("--quiet", action="store_true", help="print damaged files only")


def run(options: argparse.Namespace) -> int:
    """Look at everything, and say it as it comes."""
    directory = Path(options.directory)
    damaged = count = 0
    with Bar("reading", total_bytes(directory) if directory.is_dir() else 0) as bar:
        for finding in verify_directory(directory, progress=bar.advance):
            count += 1
            damaged += finding.verdict == "damaged"
            if finding.verdict != "ok" or not options.quiet:
                line = (
                    json.dumps(attrs.asdict(finding), default=str)
                    if options.output == "json"
                    else _text(finding, directory)
                )
                print(line, flush=True)
    if options.output == "text":
        print(f"{count} files, {damaged} damaged" if damaged else f"{count} files, all of them whole", file=sys.stderr)
    return 1 if damaged else 0


def _text(finding: Finding, directory: Path) -> str:
    where = "" if finding.position is None else f" at byte {finding.position}"
    name = finding.path.relative_to(directory) if finding.path != directory else finding.path
    return f"{finding.verdict:8}{name}{where}: {finding.detail}"
