"""Trouble with processes, their machines and their clocks, and requests that should not have been sent."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING

from kraftlib.consensus.events import ResignRequested, ShutdownRequested, TransferRequested
from kraftlib.testing import strangers
from kraftlib.testing.clock import MILLION, MILLISECOND
from kraftlib.testing.fault_parts import start_all
from kraftlib.testing.network_faults import Undo, any_node, leader_or_any
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending, doom_after

if TYPE_CHECKING:
    from kraftlib.testing.world import World


def kill(world: World, random: chance.Random) -> Undo | None:
    """Kill a process: the kernel keeps what it wrote, and closes its connections."""
    return _end(world, random, Ending.KILLED, silently=False)


def power_loss(world: World, random: chance.Random) -> Undo | None:
    """Cut the power of a machine: unflushed data may be lost, and no peer is told."""
    return _end(world, random, Ending.POWER_LOST, silently=random.random() < 0.7)


def power_loss_everywhere(world: World, random: chance.Random) -> Undo:
    """Cut the power of all machines at once (scenario S11)."""
    for node in world.nodes.values():
        node.end(Ending.POWER_LOST, silently=random.random() < 0.5)
    return lambda: start_all(world.nodes.values())


def kill_between_actions(world: World, random: chance.Random) -> Undo | None:
    """Let a process die between any two of the next actions of its core; preferably that of a leader."""
    node = leader_or_any(world, random)
    if node is None or node.process is None:
        return None
    node.process.doom = doom_after(random.randrange(12), node.random)

    def undo() -> None:
        if node.process is not None:
            node.process.doom = None
        start_all([node])

    return undo


def pause(world: World, random: chance.Random) -> Undo | None:
    """Stop a process, and let it go on later as if nothing had been (scenario P1)."""
    node = leader_or_any(world, random)
    process = node.process if node is not None else None
    if process is None:
        return None
    process.pause()
    return process.resume


def resign(world: World, random: chance.Random) -> Undo | None:
    """Let the application ask its leader to give up."""
    for node in world.running_nodes():
        if node.leads is not None and node.process is not None:
            node.process.executor.submit(ResignRequested(node.leads))
    return None


def restart_gracefully(world: World, random: chance.Random) -> Undo | None:
    """Shut a replica down as an operator does, and start it again."""
    node = leader_or_any(world, random)
    if node is None or node.process is None:
        return None
    node.process.executor.submit(ShutdownRequested(2 * node.config.election_timeout_ms))
    return lambda: start_all([node])


def restart_all_in_turn(world: World, random: chance.Random) -> Undo | None:
    """Restart every node in turn, as an upgrade of a cluster does: each gracefully, the next when it is back."""
    pause_us = int(next(iter(world.nodes.values())).config.election_timeout_ms * MILLISECOND * random.uniform(0.5, 3.0))
    going_on = True

    def step(left: list[int]) -> None:
        if not left or not going_on:
            return
        node = world.nodes[left[0]]
        if node.process is not None:
            node.process.executor.submit(ShutdownRequested(node.config.election_timeout_ms))
        world.timeline.after(pause_us, _start_newer, world, node)
        world.timeline.after(2 * pause_us, step, left[1:])

    step(random.sample(list(world.nodes), len(world.nodes)))

    def undo() -> None:
        nonlocal going_on
        going_on = False
        start_all(world.nodes.values())

    return undo


def _start_newer(world: World, node: SimulatedNode) -> None:
    """Start a node with the newest release, after any other."""
    if node.process is None:
        world.network.older.discard(node.key.id)
        node.start()


def fail_machine(world: World, random: chance.Random) -> Undo | None:
    """Let the state machine of a replica raise at the next record: it must not lead any more until it is restarted."""
    node = leader_or_any(world, random)
    process = None if node is None else node.process
    if node is None or process is None:
        return None
    process.machine.breaks = True

    def undo() -> None:
        if node.process is process:
            node.end(Ending.KILLED)
        start_all([node])

    return undo


def transfer_leadership(world: World, random: chance.Random) -> Undo | None:
    """Have the leader hand over to a voter."""
    leader = world.leader()
    if leader is not None and leader.process is not None:
        target = random.choice(world.current_voters())
        timeout_ms = leader.config.election_timeout_ms
        leader.process.executor.submit(TransferRequested(leader.leads or 0, target.id, timeout_ms))
    return None


def strangers_message(world: World, random: chance.Random) -> Undo | None:
    """Deliver a request of another cluster, with an enticing epoch (I17)."""
    node = any_node(world, random)
    if node is not None and node.process is not None:
        strangers.call(world, node.process, random)
    return None


def impossible_message(world: World, random: chance.Random) -> Undo | None:
    """Deliver an impossible request: late, meant for another replica, or nonsense (L17)."""
    node = any_node(world, random)
    if node is not None and node.process is not None:
        strangers.ask_the_impossible(world, node.process, random)
    return None


def clock_drift(world: World, random: chance.Random) -> Undo | None:
    """Let the clock of a node run up to a fifth too fast or too slow."""
    node = random.choice(list(world.nodes.values()))
    node.clock.rate_ppm = MILLION + random.randint(-200_000, 200_000)

    def undo() -> None:
        node.clock.rate_ppm = MILLION

    return undo


def wall_clock_jump(world: World, random: chance.Random) -> Undo | None:
    """Set the wall clock of a node, which nothing but timestamps may depend on (scenario P2)."""
    node = random.choice(list(world.nodes.values()))
    node.clock.wall_offset_ms += random.choice((-1, 1)) * random.randrange(86_400_000)
    return None


def _end(world: World, random: chance.Random, ending: Ending, *, silently: bool) -> Undo | None:
    node = leader_or_any(world, random)
    if node is None:
        return None
    node.end(ending, silently=silently)
    return node.start
