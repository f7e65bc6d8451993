"""Trouble with disks: slow, hung, full and failing ones, and the loss of durable data."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Final

from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.fault_parts import spared_voter, start_all
from kraftlib.testing.network_faults import Undo, leader_or_any
from kraftlib.testing.process import Ending

if TYPE_CHECKING:
    from kraftlib.testing.world import World


APPENDS_THAT_WAIT: Final = 30
"""Appends that come right before a disk is full: more than a small reserve has room for."""


def slow_disk(world: World, random: chance.Random) -> Undo:
    """Let a disk take up to an election timeout for everything (scenario S10)."""
    node = random.choice(list(world.nodes.values()))
    disk = node.disk
    disk.spread_us = int(node.config.election_timeout_ms * MILLISECOND * random.random())

    def undo() -> None:
        disk.spread_us = world.disk_spread_us

    return undo


def hung_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a disk answer nothing until this ends."""
    node = leader_or_any(world, random)
    if node is None:
        return None
    node.disk.hung = True
    return node.disk.unhang


def stuck_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a disk answer nothing ever again: only another life of the machine gets it going (scenario S10)."""
    node = leader_or_any(world, random)
    if node is None:
        return None
    node.disk.hung = True

    def undo() -> None:
        node.end(Ending.POWER_LOST)
        node.disk.unhang()
        start_all([node])

    return undo


def full_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a disk have only the space that writes under way need; now and then all of them (scenario S6)."""
    one = leader_or_any(world, random)
    nodes = list(world.nodes.values()) if one is None or random.random() < 0.2 else [one]
    if one is not None and one.leads is not None:
        for _ in range(APPENDS_THAT_WAIT):
            world.workload.append_to(one)

    def say(full: bool) -> None:
        for node in nodes:
            node.disk.full = full
            if node.process is not None:
                node.process.look_at_space()

    say(True)
    return lambda: say(False)


def failing_disk(world: World, random: chance.Random) -> Undo | None:
    """Let the next fsync of a disk fail: its replica must stop (scenario S5)."""
    node = leader_or_any(world, random)
    if node is None:
        return None
    node.disk.failing = True

    def undo() -> None:
        node.disk.failing = False
        start_all([node])

    return undo


def lose_vote(world: World, random: chance.Random) -> Undo | None:
    """Take the election file of a voter away while it is down (scenario E3).

    Half of the time the leader dies when it comes back, so that a candidate asks it for its vote.
    """
    node = spared_voter(world, random)
    if node is None or node.edited_voters:  # without its vote it may take the edited list for its own
        return None
    node.end(Ending.POWER_LOST)
    node.lose_vote()
    wanted = random.random() < 0.5

    def undo() -> None:
        node.start()
        leader = world.leader()
        if wanted and leader is not None:
            leader.end(Ending.KILLED)
            world.timeline.after(3 * leader.config.election_timeout_ms * MILLISECOND, leader.start)

    return undo


def damage_log(world: World, random: chance.Random) -> Undo | None:
    """Let the disk of a voter lose records that were durable, while it is down (scenario S1)."""
    node = spared_voter(world, random)
    if node is None:
        return None
    node.end(Ending.POWER_LOST)
    node.damage_log(latent=random.random() < 0.3)
    return node.start


def damage_several(world: World, random: chance.Random) -> Undo | None:
    """Let the disks of a minority of the voters lose records at one time, each in several places (scenario S1).

    If it is one replica, it may have forgotten its votes as well.
    """
    first = spared_voter(world, random)
    minority = min((len(world.checker.voters_of(node)) - 1) // 2 for node in world.nodes.values())
    if first is None or minority < 1:
        return None
    others = [node for node in world.kept_voters() if node is not first]
    nodes = [first, *random.sample(others, min(len(others), random.randint(0, minority - 1)))]
    for node in nodes:
        node.end(Ending.POWER_LOST)
    for node in nodes:
        node.damage_log(latent=random.random() < 0.3, places=random.randint(1, 3))
    if len(nodes) == 1 and random.random() < 0.3:
        first.lose_vote()
    return lambda: start_all(nodes)
