"""The plots of the core fuzzer: each comes about."""

from __future__ import annotations

import pytest

from tools.core_fuzz.themes import Theme
from tools.core_fuzz.world import CoreWorld

SEEDS_MAX = 20
"""A change of the core makes other runs of the same seeds."""


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("depose", "deposed leader"),
        ("behead", "beheaded quorum"),
        ("behead", "cut off heir"),
        ("behead", "forgotten leadership"),
        ("refuse", "refused link"),
        ("refuse", "leader that dies behind a mended link"),
        ("mute", "muted replica"),
        ("corner", "last copies"),
        ("change-source", "source of a download changed"),
        ("outdate", "outdated download"),
        ("shake", "shaken amnesiac"),
        ("change-twice", "change amid a change"),
        ("change-twice", "upgrade"),
        ("yield-in-vain", "hand-over in vain"),
        ("wreck", "wrecked replica"),
        ("brink", "epoch beyond the brink"),
        ("woo", "wooed follower"),
        ("ask", "log that begins behind a waiting observer"),
    ],
)
def test_a_plot_is_carried_out(step: str, what: str) -> None:
    lost = 2.0 if step == "shake" else 0.3  # only a replica that has lost its election state is shaken
    theme = Theme(
        name=f"mostly {step}",
        what=what,
        steps={"snapshot": 5.0, "lose-election": lost, "damage": 0.3, step: 20.0},
        dynamic=0.0 if what == "upgrade" else 1.0,
        voters=(3,),
        replicas=(4,),
    )
    for seed in range(SEEDS_MAX):
        world = CoreWorld(seed, theme)
        for _ in range(1_500):
            world.step()
            if world.counts[what]:
                return

    raise AssertionError(f"{what}: not in {SEEDS_MAX} seeds")
