"""`kraftlib doctor`: look a replica's configuration, directory, disk, certificates and network over."""

from __future__ import annotations

import argparse
import json
from collections import Counter

from kraftlib.cli.config_file import FORMS, HELP, read_config
from kraftlib.doctor import Grade, examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the configuration."""
    parser.description = (
        "Look over what a replica needs: libraries, directory, disk, certificates, passwords, roles, and addresses of\n"
        "the others. Nothing is changed; the replica may run meanwhile. Exit status 1 if something is wrong."
    )
    parser.epilog = "example:\n  kraftlib doctor -c replica-1.toml"
    parser.add_argument("-c", "--config", required=True, metavar=FORMS, help=HELP)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")


def run(options: argparse.Namespace) -> int:
    """Print each finding as soon as it is known."""
    grades: Counter[Grade] = Counter()
    for finding in examine(read_config(options.config)):
        grades[finding.grade] += 1
        if options.output == "json":
            print(json.dumps({"subject": finding.subject, "grade": finding.grade.value, "text": finding.text}))
        else:
            print(f"{finding.grade.value:<8}{finding.subject:<10} {finding.text}", flush=True)
    if options.output == "text":
        print(f"{grades[Grade.ERROR]} errors, {grades[Grade.WARNING]} warnings")
    return 1 if grades[Grade.ERROR] else 0
