"""`python3 dev.py simulate`, or `python -m tools.simulate`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from kraftlib.cli import exit_status, simulate
from kraftlib.testing.campaign import spread
from kraftlib.testing.profiles import PROFILES, profile_of
from tools.core_fuzz.themes import THEMES
from tools.simulate import core
from tools.simulate.program import PROGRAM
from tools.simulate.scenarios import run_scenarios
from tools.simulate.seeds import run_seed

EXAMPLES: Final = """
examples:
  python3 dev.py simulate --seeds 0:1000 --jobs 2    a thousand quorums, every second one held against the rules
  python3 dev.py simulate --seeds 0:500 --profile core-votes    the core alone, in any order of messages
  python3 dev.py simulate --scenario list            the scenarios: one fault each, and what it shows
  python3 dev.py simulate --scenario E4 --seeds 0:50 one of them; `all` for all

profiles:
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or print the help and exit."""
    parser = argparse.ArgumentParser(prog="dev.py simulate", formatter_class=argparse.RawDescriptionHelpFormatter)
    simulate.add_arguments(parser)
    parser.add_argument(
        "--scenario", metavar="ID", help="run one scenario instead, or `all` of them; `list` lists them"
    )
    known = [(profile.name, profile.what) for profile in PROFILES.values()]
    parser.epilog = EXAMPLES + simulate.listed([*known, *((theme.name, theme.what) for theme in THEMES.values())])
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Run seeds or scenarios; return 1 if a promise was broken."""
    if options.scenario is not None:
        return run_scenarios(options)
    if options.profile in THEMES:
        core.refuse(options)
    else:
        profile_of(options.profile)
    simulate.check(options)
    if options.seed is None:
        one = partial(run_seed, profile=options.profile, trouble_ms=options.until_ms, subject=options.subject)
        return simulate.report(spread(one, options.seeds or simulate.DEFAULT_SEEDS, jobs=options.jobs), options)
    return core.run_one(options) if options.profile in THEMES else simulate.run(options, PROGRAM)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = parse(arguments)
    return exit_status(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
