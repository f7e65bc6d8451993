"""What few runs of the core fuzzer have: rare configurations, replicas that move, snapshots that take their time.

It is drawn beside the schedule, so that a new oddity leaves the schedules of most seeds as they are.
"""

from __future__ import annotations

import random as chance
from typing import Any

import attrs


def draw_habits(random: chance.Random) -> dict[str, Any]:
    """Draw what is configured in another way than most do."""
    habits: dict[str, Any] = {}
    if random.random() < 0.2:
        habits["strict"] = True
    if random.random() < 0.1:
        habits["private_apis"] = False
    if random.random() < 0.15:
        habits["snapshot_rate_bytes"] = random.choice((100, 1_000, 100_000))
    if random.random() < 0.2:
        habits["leader_loss_stagger_ms"] = random.choice((0, 1, 50))
    if random.random() < 0.2:
        habits["election_backoff_max_ms"] = random.choice((0, 10, 100))
    if random.random() < 0.1:
        habits["yield_to"] = tuple(random.sample((1, 2, 3), random.choice((1, 1, 2))))
    return habits


@attrs.frozen
class Oddities:
    """What a seed does that few do, drawn beside its schedule."""

    random: chance.Random
    moves: float
    """How likely a replica that starts is reached at another address from then on."""
    writes_slowly: float
    """How likely a snapshot is written beside the loop, and told of later."""

    @classmethod
    def of(cls, seed: int, theme: str) -> Oddities:
        """Draw them."""
        random = chance.Random(f"oddities of {theme}/{seed}")
        return cls(random, random.choice((0.0, 0.0, 0.3)), random.choice((0.0, 0.3, 0.7)))
