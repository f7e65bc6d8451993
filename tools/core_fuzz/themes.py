"""Where the core fuzzer looks: each theme makes some kinds of steps more likely, to reach rare places on purpose.

A seed draws from its theme how likely each step is, some not at all: some faults keep others from mattering.
"""

from __future__ import annotations

import random as chance
from collections.abc import Mapping
from typing import Final

import attrs

STEPS: Final[Mapping[str, float]] = {
    "deliver": 100.0,
    "late": 2.0,
    "flush": 14.0,
    "time": 6.0,
    "append": 10.0,
    "snapshot": 2.0,
    "lose": 2.0,
    "crash": 0.8,
    "start": 2.5,
    "read": 2.0,
    "learn": 1.0,
    "change": 2.0,
    "resign": 0.3,
    "transfer": 0.4,
    "replace": 0.25,
    "lose-election": 0.0,
    "damage": 0.0,
    "lose-snapshot": 0.0,
    "stale-copy": 0.0,
    "full": 0.05,
    "power": 2.0,
    "depose": 0.4,
    "behead": 0.2,
    "change-and-die": 0.2,
    "change-source": 0.1,
    "corner": 0.5,
    "refuse": 0.1,
    "mute": 0.1,
    "replay": 0.5,
    "forge": 1.5,
    "press": 0.5,
    "tamper": 1.0,
    "aim": 1.0,
    "outdate": 0.3,
    "shake": 0.5,
    "change-twice": 0.3,
    "yield-in-vain": 0.15,
    "wreck": 0.0,
    "quit": 0.1,
    "stop-machine": 0.03,
    "ask": 1.0,
    "brink": 0.2,
    "woo": 0.3,
}
"""The kinds of steps, and how often each is taken."""

ORDINARY: Final = frozenset({"deliver", "flush", "time", "append", "start"})
"""The steps that every schedule needs."""


@attrs.frozen(kw_only=True)
class Theme:
    """A kind of schedule."""

    name: str
    what: str
    """One line for people."""
    steps: Mapping[str, float] = attrs.field(factory=dict)
    """The differences from `STEPS`."""
    dynamic: float = 0.8
    """The share of the seeds whose voters may change."""
    voters: tuple[int, ...] = (1, 2, 3, 3, 3, 4, 5)
    replicas: tuple[int, ...] = (3, 4, 5)
    priorities: float = 0.15
    """The share of the replicas that may have an election priority."""
    length: int = 3_000
    """The number of steps of a seed before all is mended."""

    def draw(self, random: chance.Random) -> dict[str, float]:
        """Draw how likely each kind of step is."""
        weights = {**STEPS, **self.steps}
        for name in weights:
            if name not in ORDINARY:
                weights[name] *= random.choice((0.0, 1.0, 1.0, 3.0))
        weights["time"] *= random.choice((0.5, 1.0, 3.0))  # the number of steps before a timer ends
        return weights


THEMES: Final[Mapping[str, Theme]] = {
    theme.name: theme
    for theme in (
        Theme(
            name="core",
            what="the core alone: faults of all kinds, any order of messages",
            steps={"lose-election": 0.15, "damage": 0.4, "lose-snapshot": 0.05, "stale-copy": 0.05, "wreck": 0.05},
        ),
        Theme(
            name="core-votes",
            what="the core alone: elections, lost votes, crashes between actions",
            steps={
                "lose-election": 0.2,
                "stale-copy": 0.1,
                "crash": 1.5,
                "resign": 0.8,
                "transfer": 0.8,
                "late": 4.0,
                "depose": 0.8,
                "behead": 0.8,
                "press": 2.0,
                "corner": 1.2,
                "shake": 2.0,
            },
            voters=(2, 3, 3, 3, 4, 5),
        ),
        Theme(
            name="core-disks",
            what="the core alone: lost records and snapshots, repair, retention, full disks",
            steps={
                "corner": 1.5,
                "damage": 1.0,
                "lose-snapshot": 0.5,
                "lose-election": 0.1,
                "stale-copy": 0.2,
                "snapshot": 4.0,
                "full": 0.3,
                "wreck": 0.3,
                "shake": 1.5,
            },
            voters=(3, 3, 3, 4, 5),
        ),
        Theme(
            name="core-voters",
            what="the core alone: voters are added and removed, disks are replaced, leadership is transferred",
            steps={
                "change": 5.0,
                "replace": 0.6,
                "crash": 1.2,
                "transfer": 1.0,
                "change-and-die": 0.8,
                "change-twice": 1.5,
                "shake": 1.0,
                "yield-in-vain": 0.3,
                "lose-election": 0.1,
                "damage": 0.05,
            },
            dynamic=1.0,
            voters=(1, 2, 2, 3, 3, 4, 5),
        ),
        Theme(
            name="core-downloads",
            what="the core alone: snapshot downloads while leaders change, and with different bytes",
            steps={
                "snapshot": 6.0,
                "lose": 4.0,
                "crash": 1.2,
                "resign": 0.8,
                "change-source": 1.5,
                "outdate": 1.5,
                "lose-snapshot": 0.2,
                "full": 0.2,
                "aim": 4.0,
            },
        ),
        Theme(
            name="core-links",
            what="the core alone: links that are refused or one-way for long, election priorities",
            steps={"refuse": 1.0, "mute": 1.0, "resign": 0.5, "time": 9.0, "full": 0.1, "replace": 0.0},
            voters=(3, 4, 5, 5, 5),
            replicas=(5,),
            priorities=0.5,
        ),
        Theme(
            name="core-lies",
            what="the core alone: messages of liars and strangers, tampered answers, and what comes twice",
            steps={
                "replay": 4.0,
                "forge": 12.0,
                "tamper": 12.0,
                "press": 2.0,
                "aim": 3.0,
                "change": 3.0,
                "snapshot": 4.0,
                "replace": 0.6,
                "lose-election": 0.05,
            },
            priorities=0.3,
        ),
    )
}
"""Every theme by its name, which is that of a profile of `dev.py simulate`."""
