"""Changes of the voters, and disks that are replaced by empty ones."""

from __future__ import annotations

import random as chance
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlib.consensus.events import TransferRequested
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.fault_parts import anybody_impaired, cut_log, is_needed
from kraftlib.testing.network_faults import Undo
from kraftlib.testing.process import Ending

if TYPE_CHECKING:
    from kraftlib.testing.world import World


def snapshot_amid_change(world: World, random: chance.Random) -> Undo | None:
    """Change the voters; a replica that has the record of that, and does not know it to be committed, cuts its log now
    (KIP-853).

    Its latest snapshot then stands in for the records before that one.
    """
    if not world.is_dynamic:
        return None
    nodes = list(world.nodes.values())
    pause_us = max(200, nodes[0].config.election_timeout_ms * MILLISECOND // 200)

    def look(left: int) -> None:
        for node in nodes:
            process = node.process
            if process is None or not process.running:
                continue
            state = process.replica.state
            changed_at, known = state.log.voters.latest_offset, state.high_watermark
            if changed_at is not None and known is not None and changed_at >= known:
                cut_log(process)
        if left:
            world.timeline.after(pause_us, look, left - 1)

    (add_voter if random.random() < 0.5 else remove_voter)(world, random)
    look(200)
    return None


def upgrade_kraft_version(world: World, random: chance.Random) -> Undo | None:
    """Have the operator make a static quorum a dynamic one (UpdateFeatures, kraft.version 0 -> 1)."""
    world.admin.upgrade()
    return None


def wipe_observer(world: World, random: chance.Random) -> Undo | None:
    """Take the disk of an observer away: it returns empty, as another replica (scenario M7).

    Not while it is being made a voter that the others cannot do without: two voters of which one is gone are stuck.
    """
    observers = [node for node in world.nodes.values() if not world.is_voter(node) and not is_needed(world, node)]
    if not observers:
        return None
    leader = world.leader()
    if leader is not None and leader.process is not None and random.random() < 0.5:
        leader.process.take_snapshot(0)  # so that the observer finds one
    node = random.choice(observers)
    node.end(Ending.POWER_LOST)
    node.wipe()
    return node.start


def add_voter(world: World, random: chance.Random) -> Undo | None:
    """Have the operator make an observer a voter (KIP-853)."""
    observers = [node for node in world.running_nodes() if not world.is_voter(node)]
    if world.is_dynamic and observers:
        world.admin.add(random.choice(observers))
    return None


def remove_voter(world: World, random: chance.Random) -> Undo | None:
    """Have the operator remove a voter, preferably one whose disk is gone; be it the leader."""
    voters = world.current_voters()
    if world.is_dynamic and len(voters) > 1 and (not anybody_impaired(world) or len(voters) > 3):
        lost = [key for key in voters if world.nodes[key.id].key != key]
        world.admin.remove(random.choice(lost or voters))
    return None


def replace_disk(world: World, random: chance.Random) -> Undo | None:
    """Take the disk of a voter away: it comes back as an observer, and its key never votes again (scenario M7).

    Only as long as the other voters are a majority that can lose another one; and not where a configuration names
    voters, for an empty disk would take itself for one of those.
    """
    kept = world.kept_voters()
    if not world.kraft_version or len(kept) - 1 <= len(world.current_voters()) // 2 or anybody_impaired(world):
        return None
    if world.admin.is_changing:
        return None  # those that are voters then may need this one
    node = random.choice(kept)
    node.end(Ending.POWER_LOST)
    node.wipe()
    return node.start


def change_amid_transfer(world: World, random: chance.Random) -> Undo | None:
    """Change the voters while a leader waits to hand over to who is down, and again once the first change was given up.

    A replica that is down lacks something by then. Changes submitted meanwhile wait to be appended: no log tells of it
    (M2).
    """
    leader = world.leader()
    others = [node for node in world.living_voters() if node is not leader]
    if not world.is_dynamic or leader is None or leader.process is None or not others or anybody_impaired(world):
        return None
    target, patience_ms = random.choice(others), leader.config.request_timeout_ms
    target.end(Ending.KILLED)
    is_over = False

    def hand_over() -> None:
        if leader.process is not None and leader.leads is not None and not is_over:
            leader.process.executor.submit(TransferRequested(leader.leads, target.key.id, 3 * patience_ms))

    def change(change_one: Callable[[World, chance.Random], object]) -> None:
        if not is_over:
            change_one(world, random)

    def undo() -> None:
        nonlocal is_over
        is_over = True
        target.start()

    is_full = all(world.is_voter(node) for node in world.running_nodes())
    world.timeline.after(patience_ms * MILLISECOND // 2, hand_over)
    world.timeline.after(patience_ms * MILLISECOND * 6 // 10, change, remove_voter if is_full else add_voter)
    world.timeline.after(patience_ms * MILLISECOND * 17 // 10, change, remove_voter)
    return undo
