"""The profiles `core` and `core-...` of `dev.py simulate`: schedules of the core alone."""

from __future__ import annotations

import argparse
import json
import sys

from kraftlib.cli import simulate
from kraftlib.errors import ConfigError
from kraftlib.testing.campaign import Finding, quiet
from kraftlib.testing.violation import InvariantViolation
from tools.core_fuzz.fuzz import fuzz


def refuse(options: argparse.Namespace) -> None:
    """Refuse what a schedule of the core alone does not have. Raises: ConfigError."""
    for name in ("until_ms", "subject", "timeline", "only", "minimize"):
        if getattr(options, name) not in (None, False):
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} does not go with the profile {options.profile}, which runs the core alone")


def run_one(options: argparse.Namespace) -> int:
    """Run one seed, with its steps if wanted, and with the last of them if it breaks something."""
    as_json, steps = options.output == "json", []  # type: tuple[bool, list[str]]

    def show(step: str) -> None:
        steps.append(step)
        if options.trace:
            print(json.dumps({"step": step}) if as_json else step)

    with quiet():
        try:
            result = fuzz(options.seed, options.profile, trace=show)
        except InvariantViolation as violation:
            if as_json:
                print(json.dumps(simulate.plain(Finding.of(violation, options.seed, options.profile))))
            elif not options.trace:
                print("\n".join(steps[-simulate.LATEST_SHOWN :]))
            print(violation, file=sys.stderr)
            return 1
    print(json.dumps(simulate.plain(result)) if as_json else simulate.describe(result))
    return 0
