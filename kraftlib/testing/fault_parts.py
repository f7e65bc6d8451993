"""The parts that several kinds of trouble share: the voters that may lose something, and how they come back."""

from __future__ import annotations

import random as chance
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Process

if TYPE_CHECKING:
    from kraftlib.testing.world import World


def cut_log(process: Process) -> None:
    """Have a snapshot written, and everything before it forgotten."""
    if process.retention.holds:
        return
    process.take_snapshot(0)
    latest = process.replica.state.log.latest_snapshot
    if latest is not None and latest.offset <= process.applier.applied_offset:
        process.retention.let_go(latest)


def anybody_impaired(world: World) -> bool:
    """Whether a replica has forgotten its votes or lost records: until it is whole again, no other voter may go."""
    return any(node.is_impaired for node in world.nodes.values())


def is_needed(world: World, observer: SimulatedNode) -> bool:
    """Whether an observer may be about to vote, and the voters that live would then be no majority without it."""
    if not (world.admin.is_changing or observer.config.auto_join):
        return False
    return 2 * len(world.kept_voters()) <= len(world.current_voters()) + 1


def spared_voter(world: World, random: chance.Random) -> SimulatedNode | None:
    """Pick a voter whose disk may lose something: one at a time, and none that is the only voter of a set in some log.

    The voters may be changing meanwhile. If the others cannot elect each other then, they cannot be asked to
    (`liveness.electable`), and acknowledged records must be there all the same.
    """
    count, kept = len(world.current_voters()), world.kept_voters()
    sets = [world.checker.voters_of(node) for node in world.nodes.values()]
    spared = 3 <= count == len(kept) and not anybody_impaired(world) and min(map(len, sets)) > 1
    usual = [node for node in kept if not node.edited_voters]
    return random.choice(usual) if spared and usual else None


def start_all(nodes: Iterable[SimulatedNode]) -> None:
    """Start those of the nodes that are down."""
    for node in nodes:
        node.start()
