"""Worlds for the tests of the simulator itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kraftlib.testing.campaign import quiet
from kraftlib.testing.world import World


@contextmanager
def world(seed: int = 1, **more: Any) -> Iterator[World]:
    """A started quorum with a leader."""
    with quiet():
        made = World(seed, **more)
        made.start()
        made.run_until_leader()
        yield made
