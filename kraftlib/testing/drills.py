"""Drills that a healthy quorum must pass quickly. Each run ends with one of them, once the quorum is healthy.

    V4        links fail so that some voters cannot reach each other: one that hears a majority leads, and goes on to;
              a leader that is left with a minority gives up (E7, which the monitor sees)
    V5        the leader is shut down: one election, and no voter waits longer than an election timeout
    E9        a voter that was cut off comes back: no leader is deposed
    FAILOVER  the leader's process is killed: the others notice at once, and do not wait for the fetch timeout
    HUNG      the leader's process hangs, and only its silence tells: the vote is not split when the others time out
    TRANSFER  leadership is handed to a voter: it leads, and no other voter stands
    L17       all get requests that are impossible, also from strangers: they are refused and change nothing
    NEWS      a commit in a quiet quorum is known everywhere at once (KIP-1166)

Times are bounded by the needs of the links and disks of the world, and not by the timeouts that would hide a mistake.
"""

from __future__ import annotations

import itertools
import random as chance
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.consensus.events import ShutdownRequested, TransferRequested
from kraftlib.consensus.roles import Resigned
from kraftlib.runtime.alarm import ASK_EVERY_MS
from kraftlib.testing import impossible
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.liveness import (
    e9_returning_voter_disturbs_nobody,
    log_position,
    patience_ms,
    v1_leader_soon,
    v3_everybody_catches_up,
)
from kraftlib.testing.process import Ending
from kraftlib.testing.strangers import ask_the_impossible, call
from kraftlib.testing.workload import Outcome

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.world import World

ROUND_TRIPS: Final = 16
"""Round trips from the first request of an election to a commit: pre-vote, vote, BeginQuorumEpoch, Fetch, Fetch,
each with its disk, and as much again for one that is split."""

FAILOVERS: Final = 3

Drill = Callable[["World", chance.Random], None]


def work_ms(world: World) -> int:
    """Return how long an election takes here at least as long as no timer has to run out, generously."""
    delay_us, jitter_us = world.link_us
    return ROUND_TRIPS * (2 * (delay_us + jitter_us) + world.disk_spread_us + MILLISECOND) // MILLISECOND


def v4_partial_partition(world: World, random: chance.Random) -> None:
    """V4: quorum-loss and chain (Omni-Paxos, 2023), where one voter in the middle hears a majority both ways.

    Or two parts that do not hear each other at all, the leader in the smaller one.
    """
    leader = world.leader()
    voters = world.living_voters()
    if leader is None or leader not in voters or len(voters) < 3 or not is_majority(world, len(voters)):
        return
    others = [node for node in voters if node is not leader]
    random.shuffle(others)
    shape = random.choice(("star", "chain", "split"))
    # In a star only the middle, a follower that has everything, hears enough; in a chain several may.
    order = [others[0], leader, *others[1:]] if shape == "star" else random.sample(voters, len(voters))
    if shape == "star":
        reach = {(order[0].key.id, node.key.id) for node in order[1:]}
    elif shape == "chain":
        reach = {(a.key.id, b.key.id) for a, b in itertools.pairwise(order)}
        if not any(is_majority(world, 1 + sum(node.key.id in pair for pair in reach)) for node in order):
            return
    else:
        spared = len(voters) - len(world.current_voters()) // 2 - 1
        if not spared:
            return
        order = [leader, *others]
        reach = {
            (a.key.id, b.key.id)
            for part in (order[:spared], order[spared:])
            for a, b in itertools.combinations(part, 2)
        }  # fmt: skip
    ids = {node.key.id for node in voters}
    links = [
        world.network.link(a, b)
        for a in ids
        for b in ids
        if a != b and (a, b) not in reach and (b, a) not in reach
    ]  # fmt: skip
    for link in links:
        link.cut, link.holds = True, False
    try:
        if shape == "split":
            # Nothing to commit, so that nothing but silence tells the leader how few hear it.
            world.run_for(4 * leader.config.fetch_timeout_ms)
        if not serves(world, patience_ms(world)):
            if may_win(world, voters, reach):
                world.violated("V4", f"there is no leader in a {shape}, though one could: {sorted(reach)}")
                world.raise_violation()
            return
        world.run_for(4 * leader.config.fetch_timeout_ms)  # the former leader may need as long to give up
        elections = world.checker.elections
        world.run_for(3 * leader.config.fetch_timeout_ms)
        if world.checker.elections != elections:
            world.violated("V4", f"{world.checker.elections - elections} elections in a {shape} that does not change")
            world.raise_violation()
    finally:
        world.network.heal(links)
        v1_leader_soon(world, f"after a {shape}")


def v5_graceful_shutdown(world: World, random: chance.Random) -> None:
    """V5: one election, no longer without a leader than an election timeout; and the one that was asked to ends.

    The first in line need not wait at all, so where links are fast it takes far less than an election timeout; but the
    vote may be split where the second waits for less than an election takes.
    """
    leader = world.leader()
    if leader is None or leader.process is None or not can_lose(world, leader):
        return
    elections = world.checker.elections
    process = leader.process
    world.keeps_up = False
    process.executor.submit(ShutdownRequested(4 * leader.config.election_timeout_ms))
    overtaken = may_be_overtaken(world, leader)
    limit_ms = min(leader.config.election_timeout_ms, leader.config.election_backoff_max_ms // 4) + 2 * work_ms(world)
    limit_ms = patience_ms(world) if overtaken else limit_ms
    if not world.run_until(lambda: world.leader() not in (None, leader), limit_ms):
        world.violated("V5", f"{limit_ms} ms after {leader} was to shut down no other leader has committed anything")
        world.raise_violation()
    if world.checker.elections != elections + 1 and not overtaken:
        world.violated("V5", f"a graceful shutdown took {world.checker.elections - elections} elections")
        world.raise_violation()
    limit_ms = 5 * leader.config.election_timeout_ms + work_ms(world)
    if not world.run_until(lambda: leader.process is not process, limit_ms):
        world.violated("V5", f"{leader} was to shut down within {limit_ms} ms, and did not")
        world.raise_violation()
    world.keeps_up = True
    leader.start()


def failover(world: World, random: chance.Random) -> None:
    """FAILOVER: a killed leader is replaced in the time of a few round trips; three splits in a row are no bad luck."""
    limit_ms = 0
    for _ in range(FAILOVERS):
        leader = world.leader()
        if leader is None or not can_lose(world, leader):
            return
        # Slots, so that no two stand at once.
        slots_ms = (len(world.current_voters()) + 1) * leader.config.leader_loss_stagger_ms * 5 // 4
        limit_ms = slots_ms + 2 * work_ms(world)
        leader.end(Ending.KILLED)
        in_time = world.run_until(lambda dead=leader: world.leader() not in (None, dead), limit_ms)  # type: ignore[misc]
        leader.start()
        v1_leader_soon(world, "after a leader was killed")
        v3_everybody_catches_up(world)
        if in_time:
            return
    world.violated("FAILOVER", f"{FAILOVERS} leaders were killed, and none was replaced within {limit_ms} ms")
    world.raise_violation()


def hung_leader(world: World, random: chance.Random) -> None:
    """HUNG: a leader that hangs is replaced 1.2 fetch timeouts and an election later: its followers miss it at nearly
    the same time, and must not split the vote. Three times in a row are no bad luck."""
    limit_ms = 0
    for _ in range(FAILOVERS):
        leader = world.leader()
        if leader is None or leader.process is None or not can_lose(world, leader):
            return
        # A voter that gives way waits for its slots, if the one that goes first is not elected.
        slots_ms = (len(world.current_voters()) + 3) * leader.config.leader_loss_stagger_ms
        limit_ms = leader.config.fetch_timeout_ms * 6 // 5 + slots_ms + work_ms(world)
        hung = leader.process
        world.workload.append_to(leader)  # every follower is answered at once, and its timer begins anew
        world.run_for(work_ms(world))
        hung.pause()
        in_time = world.run_until(lambda dead=leader: world.leader() not in (None, dead), limit_ms)  # type: ignore[misc]
        hung.resume()
        world.run_for(3 * leader.config.election_timeout_ms)  # a candidate that has failed may stand again
        v1_leader_soon(world, "after a leader hung")
        v3_everybody_catches_up(world)
        if in_time:
            return
    world.violated("HUNG", f"{FAILOVERS} leaders hung, and none was replaced within {limit_ms} ms")
    world.raise_violation()


def transfer(world: World, random: chance.Random) -> None:
    """TRANSFER: the wanted voter leads, in the next epoch."""
    leader = world.leader()
    if leader is None or leader.process is None:
        return
    others = [node for node in world.whole_voters() if node is not leader]
    if not others or not is_majority(world, len(others) + 1):
        return
    target = random.choice(others)
    elections, epoch = world.checker.elections, leader.leads or 0
    timeout_ms = leader.config.election_timeout_ms
    replica = leader.process.replica
    leader.process.executor.submit(TransferRequested(epoch, target.key.id, timeout_ms))
    world.run_until(lambda: isinstance(replica.state.role_state, Resigned), timeout_ms + work_ms(world))
    role = replica.state.role_state
    if isinstance(role, Resigned) and (not role.preferred or role.preferred[0].id != target.key.id):
        world.violated("TRANSFER", f"{leader} was to hand over to {target}, and names {role.preferred}")
        world.raise_violation()
    if may_be_overtaken(world, leader):
        world.run_until(lambda: any((node.leads or 0) > epoch for node in world.living_voters()), patience_ms(world))
        return
    if not world.run_until(lambda: world.leader() is target, timeout_ms + work_ms(world)):
        now = world.leader()
        world.violated("TRANSFER", f"{leader} was to hand over to {target}, and now the leader is {now}")
    elif world.checker.elections != elections + 1:
        world.violated(
            "TRANSFER", f"{leader} handed over to {target} in {world.checker.elections - elections} elections"
        )
    world.raise_violation()


def news(world: World, random: chance.Random) -> None:
    """NEWS: followers and observers of a quiet log learn of a commit without waiting for the end of their Fetch."""
    recoder = world.network.recoder
    one_in, recoder.one_in = recoder.one_in, 0  # older versions of Fetch do not say which high watermark is known
    config = next(iter(world.nodes.values())).config
    world.run_for(2 * config.fetch_max_wait_ms)
    leader = world.leader()
    if leader is None:
        return
    call = world.workload.append_to(leader)
    limit_ms = work_ms(world) + config.append_linger_ms
    limit_ms += 2 * ASK_EVERY_MS  # the executor asks the core for its deadline every so often
    observers = len(world.nodes) - len(world.living_voters())
    if observers > config.observers_at_once:  # they are told one after the other
        limit_ms += observers * max(config.observer_round_ms, ASK_EVERY_MS)

    def known(*, also_of_upstreams: bool = False) -> bool:
        cores = [node.process.replica for node in world.nodes.values() if node.process]
        asked = [core for core in cores if also_of_upstreams or core.state.upstreams.chosen is None]
        return all((core.high_watermark or 0) >= goal for core in asked)

    goal = leader.chain.end_offset + (1 if call is not None and call.outcome is Outcome.PENDING else 0)
    is_known = call is None or world.run_until(known, limit_ms)
    if is_known and call is not None and not known(also_of_upstreams=True):
        # Observers that fetch from each other hear nothing until the age of their news ends the circle.
        limit_ms += 2 * config.fetch_timeout_ms
        is_known = world.run_until(lambda: known(also_of_upstreams=True), 2 * config.fetch_timeout_ms)
    if not is_known:
        late = {str(node): node.process.replica.high_watermark for node in world.nodes.values() if node.process}
        world.violated("NEWS", f"{limit_ms} ms after an append not everybody knows that {goal} is committed: {late}")
        world.raise_violation()
    recoder.one_in = one_in


def ask_everybody(world: World, random: chance.Random) -> None:
    """L17, I17: each replica is asked each impossible thing, and by another cluster what would be possible here."""
    for node in world.nodes.values():
        for name in (*impossible.KINDS, None):
            if node.process is None:
                break
            if name is None:
                call(world, node.process, random)
            else:
                ask_the_impossible(world, node.process, random, name)
            world.raise_violation()
            world.run_for(1)


# --- parts ----------------------------------------------------------------------------------------------------------


def may_be_overtaken(world: World, leader: SimulatedNode) -> bool:
    """Whether the second in line may stand before the first has won: that costs an election and is no mistake.

    The first may have to ask twice, if a voter has not heard yet that the leader leaves.
    """
    config = leader.config
    pause_ms = config.election_backoff_max_ms >> max(len(world.current_voters()) - 2, 0)
    return max(pause_ms, config.leader_loss_stagger_ms) < work_ms(world) // 2 + 2 * config.retry_backoff_ms


def is_majority(world: World, count: int) -> bool:
    """Whether so many are more than half of the voters."""
    return 2 * count > len(world.current_voters())


def may_win(world: World, voters: Sequence[SimulatedNode], reach: Collection[tuple[int, int]]) -> bool:
    """Whether a voter that hears a majority has no shorter a log than they: in Raft no other voter can be elected.

    And that he may stand, and they may vote: a voter that has forgotten its votes does neither until it has heard of
    all others. A leader that is cut off goes on to append for a while, and so may keep the voters in the middle from
    winning.
    """

    def reached(node: SimulatedNode) -> list[SimulatedNode]:
        own = node.key.id
        return [
            other for other in voters if other is node or (own, other.key.id) in reach or (other.key.id, own) in reach
        ]

    def votes(node: SimulatedNode) -> bool:
        return node.process is not None and node.process.replica.state.amnesia is None

    def stands(node: SimulatedNode) -> bool:
        state = None if node.process is None else node.process.replica.state
        return state is not None and state.may_stand and not state.reluctance_ms

    return any(
        is_majority(world, sum(votes(other) and log_position(other) <= log_position(node) for other in reached(node)))
        for node in voters
        if stands(node)
    )


def serves(world: World, limit_ms: int) -> bool:
    """Whether an append is acknowledged in time, by any leader."""
    workload = world.workload
    first = len(workload.appends)
    workload.start()
    done = world.run_until(
        lambda: any(call.outcome is Outcome.ACKNOWLEDGED for call in workload.appends[first:]), limit_ms
    )
    workload.stop()
    return done


def can_lose(world: World, leader: SimulatedNode) -> bool:
    """Whether the others could go on without `leader`."""
    return is_majority(world, len([node for node in world.whole_voters() if node is not leader]))


def e9(world: World, random: chance.Random) -> None:
    """E9: see `liveness`."""
    e9_returning_voter_disturbs_nobody(world)


DRILLS: Final[Mapping[str, Drill]] = {
    "V4": v4_partial_partition,
    "V5": v5_graceful_shutdown,
    "E9": e9,
    "FAILOVER": failover,
    "HUNG": hung_leader,
    "TRANSFER": transfer,
    "NEWS": news,
    "L17": ask_everybody,
}
"""The drills, by the id that their reports name."""
