"""Where the core fuzzer looks."""

from __future__ import annotations

import random

from kraftlib.testing.profiles import PROFILES
from tools.core_fuzz.themes import ORDINARY, STEPS, THEMES
from tools.core_fuzz.world import CoreWorld


def test_themes_name_steps_that_exist() -> None:
    assert not set(THEMES) & set(PROFILES)
    for name, theme in THEMES.items():
        assert theme.name == name
        assert set(theme.steps) <= set(STEPS)


def test_every_schedule_goes_on_and_some_kinds_of_trouble_are_left_out() -> None:
    drawn = [THEMES["core"].draw(random.Random(seed)) for seed in range(20)]

    assert all(weights[name] > 0 for weights in drawn for name in ORDINARY)
    assert all(any(not weights[name] for weights in drawn) for name in ("damage", "crash", "change"))


def test_every_kind_of_step_can_be_taken() -> None:
    world = CoreWorld(1, THEMES["core"])

    for name in STEPS:
        world.step_named(name)()
