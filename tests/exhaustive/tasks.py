"""One scene, searched in a process of its own."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Final

from tests.exhaustive.plants import planted
from tests.exhaustive.scenes import LONG
from tests.exhaustive.search import Result, Search

SCENES: Final = {scene.name: scene for scene in LONG}

Task = tuple[str, int | None, str | None, bool]
"""A scene, how many states at most, what is planted, and whether the search tells how far it is."""


def search(task: Task) -> Result:
    """Search one scene, in a process of the pool."""
    name, states_max, plant, is_talkative = task
    logging.disable(logging.CRITICAL)
    tell = (lambda line: print(f"  {line}", file=sys.stderr, flush=True)) if is_talkative else None
    with planted(plant) if plant else contextlib.nullcontext():
        return Search(SCENES[name]).run(states_max=states_max, tell=tell)
