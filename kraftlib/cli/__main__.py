"""`python -m kraftlib.cli`: the command, where no script is installed."""

from __future__ import annotations

import sys

from kraftlib.cli import main

sys.exit(main())
