"""The trouble of the core fuzzer: each kind comes about."""

from __future__ import annotations

from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.themes import THEMES


def test_every_trouble_is_made() -> None:
    wanted = {
        "power loss", "damaged log", "lost snapshot", "full disk", "replaced disk", "graceful end",
        "failed state machine", "lost election", "lost end of a log",
    }  # fmt: skip
    seen: set[str] = set()
    for seed in range(30):  # it ends as soon as each was made; the rarest ones come about once in dozens of runs
        for theme in THEMES:
            seen |= fuzz(seed, theme).faults.keys()
            if seen >= wanted:
                return

    assert seen >= wanted
