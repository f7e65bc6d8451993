"""What `spark-submit` is given: `spark-submit examples/kraft_job.py audit /archive`; the first word is the verb."""

from __future__ import annotations

import sys

from kraftlib.cli import main

if __name__ == "__main__":
    sys.exit(main(["spark", *sys.argv[1:]]))
