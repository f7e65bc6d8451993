"""Draws the circumstances of a run from its seed: configuration, priorities, links, disks, kinds of faults."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.config import PRIORITY_MAX
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.profiles import Profile
from kraftlib.types import ReplicaId

if TYPE_CHECKING:
    from kraftlib.testing.world import World

ROUNDS_SHARE: Final = 0.3
"""The share of runs that tell one or two observers in rounds, as if they were many."""

UPSTREAMS_SHARE: Final = 0.5
"""The share of runs whose observers have upstreams."""

LAGS_SHARE: Final = 0.25
"""The share of runs whose listeners are late now and then."""

DIGESTS_SHARE: Final = 0.3
"""Share of the seeds whose replicas compare their states."""

RESERVE_SHARE: Final = 0.5
"""Share of the seeds whose disks have a small reserve."""


def draw_housekeeping(draw: chance.Random, pace: float) -> dict[str, int]:
    """Draw how often replicas look after their logs by themselves: hardly ever in a short run, or all the time."""
    return {
        "retention_interval_ms": max(10, round(draw.choice((60_000, 1_000)) * pace)),
        "scrub_interval_ms": round(draw.choice((0, 1_000, 5_000)) * pace),
    }


def draw_rounds(draw: chance.Random) -> dict[str, int]:
    """Draw how many observers are too many to be told at once: mostly more than there are."""
    return {"observers_at_once": draw.choice((0, 1)), "observer_round_ms": 4} if draw.random() < ROUNDS_SHARE else {}


def draw_upstreams(draw: chance.Random, world: World) -> None:
    """Let observers fetch from up to three others, be they voters or observers, and perhaps in a circle: mostly none.

    Not those that are to vote.
    """
    if draw.random() >= UPSTREAMS_SHARE:
        return
    voters = {key.id for key in world.voter_keys}
    for node in world.nodes.values():
        others = [other.endpoint for other in world.nodes.values() if other is not node]
        if node.key.id not in voters and not node.config.auto_join and others:
            places = tuple(draw.sample(others, min(draw.randint(1, 3), len(others))))
            node.config = attrs.evolve(node.config, upstreams=places)


def draw_lags(draw: chance.Random, pace: float) -> int:
    """Draw by how much a turn of the listeners may be late, in µs: mostly by nothing, now and then by long."""
    if draw.random() >= LAGS_SHARE:
        return 0
    return round(draw.choice((10, 300, 5_000)) * pace * MILLISECOND)


def draw_digests(draw: chance.Random, pace: float, *, odd: bool) -> dict[str, int]:
    """Draw how often replicas compare their states: mostly never."""
    if not odd or draw.random() >= DIGESTS_SHARE:
        return {}
    return {"digest_interval_ms": max(1, round(draw.choice((100, 500, 2_000)) * pace))}


def draw_reserve(draw: chance.Random, *, odd: bool) -> dict[str, int]:
    """Draw how much of a disk is reserved: mostly more than a run writes."""
    return {"disk_reserve_bytes": draw.choice((400, 2_000, 20_000))} if odd and draw.random() < RESERVE_SHARE else {}


def draw_config(draw: chance.Random, pace: float, *, odd: bool) -> dict[str, Any]:
    """Draw the configuration that all nodes share: the defaults at this pace, now and then with odd limits."""

    def paced(default_ms: int, least: int = 1) -> int:
        return max(least, round(default_ms * pace))

    config: dict[str, Any] = {
        "election_timeout_ms": paced(1_000),
        "election_backoff_max_ms": paced(1_000),
        "fetch_timeout_ms": paced(2_000),
        "fetch_max_wait_ms": paced(500),
        "request_timeout_ms": paced(2_000),
        "retry_backoff_ms": paced(20, 2),
        "leader_loss_stagger_ms": paced(30, 2),
        "priority_takeover_ms": paced(2_000),
    }
    if odd:
        config["auto_join"] = draw.random() < 0.2
        if draw.random() < 0.4:
            config["retention_bytes"] = draw.choice((0, 500, 5_000, 50_000))
        if draw.random() < 0.3:
            config["fetch_max_bytes"] = draw.choice((1, 100, 1_000, 10_000))
        if draw.random() < 0.5:
            config["snapshot_max_bytes"] = draw.choice((40, 100, 300))  # several chunks even for a small state
        if draw.random() < 0.2:
            config["append_linger_ms"] = draw.choice((1, 5, 25))
        if draw.random() < 0.1:
            config["batch_max_bytes"] = 1_024
        if draw.random() < 0.1:
            config["backlog_max_bytes"] = 4_096
        if draw.random() < 0.2:
            config["fetch_max_wait_ms"] = paced(draw.choice((50, 200, 1_000)))
        if draw.random() < 0.1:
            # Not below twice the wait, else an idle Fetch is given up right before its answer.
            config["request_timeout_ms"] = max(paced(draw.choice((1_000, 4_000))), 2 * config["fetch_max_wait_ms"])
    return config


def draw_priorities(draw: chance.Random, count: int) -> dict[ReplicaId, int]:
    """Draw the nodes with an election priority: mostly none."""
    if draw.random() >= 0.15:
        return {}
    return {number: draw.choice((0, 0, 1, 50, PRIORITY_MAX)) for number in range(1, count + 1)}


def draw_environment(draw: chance.Random, world: World) -> None:
    """Draw how far apart the nodes are, and how fast their disks."""
    delay_us = int(10 ** draw.uniform(1.7, 3.3))
    world.link_us = (delay_us, delay_us * draw.choice((0, 1, 4)) + 10)
    world.disk_spread_us = draw.choice((50, 400, 400, 5_000))
    inline = draw.random() < 0.1
    for source in world.nodes:
        for target in world.nodes:
            if source != target:
                world.make_ordinary(world.network.link(source, target))
    for node in world.nodes.values():
        node.disk.spread_us = world.disk_spread_us
        node.disk.inline = inline


def draw_kinds(draw: chance.Random, profile: Profile) -> list[str]:
    """Draw what may go wrong in this run."""
    if not profile.faults:
        return []
    share = draw.uniform(*profile.share)
    kinds = [name for name in profile.faults if draw.random() < share]
    return kinds or [draw.choice(profile.faults)]
