"""`python -m tools.bench`: read the command line, measure, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kraftlib.cli import one_line
from kraftlib.errors import KraftError
from tools.bench import commits


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit status."""
    parser = argparse.ArgumentParser(prog="dev.py bench", formatter_class=argparse.RawDescriptionHelpFormatter)
    commits.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        return commits.run(options)
    except KeyboardInterrupt:
        return 130
    except (KraftError, OSError) as error:
        print(f"bench: {one_line(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
