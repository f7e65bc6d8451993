"""The kinds of runs: size of the quorum, faults, and load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.testing.faults import FAULTS

NETWORK: Final = (
    "cut-pair", "cut-one-way", "isolate", "lonely-leader", "unheard-leaders", "split", "random-cuts", "loss",
    "packet-loss", "duplication", "reordering", "delay", "reset-connections", "corruption", "withhold-records",
    "strangers-message", "impossible-message", "uneven-connections",
)  # fmt: skip
CRASHES: Final = ("kill", "power-loss", "power-loss-everywhere", "kill-between-actions", "restart-gracefully", "resign",
    "fail-machine",
)  # fmt: skip
DISKS: Final = ("slow-disk", "hung-disk", "stuck-disk", "full-disk", "failing-disk", "lose-vote", "damage-log",
    "damage-several", "stale-copy", "mixed-copy", "cloned-disk",
)  # fmt: skip
MEMBERSHIP: Final = (
    "add-voter",
    "remove-voter",
    "replace-disk",
    "wipe-observer",
    "take-snapshot",
    "forget-log",
    "hold-log",
    "snapshot-between-epochs",
    "snapshot-amid-change",
    "restart-all-in-turn",
    "transfer-leadership",
    "change-amid-transfer",
)
TIMES: Final = ("pause", "clock-drift", "wall-clock-jump", "delay")


@attrs.frozen(kw_only=True)
class Profile:
    """A kind of run. Each seed draws its own values from these."""

    name: str
    what: str
    """One line for people."""

    voters: tuple[int, ...] = (3, 3, 3, 5, 5, 1, 2, 4, 7)
    observers: tuple[int, ...] = (0, 0, 0, 1, 2)
    kraft_versions: tuple[int, ...] = (0, 0, 1)
    """1: the voters stand in the log, and change (KIP-853)."""

    faults: tuple[str, ...] = tuple(FAULTS)
    """The faults to draw from."""

    share: tuple[float, float] = (0.15, 0.6)
    """Share of the faults that a seed uses."""

    paces: tuple[float, ...] = (0.05, 0.1, 0.1, 0.2, 0.5, 1.0)
    """Scale of all times, compared with the default timeouts: 0.1 means an election timeout of 100 ms."""

    trouble_ms: tuple[int, int] = (8_000, 24_000)
    """Duration of the faults, at pace 1."""

    rate: tuple[float, float] = (2.0, 60.0)
    """Appends a second, at pace 1."""

    mixed: float = 0.1
    """Share of the seeds in which some nodes run an older release."""

    rarely: float = 1.0
    """Factor by which the pauses between strikes are longer than usual."""

    noise: bool = False
    """Whether 5 % of all packets are lost, and all are up to 50 ms late, all the time."""

    odd_configurations: bool = True
    """Whether limits may be so small that they matter."""


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(name="swarm", what="faults of all kinds, some of them in each seed"),
        Profile(name="network", what="messages are lost, late, twice or damaged; links are cut", faults=NETWORK),
        Profile(name="crashes", what="processes and machines die and come back", faults=CRASHES, share=(0.4, 1.0)),
        Profile(name="disks", what="disks are slow, hang or fail, machines lose power", faults=(*DISKS, *CRASHES)),
        Profile(name="clocks", what="clocks run wrong, processes stand still", faults=(*TIMES, "kill", "isolate")),
        Profile(
            name="membership",
            what="voters are added and removed, disks are replaced, beside faults of all kinds",
            voters=(1, 2, 3, 3, 3, 4, 5),
            observers=(1, 2, 3),
            kraft_versions=(1,),
            faults=(
                *MEMBERSHIP,
                *CRASHES,
                *NETWORK,
                "lose-vote",
                "damage-log",
                "damage-several",
                "full-disk",
                "stale-copy",
                "mixed-copy",
                "cloned-disk",
                "edited-voters",
            ),
        ),
        Profile(
            name="hours",
            what="long runs with little load, at the pace of the default timeouts",
            voters=(3, 3, 5),
            observers=(0, 0, 1),
            share=(0.3, 0.8),
            paces=(1.0,),
            trouble_ms=(600_000, 1_200_000),
            rate=(0.2, 1.0),
            rarely=20.0,
            mixed=0.0,
            odd_configurations=False,
        ),
        Profile(
            name="quiet",
            what="an hour of 5 % loss and 50 ms jitter, and nothing else: no voter may start an election (V2)",
            faults=(),
            voters=(3, 5),
            observers=(0,),
            kraft_versions=(0, 1),
            paces=(1.0,),
            trouble_ms=(3_600_000, 3_600_000),
            rate=(0.1, 0.5),
            mixed=0.0,
            odd_configurations=False,
            noise=True,
        ),
        Profile(
            name="calm",
            what="no faults, at 100 records a second: measures the speed of the simulator",
            faults=(),
            voters=(3,),
            observers=(0,),
            kraft_versions=(0,),
            paces=(1.0,),
            rate=(71.0, 71.0),  # calls: bursts, reads and several values in one make it 100 records a second
            mixed=0.0,
            odd_configurations=False,
        ),
    )
}


def profile_of(name: str) -> Profile:
    """Return the profile of this name. Raises: ConfigError, which says what there is."""
    if name not in PROFILES:
        raise ConfigError(f"there is no profile {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
