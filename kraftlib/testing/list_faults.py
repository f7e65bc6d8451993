"""Lists of static voters that are edited by hand: refused where a replica has run, and compared on contact (I16).

Two lists are no way to change the voters: a majority of the one and a majority of the other need not meet. kraftlib
promises that they do not mix. That new replicas which are a majority of their own list elect each other cannot be kept
from them, so they are fewer here. Replicas of older releases do not compare; with them, no list is edited.
"""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING

from kraftlib.testing.fault_parts import is_needed, start_all
from kraftlib.testing.network_faults import Undo, leader_or_any
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.types import ReplicaId

if TYPE_CHECKING:
    from kraftlib.testing.world import World


def edited_voters(world: World, random: chance.Random) -> Undo | None:
    """Restart a replica with another list of static voters, or with the same one in another order.

    The other one is refused where the voters are static. In a dynamic quorum neither has an effect.
    """
    node = leader_or_any(world, random)
    if node is None or node.edited_voters or node.is_impaired or world.network.older:
        return None
    ids = _edited(world, node, random)
    node.end(random.choice((Ending.KILLED, Ending.POWER_LOST, Ending.SHUT_DOWN)))
    if not _knows_its_voters(node):
        node.start()
        return None
    node.use_voters(ids)
    before = node.refusals
    node.start()
    world.deeds["start refused"] += node.refusals - before

    def undo() -> None:
        node.end(Ending.KILLED)
        node.use_voters(())
        node.start()

    return undo


def _knows_its_voters(node: SimulatedNode) -> bool:
    """Whether the disk of a node that is down says who votes; else it takes any list for its own, and keeps to it."""
    tail, durable = node.chain.tail, node.elections.read()
    if tail is not None and tail.voters is not None:
        return True
    return bool(node.began_with) and durable is not None and durable.epoch > 0 and not durable.amnesiac


def _edited(world: World, node: SimulatedNode, random: chance.Random) -> list[ReplicaId]:
    """Return the ids of the voters in another order, with one more, without one, or with another one in its place."""
    ids = [key.id for key in world.voter_keys]
    random.shuffle(ids)
    others = [number for number in ids if number != node.key.id]
    new = random.choice([number for number in (*world.nodes, len(world.nodes) + 1) if number not in ids])
    kind = random.choice(("order", "more", "fewer", "other"))
    if kind == "order":
        return ids
    if kind != "more" and len(ids) > 2 and others:
        ids.remove(random.choice(others))
    return ids if kind == "fewer" and len(ids) < len(world.voter_keys) else [*ids, new]


def new_replicas_with_another_list(world: World, random: chance.Random) -> Undo | None:
    """Start new replicas with a list that names them beside the voters of the others, or some of these.

    They never were in an epoch, so nothing keeps them from their start.
    """
    if world.kraft_version or world.is_dynamic or world.network.older:
        return None
    observers = [node for node in world.nodes.values() if not world.is_voter(node) and not is_needed(world, node)]
    new = random.sample(observers, random.randint(1, len(observers))) if observers else []
    ids = [key.id for key in world.voter_keys]
    if len(ids) > 2 and random.random() < 0.5:
        ids.remove(random.choice(ids))
    ids += [node.key.id for node in new]
    if not new or 2 * len(new) > len(ids) or any(node.edited_voters for node in new):
        return None
    _format(new, ids)
    world.deeds["new replica with another list"] += len(new)

    def undo() -> None:
        _format(new, ())

    return undo


def _format(nodes: list[SimulatedNode], ids: list[ReplicaId] | tuple[()]) -> None:
    """Start observers anew, with empty disks and these voters in their configuration."""
    for node in nodes:
        node.end(Ending.POWER_LOST)
        node.wipe()
        node.use_voters(ids)
    start_all(nodes)
