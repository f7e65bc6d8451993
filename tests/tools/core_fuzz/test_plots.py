"""The plots of the core fuzzer: each comes about."""

from __future__ import annotations

from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.themes import THEMES


def test_every_plot_is_carried_out() -> None:
    wanted = {
        "deposed leader", "refused link", "muted replica", "last copies", "source of a download changed",
        "outdated download", "shaken amnesiac", "change amid a change", "hand-over in vain", "wrecked replica",
        "upgrade",
    }  # fmt: skip
    seen: set[str] = set()
    runs = [
        *((seed, theme) for seed in range(4) for theme in THEMES),
        *((seed, "core-downloads") for seed in range(30)),
    ]
    for seed, theme in runs:
        seen |= fuzz(seed, theme).faults.keys()
        if seen >= wanted:
            return

    assert seen >= wanted
