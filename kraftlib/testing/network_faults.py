"""Trouble with the network: messages late, lost, twice, in disorder or damaged, and links that are cut."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraftlib.consensus.events import ResignRequested
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.network import Link
from kraftlib.testing.node import SimulatedNode

if TYPE_CHECKING:
    from kraftlib.testing.world import World

Undo = Callable[[], None]


def cut_pair(world: World, random: chance.Random) -> Undo | None:
    """Let two nodes not reach each other."""
    pair = _pair(world, random)
    return _cut(world, random, [pair, pair[::-1]]) if pair else None


def cut_one_way(world: World, random: chance.Random) -> Undo | None:
    """Let one node not reach another, which still reaches it."""
    pair = _pair(world, random)
    return _cut(world, random, [pair]) if pair else None


def isolate(world: World, random: chance.Random) -> Undo | None:
    """Cut a node off from all others, preferably the leader: in both directions or in one."""
    node = leader_or_any(world, random)
    if node is None:
        return None
    own, others = node.key.id, [number for number in world.nodes if number != node.key.id]
    sends = [(own, other) for other in others]
    hears = [(other, own) for other in others]
    return _cut(world, random, random.choice((sends + hears, sends + hears, sends, hears)))


def lonely_leader(world: World, random: chance.Random) -> Undo | None:
    """Cut the leader off and let it append records that no other replica gets: its log is truncated later (L2).

    A read there meanwhile must not return a state from before the others had another leader (C2).
    """
    leader = world.leader()
    if leader is None or len(world.nodes) == 1:
        return None
    own = leader.key.id
    undo = _cut(world, random, [pair for pair in _pairs(world) if own in pair], holds=False)
    for _ in range(random.randint(1, 6)):
        world.timeline.after(random.randrange(100 * MILLISECOND), world.workload.append_to, leader)
    until_us = 4 * leader.config.election_timeout_ms * MILLISECOND
    for _ in range(12):
        world.timeline.after(random.randrange(until_us), world.workload.read_from, leader)
    return undo


def unheard_leaders(world: World, random: chance.Random) -> Undo | None:
    """Cut each leader off as it is elected, and let the one before be heard again (Raft, figure 8; scenario L2, L4).

    So the first records of each epoch, and a few more, are on one disk only, and the next leader lacks them.
    """
    leader = world.leader()
    if leader is None or len(world.current_voters()) < 3:
        return None
    left = random.randint(2, 4)
    alone: list[Link] = []

    def elected(node: SimulatedNode) -> None:
        nonlocal left
        world.network.heal(alone)
        alone.clear()
        left -= 1
        if left < 0:
            world.checker.on_elected = None
            return
        alone.extend(world.network.link(*pair) for pair in _pairs(world) if node.key.id in pair)
        for link in alone:
            link.cut, link.holds = True, False
        for _ in range(random.randint(0, 3)):
            world.timeline.after(random.randrange(20 * MILLISECOND), world.workload.append_to, node)

    def undo() -> None:
        world.checker.on_elected = None
        world.network.heal(alone)

    world.checker.on_elected = elected
    if leader.process is not None:
        leader.process.executor.submit(ResignRequested(leader.leads or 0))
    return undo


def split(world: World, random: chance.Random) -> Undo | None:
    """Split the nodes in two groups."""
    numbers = list(world.nodes)
    random.shuffle(numbers)
    place = random.randint(0, len(numbers))
    left, right = numbers[:place], numbers[place:]
    return _cut(world, random, [pair for a in left for b in right for pair in ((a, b), (b, a))])


def random_cuts(world: World, random: chance.Random) -> Undo | None:
    """Cut every direction with a probability: partial partitions of all shapes (scenario E15)."""
    share = random.uniform(0.1, 0.6)
    return _cut(world, random, [pair for pair in _pairs(world) if random.random() < share])


def loss(world: World, random: chance.Random) -> Undo:
    """Lose messages, each for itself, as no TCP does: a transport may."""
    share = random.choice((0.02, 0.1, 0.3))
    return _links(world, random, lambda link: setattr(link, "loss", share))


def packet_loss(world: World, random: chance.Random) -> Undo:
    """Lose packets, as TCP shows it: a lost one comes later, and all behind it waits."""
    share = random.choice((0.02, 0.1, 0.3))

    def begin(link: Link) -> None:
        link.loss = share
        link.retransmission_us = 200 * MILLISECOND

    return _links(world, random, begin)


def duplication(world: World, random: chance.Random) -> Undo:
    """Deliver messages twice, the second time rather late (scenario L1)."""
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


def uneven_connections(world: World, random: chance.Random) -> Undo:
    """Delay one of the connections between two nodes and not the others: the one for the log, or those beside it."""
    timeout_us = next(iter(world.nodes.values())).config.election_timeout_ms * MILLISECOND
    uneven_us, slows_log = int(timeout_us * random.random()), random.random() < 0.5

    def begin(link: Link) -> None:
        link.uneven_us, link.slows_log = uneven_us, slows_log

    return _links(world, random, begin)


def reset_connections(world: World, random: chance.Random) -> Undo | None:
    """Reset the connections between two nodes, as a firewall does."""
    pair = _pair(world, random)
    if pair:
        world.network.reset(*pair)
    return None


def corruption(world: World, random: chance.Random) -> Undo:
    """Flip a bit in some of the records that are sent (scenario L10)."""
    world.network.corruption = random.choice((0.01, 0.1, 0.5))

    def undo() -> None:
        world.network.corruption = 0.0

    return undo


def withhold_records(world: World, random: chance.Random) -> Undo | None:
    """Let the responses of a node arrive without the records: its followers fetch on without progress (E8)."""
    node = leader_or_any(world, random)
    if node is None:
        return None
    world.network.withholding.add(node.key.id)
    return lambda: world.network.withholding.discard(node.key.id)


def any_node(world: World, random: chance.Random) -> SimulatedNode | None:
    """Pick a node that runs."""
    nodes = world.running_nodes()
    return random.choice(nodes) if nodes else None


def leader_or_any(world: World, random: chance.Random) -> SimulatedNode | None:
    """Pick the leader half of the time, else a node that runs."""
    leader = world.leader()
    return leader if leader is not None and random.random() < 0.5 else any_node(world, random)


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
