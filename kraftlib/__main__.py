"""`python -m kraftlib` is the command `kraftlib`, where its script is not on the path."""

from __future__ import annotations

import sys

from kraftlib.cli import main

sys.exit(main())
