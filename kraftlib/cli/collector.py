"""The garbage collector of a process that is one replica, from its start to its end."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 20_000
"""New objects after which the collector looks at them. A few dozen calls of clients make the 700 of Python's default,
and nearly all that it finds then are calls under way, which go by themselves when they are answered."""


def calm_collector() -> None:
    """Have it pass over the modules and the replica, which stay until the end, and look less often at the rest."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
