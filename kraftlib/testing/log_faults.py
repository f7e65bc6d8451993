"""Snapshots, retention and the readers of a log at bad moments."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING

from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.fault_parts import cut_log
from kraftlib.testing.network_faults import Undo, any_node, leader_or_any
from kraftlib.testing.process_faults import resign

if TYPE_CHECKING:
    from kraftlib.testing.world import World


def take_snapshot(world: World, random: chance.Random) -> Undo | None:
    """Let a node write a snapshot of its state machine, which takes a while."""
    node = any_node(world, random)
    if node is not None and node.process is not None:
        node.process.take_snapshot(int(node.config.election_timeout_ms * MILLISECOND * random.random()))
    return None


def snapshot_between_epochs(world: World, random: chance.Random) -> Undo | None:
    """Let the leader resign, and have snapshots written while the log goes on to an epoch that is not committed yet."""
    nodes = list(world.nodes.values())
    pause_us = max(200, nodes[0].config.election_timeout_ms * MILLISECOND // 200)

    def look(left: int) -> None:
        for node in nodes:
            process = node.process
            if process is None or not process.running or process.executor.high_watermark is None:
                continue
            applied = node.chain.covering(process.applier.applied_offset - 1)
            if applied is not None and applied.epoch != process.replica.state.log.last_epoch:
                process.take_snapshot(0)
        if left:
            world.timeline.after(pause_us, look, left - 1)

    resign(world, random)
    look(200)
    return None


def forget_log(world: World, random: chance.Random) -> Undo | None:
    """Let a node forget what its latest snapshot replaces: a follower further behind has to fetch that snapshot."""
    node = leader_or_any(world, random)
    if node is not None and node.process is not None:
        cut_log(node.process)
    return None


def hold_log(world: World, random: chance.Random) -> Undo | None:
    """Have a reader hold the log of a node, for so many bytes or as long as it takes; its retention looks meanwhile."""
    node = any_node(world, random)
    if node is None or node.process is None:
        return None
    limit = random.choice((200, 2_000, 1 << 30))
    process, check = node.process, world.checker.check
    hold = process.retention.hold(f"reader {random.randrange(3)}", None, limit)
    check(app_inv.hold_that_is_given_holds, node, hold.name, hold.is_over)
    if not hold.expired:
        hold.advance(random.randint(hold.offset, max(hold.offset, process.applier.applied_offset)))

    def undo() -> None:
        if process.running and process.background.is_idle and not hold.is_over:
            check(app_inv.hold_is_kept_for_the_next_life, node, hold.name, [stored.name for stored in node.holds])
        for stored in () if node.process is None else node.process.retention.holds:
            stored.release()

    return undo
