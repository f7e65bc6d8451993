"""Oddities, which few runs have: rare configurations, replicas that move, snapshots that take their time.

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
    if random.random() < 0.3:
        habits["observers_at_once"] = random.choice((0, 0, 1))
        habits["observer_round_ms"] = random.choice((1, 4, 100))
    if random.random() < 0.6 and habits.get("private_apis", True):
        habits["digest_interval_ms"] = random.choice((0, 800, 8_000))
    if random.random() < 0.3:
        habits["disk_reserve_bytes"] = random.choice((0, 0, 2, 400, 20_000))
    return habits


@attrs.frozen
class Oddities:
    """The oddities of a seed, drawn beside its schedule."""

    random: chance.Random
    moves: float
    """How likely a replica that starts is reached at another address from then on."""
    writes_slowly: float
    """How likely a snapshot is written beside the loop, and told of later."""
    identifies: float = 0.0
    """How likely a replica hears, as time goes by, that another one is a controller of Kafka, or is none."""
    listens_twice: float = 0.0
    """How likely a replica has a second listener, on which no request comes."""
    hides_places: float = 0.0
    """How likely a message does not say where the leader is reached, as those of older releases."""

    proves_nothing: float = 0.0
    """How likely nothing proves that a Fetch is of the replica whose id it gives."""
    breaks: float = 0.0
    """How likely a connection breaks as time goes by, whether anything is asked over it or not."""
    lacks_space: float = 0.0
    """How likely a write beside the log finds no space, though the disk was not said to be full."""
    reads_badly: float = 0.0
    """How likely a leader cannot read the piece of a snapshot that it is asked for, and says only that."""

    spoils_repairs: float = 0.0
    """How likely the answer to a replica that fetches missing records has nothing that fills them."""
    mixes_epochs: float = 0.0
    """How likely the last batch of an answer is of an older epoch than the one before it, where it can be."""
    counts_others: float = 0.0
    """How likely an answer begins an epoch with other voters than the configured ones."""
    strange_headers: float = 0.0
    """How likely an answer has a sound batch with a header that no log of a quorum has."""
    other_versions: float = 0.0
    """How likely a new voter supports other kraft.versions than the others, as one of another release does."""

    @classmethod
    def of(cls, seed: int, theme: str) -> Oddities:
        """Draw them."""
        kinds = ("oddities", "more oddities", "later oddities", "strange oddities", "versions")
        random, more, later, strange, versions = (chance.Random(f"{which} of {theme}/{seed}") for which in kinds)
        return cls(
            random=random,
            moves=random.choice((0.0, 0.0, 0.3)),
            writes_slowly=random.choice((0.0, 0.3, 0.7)),
            identifies=random.choice((0.0, 0.0, 0.0, 0.01)),
            listens_twice=random.choice((0.0, 0.0, 0.5)),
            hides_places=random.choice((0.0, 0.0, 0.0, 0.5, 0.9)),
            proves_nothing=random.choice((0.0, 0.0, 0.1, 0.5)),
            breaks=more.choice((0.0, 0.0, 0.0, 0.02)),
            lacks_space=more.choice((0.0, 0.0, 0.0, 0.3)),
            reads_badly=more.choice((0.0, 0.0, 0.0, 0.3, 0.8)),
            spoils_repairs=more.choice((0.0, 0.0, 0.4)),
            mixes_epochs=later.choice((0.0, 0.0, 0.0, 0.5)),
            counts_others=later.choice((0.0, 0.0, 0.02)),
            strange_headers=strange.choice((0.0, 0.0, 0.0, 0.02)),
            other_versions=versions.choice((0.0, 0.3, 0.8)),
        )

    def versions_of(self, number: int) -> tuple[int, int]:
        """Return the least and the newest kraft.version that a replica says it supports."""
        is_other = chance.Random(f"{number} {self.other_versions}").random() < self.other_versions
        return (1, 2) if is_other else (0, 1)

    def is_unproven(self) -> bool:
        """Whether nothing proves of whom the next Fetch is."""
        return self.proves_nothing > 0.0 and self.random.random() < self.proves_nothing

    def is_out_of_space(self) -> bool:
        """Whether the next write beside the log finds no space."""
        return self.lacks_space > 0.0 and self.random.random() < self.lacks_space

    def is_unreadable(self) -> bool:
        """Whether the next piece of a snapshot cannot be read."""
        return self.reads_badly > 0.0 and self.random.random() < self.reads_badly

    def spoils_repair(self) -> bool:
        """Whether the next answer to a repair is of no use."""
        return self.spoils_repairs > 0.0 and self.random.random() < self.spoils_repairs

    def bends_rarely(self, share: float) -> bool:
        """Whether the next answer that can be bent in a rare way is."""
        return share > 0.0 and self.random.random() < share

    def as_said(self, body: Any) -> Any:
        """Return a message as it is sent: with or without where the leader is reached."""
        if not self.hides_places or self.random.random() >= self.hides_places:
            return body
        hidden = next((name for name in ("leader_endpoints", "node_endpoints") if getattr(body, name, None)), None)
        return body if hidden is None else attrs.evolve(body, **{hidden: ()})
