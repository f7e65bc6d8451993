"""The kinds of trouble that the simulator makes: each is begun with one call, and says how to end it.

Whatever happens here must be survived: no kind may destroy what was flushed, and none lets a replica lie.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.consensus.events import ResignRequested, ShutdownRequested
from kraftlib.testing import strangers
from kraftlib.testing.clock import MILLION, MILLISECOND
from kraftlib.testing.network import Link
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending

if TYPE_CHECKING:
    from kraftlib.testing.world import World

Undo = Callable[[], None]
Begin = Callable[["World", chance.Random], Undo | None]


@attrs.frozen
class Fault:
    """One kind. `begin` makes the trouble and returns how to end it; None if there was nothing to do, or no end."""

    name: str
    begin: Begin
    longest_ms: int
    """How long it lasts at most, where election timeouts are those of the default configuration."""


# --- processes and machines -----------------------------------------------------------------------------------------


def kill(world: World, random: chance.Random) -> Undo | None:
    """Kill a process: the kernel keeps what it wrote, and closes its connections."""
    return _end(world, random, Ending.KILLED, silently=False)


def power_loss(world: World, random: chance.Random) -> Undo | None:
    """Cut the power of a machine: what was not flushed may be lost, and nobody is told."""
    return _end(world, random, Ending.POWER_LOST, silently=random.random() < 0.7)


def power_loss_everywhere(world: World, random: chance.Random) -> Undo:
    """Cut the power of all machines at once (reliability S11)."""
    for node in world.nodes.values():
        node.end(Ending.POWER_LOST, silently=random.random() < 0.5)
    return lambda: _start(world.nodes.values())


def kill_between_actions(world: World, random: chance.Random) -> Undo | None:
    """Let a process die between any two of the next actions of its core; preferably that of a leader."""
    node = _leader_or_any(world, random)
    if node is None or node.process is None:
        return None
    node.process.doom = random.randrange(12)

    def undo() -> None:
        if node.process is not None:
            node.process.doom = None
        _start([node])

    return undo


def pause(world: World, random: chance.Random) -> Undo | None:
    """Stop a process, and let it go on later as if nothing had been (reliability P1)."""
    node = _leader_or_any(world, random)
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
    node = _leader_or_any(world, random)
    if node is None or node.process is None:
        return None
    node.process.executor.submit(ShutdownRequested(2 * node.config.election_timeout_ms))
    return lambda: _start([node])


def strangers_message(world: World, random: chance.Random) -> Undo | None:
    """Deliver a request of another cluster, with an enticing epoch (I17)."""
    node = _any(world, random)
    if node is not None and node.process is not None:
        strangers.call(world, node.process, random)
    return None


def take_snapshot(world: World, random: chance.Random) -> Undo | None:
    """Let a node write a snapshot of its state machine, which takes a while."""
    node = _any(world, random)
    if node is not None and node.process is not None:
        node.process.take_snapshot(int(node.config.election_timeout_ms * MILLISECOND * random.random()))
    return None


def wipe_observer(world: World, random: chance.Random) -> Undo | None:
    """Take the disk of an observer away: it comes back empty, as somebody else (reliability M7)."""
    observers = [node for node in world.nodes.values() if node.key not in world.voter_keys]
    if not observers:
        return None
    leader = world.leader()
    if leader is not None and leader.process is not None and random.random() < 0.5:
        leader.process.take_snapshot(0)  # so that the observer finds one
    node = random.choice(observers)
    node.end(Ending.POWER_LOST)
    node.wipe()
    return node.start


# --- time -----------------------------------------------------------------------------------------------------------


def clock_drift(world: World, random: chance.Random) -> Undo | None:
    """Let the clock of a node run up to a fifth too fast or too slow."""
    node = random.choice(list(world.nodes.values()))
    node.clock.rate_ppm = MILLION + random.randint(-200_000, 200_000)

    def undo() -> None:
        node.clock.rate_ppm = MILLION

    return undo


def wall_clock_jump(world: World, random: chance.Random) -> Undo | None:
    """Set the wall clock of a node, which nothing but timestamps may depend on (reliability P2)."""
    node = random.choice(list(world.nodes.values()))
    node.clock.wall_offset_ms += random.choice((-1, 1)) * random.randrange(86_400_000)
    return None


# --- the network ----------------------------------------------------------------------------------------------------


def cut_pair(world: World, random: chance.Random) -> Undo | None:
    """Let two nodes not reach each other."""
    pair = _pair(world, random)
    return _cut(world, random, [pair, pair[::-1]]) if pair else None


def cut_one_way(world: World, random: chance.Random) -> Undo | None:
    """Let one node not reach another, which still reaches it."""
    pair = _pair(world, random)
    return _cut(world, random, [pair]) if pair else None


def isolate(world: World, random: chance.Random) -> Undo | None:
    """Cut a node off from everybody, preferably the leader: both ways, or only what it sends, or only what it hears."""
    node = _leader_or_any(world, random)
    if node is None:
        return None
    own, others = node.key.id, [number for number in world.nodes if number != node.key.id]
    sends = [(own, other) for other in others]
    hears = [(other, own) for other in others]
    return _cut(world, random, random.choice((sends + hears, sends + hears, sends, hears)))


def lonely_leader(world: World, random: chance.Random) -> Undo | None:
    """Cut the leader off and let it take records that nobody else will have: its log has to be cut back later (L2)."""
    leader = world.leader()
    if leader is None or len(world.nodes) == 1:
        return None
    own = leader.key.id
    undo = _cut(world, random, [pair for pair in _pairs(world) if own in pair], holds=False)
    for _ in range(random.randint(1, 6)):
        world.timeline.after(random.randrange(100 * MILLISECOND), world.workload.append_to, leader)
    return undo


def split(world: World, random: chance.Random) -> Undo | None:
    """Split the nodes in two groups."""
    numbers = list(world.nodes)
    random.shuffle(numbers)
    place = random.randint(0, len(numbers))
    left, right = numbers[:place], numbers[place:]
    return _cut(world, random, [pair for a in left for b in right for pair in ((a, b), (b, a))])


def random_cuts(world: World, random: chance.Random) -> Undo | None:
    """Cut every direction with a probability: partial partitions of all shapes (reliability E15)."""
    share = random.uniform(0.1, 0.6)
    return _cut(world, random, [pair for pair in _pairs(world) if random.random() < share])


def loss(world: World, random: chance.Random) -> Undo:
    """Lose messages, each for itself, as no TCP does: a transport may."""
    share = random.choice((0.02, 0.1, 0.3))
    return _links(world, random, lambda link: setattr(link, "loss", share))


def packet_loss(world: World, random: chance.Random) -> Undo:
    """Lose packets, as TCP shows it: what was lost comes later, and all behind it waits."""
    share = random.choice((0.02, 0.1, 0.3))

    def begin(link: Link) -> None:
        link.loss = share
        link.retransmission_us = 200 * MILLISECOND

    return _links(world, random, begin)


def duplication(world: World, random: chance.Random) -> Undo:
    """Deliver messages twice, the second time rather late (reliability L1)."""
    share = random.choice((0.05, 0.3))
    return _links(world, random, lambda link: setattr(link, "duplication", share))


def reordering(world: World, random: chance.Random) -> Undo:
    """Let messages overtake each other."""
    share = random.choice((0.05, 0.3))
    return _links(world, random, lambda link: setattr(link, "reordering", share))


def delay(world: World, random: chance.Random) -> Undo:
    """Delay what is sent by up to one and a half election timeouts."""
    most_us = next(iter(world.nodes.values())).config.election_timeout_ms * 1_500
    delay_us = int(most_us * random.random() ** 2)

    def begin(link: Link) -> None:
        link.delay_us = delay_us
        link.jitter_us = delay_us // 4

    return _links(world, random, begin)


def reset_connections(world: World, random: chance.Random) -> Undo | None:
    """Reset the connections between two nodes, as a firewall does."""
    pair = _pair(world, random)
    if pair:
        world.network.reset(*pair)
    return None


def corruption(world: World, random: chance.Random) -> Undo:
    """Flip a bit in some of the records that are sent (reliability L10)."""
    world.network.corruption = random.choice((0.01, 0.1, 0.5))

    def undo() -> None:
        world.network.corruption = 0.0

    return undo


# --- disks ----------------------------------------------------------------------------------------------------------


def slow_disk(world: World, random: chance.Random) -> Undo:
    """Let a disk take up to an election timeout for everything (reliability S10)."""
    node = random.choice(list(world.nodes.values()))
    disk = node.disk
    disk.spread_us = int(node.config.election_timeout_ms * MILLISECOND * random.random())

    def undo() -> None:
        disk.spread_us = world.disk_spread_us

    return undo


def hung_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a disk answer nothing until this ends."""
    node = _leader_or_any(world, random)
    if node is None:
        return None
    node.disk.hung = True
    return node.disk.unhang


def failing_disk(world: World, random: chance.Random) -> Undo | None:
    """Let the next fsync of a disk fail: its replica must stop (reliability S5)."""
    node = _leader_or_any(world, random)
    if node is None:
        return None
    node.disk.failing = True

    def undo() -> None:
        node.disk.failing = False
        _start([node])

    return undo


# --- parts ----------------------------------------------------------------------------------------------------------


def _start(nodes: Iterable[SimulatedNode]) -> None:
    for node in nodes:
        node.start()


def _end(world: World, random: chance.Random, ending: Ending, *, silently: bool) -> Undo | None:
    node = _leader_or_any(world, random)
    if node is None:
        return None
    node.end(ending, silently=silently)
    return node.start


def _any(world: World, random: chance.Random) -> SimulatedNode | None:
    nodes = world.running_nodes()
    return random.choice(nodes) if nodes else None


def _leader_or_any(world: World, random: chance.Random) -> SimulatedNode | None:
    leader = world.leader()
    return leader if leader is not None and random.random() < 0.5 else _any(world, random)


def _pairs(world: World) -> list[tuple[int, int]]:
    return [(a, b) for a in world.nodes for b in world.nodes if a != b]


def _pair(world: World, random: chance.Random) -> tuple[int, int] | None:
    pairs = _pairs(world)
    return random.choice(pairs) if pairs else None


def _cut(world: World, random: chance.Random, pairs: Sequence[tuple[int, int]], *, holds: bool | None = None) -> Undo:
    links = [world.network.link(*pair) for pair in pairs]
    holds = random.random() < 0.5 if holds is None else holds
    for link in links:
        link.cut, link.holds = True, holds
    return lambda: world.network.heal(links)


def _links(world: World, random: chance.Random, begin: Callable[[Link], None]) -> Undo:
    """Change all links, or those of one node, or one."""
    pairs = _pairs(world)
    chosen = random.random()
    if pairs and chosen < 0.3:
        pairs = [random.choice(pairs)]
    elif pairs and chosen < 0.6:
        number = random.choice(pairs)[0]
        pairs = [pair for pair in pairs if number in pair]
    links = [world.network.link(*pair) for pair in pairs]
    for link in links:
        begin(link)

    def undo() -> None:
        for link in links:
            world.make_ordinary(link)

    return undo


FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault("kill", kill, 3_000),
        Fault("power-loss", power_loss, 5_000),
        Fault("power-loss-everywhere", power_loss_everywhere, 2_000),
        Fault("kill-between-actions", kill_between_actions, 2_000),
        Fault("pause", pause, 6_000),
        Fault("resign", resign, 0),
        Fault("restart-gracefully", restart_gracefully, 4_000),
        Fault("strangers-message", strangers_message, 0),
        Fault("take-snapshot", take_snapshot, 0),
        Fault("wipe-observer", wipe_observer, 2_000),
        Fault("clock-drift", clock_drift, 10_000),
        Fault("wall-clock-jump", wall_clock_jump, 0),
        Fault("cut-pair", cut_pair, 8_000),
        Fault("cut-one-way", cut_one_way, 8_000),
        Fault("isolate", isolate, 8_000),
        Fault("lonely-leader", lonely_leader, 8_000),
        Fault("split", split, 8_000),
        Fault("random-cuts", random_cuts, 8_000),
        Fault("loss", loss, 6_000),
        Fault("packet-loss", packet_loss, 6_000),
        Fault("duplication", duplication, 8_000),
        Fault("reordering", reordering, 8_000),
        Fault("delay", delay, 5_000),
        Fault("reset-connections", reset_connections, 0),
        Fault("corruption", corruption, 4_000),
        Fault("slow-disk", slow_disk, 6_000),
        Fault("hung-disk", hung_disk, 6_000),
        Fault("failing-disk", failing_disk, 3_000),
    )
}
"""Every kind by its name. The order counts: the trace names a kind by its place."""
