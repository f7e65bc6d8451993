"""The promises of liveness, which hold once the faults are over.

Each function lets time pass until it holds or its bound is reached, and reports a violation under its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.consensus.events import ResignRequested
from kraftlib.consensus.roles import Leader
from kraftlib.testing.workload import Outcome

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.world import World

PER_BATCH_MS: Final = 50
"""Time in which a replica catches up by one batch, beyond the timeouts."""

BURST: Final = 12


def patience_ms(world: World) -> int:
    """Return the longest time in which a healthy quorum of this configuration finds a leader.

    Ten times what an election timer and a lost request can take (V1): a follower must first notice that its leader is
    gone, and a few elections may be split.
    """
    config = next(iter(world.nodes.values())).config
    slow_ms = 2 * sum(world.link_us) // 1_000 + world.disk_spread_us // 1_000 + 5
    return 10 * (2 * config.election_timeout_ms + config.fetch_timeout_ms + config.request_timeout_ms + 4 * slow_ms)


TAKEOVERS: Final = 6
"""Attempts in vain, as rare as they get, that the voter which is wanted as leader may need: votes may be split."""

ELECTIONS_MAX: Final = 20
"""The number of epochs for which a voter may have stood in vain, and told an observer of, before it went down."""


class StuckError(Exception):
    """No replica may be elected, and none can help it: a known limit of KIP-853, not a broken promise (`electable`)."""


def electable(world: World) -> list[SimulatedNode]:
    """Return the replicas that could win: voters by their own log, and a majority of their voters has no longer log.

    A leader that removes itself counts itself out as soon as the record is in its log. If it reaches no other replica,
    and the old voters need that replica's vote for a majority, they are stuck: it refuses them, for its log is longer,
    and does not stand, for it is no voter by its own log (scenario E13; in Raft it would stand, thesis 4.2.2).

    A voter that has forgotten its votes gives none and gets none, and one that lacks records does not stand.
    """
    nodes, checker = world.nodes, world.checker

    able = []
    for node in nodes.values():
        voters = checker.voters_of(node)
        if node.process is None or node.is_impaired or not any(voter.matches(node.key) for voter in voters):
            continue
        reached = [nodes[voter.id] for voter in voters if voter.matches(nodes[voter.id].key)]
        granting = [
            other
            for other in reached
            if other.process is not None and not other.is_amnesiac and log_position(other) <= log_position(node)
        ]
        if 2 * len(granting) > len(voters):
            able.append(node)
    return able


def _excuse_the_stuck(world: World) -> None:
    """Raise StuckError, if no leader can be elected and no promise was broken."""
    if world.is_dynamic and not electable(world):
        raise StuckError


def v1_leader_soon(world: World, when: str) -> int:
    """V1: a leader that has committed something, within ten maximal election timeouts; return after how many ms."""
    began_ms, limit_ms = world.now_ms, patience_ms(world)
    if not world.run_until(lambda: world.leader() is not None, limit_ms):
        _excuse_the_stuck(world)
        violated(world, "V1", f"{when} there was no leader for {limit_ms} ms: {_roles(world)}")
    return world.now_ms - began_ms


def v2_noise_elects_nobody(world: World, duration_ms: int) -> None:
    """V2: with 5 % of the packets lost and 50 ms of jitter a quorum keeps its leader, however long it takes."""
    v1_leader_soon(world, "at the start")
    elections = world.checker.elections
    links = [world.network.link(a, b) for a in world.nodes for b in world.nodes if a != b]
    for link in links:
        link.loss, link.retransmission_us, link.jitter_us = 0.05, 200_000, 50_000
    world.run_for(duration_ms)
    for link in links:
        world.make_ordinary(link)
    if world.checker.elections != elections:
        what = f"{world.checker.elections - elections} elections in {duration_ms} ms of nothing but noise"
        violated(world, "V2", what)


def v3_everybody_catches_up(world: World, invariant: str = "V3", nodes: Sequence[SimulatedNode] | None = None) -> None:
    """V3: every node, observers too, learns of all that is committed now, in time linear in what it lacks."""
    goal = world.committed_end
    nodes = [node for node in nodes or world.nodes.values() if node.process is not None]
    lacking = max((_batches_lacking(world, node) for node in nodes), default=0)
    limit_ms = patience_ms(world) + PER_BATCH_MS * lacking

    def reached() -> bool:
        return all(node.process is not None and (node.process.replica.high_watermark or 0) >= goal for node in nodes)

    if not world.run_until(reached, limit_ms):
        if world.leader() is None:
            _excuse_the_stuck(world)
        late = {str(node): _high_watermark(node) for node in nodes}
        violated(world, invariant, f"after {limit_ms} ms not everybody knows that {goal} is committed: {late}")


def v7_service_resumes(world: World) -> None:
    """V7: a new append is acknowledged, without any help."""
    limit_ms = patience_ms(world)
    first = len(world.workload.appends)
    was_running = world.workload.running
    world.workload.start()

    def acknowledged() -> bool:
        return any(call.outcome is Outcome.ACKNOWLEDGED for call in world.workload.appends[first:])

    if not world.run_until(acknowledged, limit_ms):
        _excuse_the_stuck(world)
        made = Counter(call.outcome.name for call in world.workload.appends[first:])
        violated(world, "V7", f"no append was acknowledged within {limit_ms} ms: {dict(made)}, {_roles(world)}")
    if not was_running:
        world.workload.stop()


def last_burst(world: World) -> None:
    """Append faster than a disk can flush, and then no more: appends that came during a flush must be flushed all the
    same."""
    leader = world.leader()
    if leader is None:
        return
    for number in range(BURST):
        world.timeline.after(number * (world.disk_spread_us // 3 + 1), world.workload.append_to, leader)
    world.run_for(BURST * world.disk_spread_us // 3 // 1_000 + 1)


def e9_returning_voter_disturbs_nobody(world: World) -> None:
    """E9: a voter that was cut off for several election timeouts comes back, and no replica loses its leader.

    It comes back in the midst of asking for votes, and its earlier requests arrive at once.
    """
    leader = world.leader()
    voters = world.whole_voters()
    others = [node for node in voters if node is not leader]
    if leader is None or leader not in voters or len(voters) - 1 <= len(world.current_voters()) // 2:
        return  # a leader that comes to know just then that its log is damaged resigns, and does right
    lonely = others[world.committed_end % len(others)]
    links = [
        world.network.link(*pair)
        for other in world.nodes
        if other != lonely.key.id
        for pair in ((other, lonely.key.id), (lonely.key.id, other))
    ]
    elections = world.checker.elections
    for link in links:
        link.cut, link.holds = True, link.source == lonely.key.id
    world.run_for(3 * leader.config.fetch_timeout_ms)
    world.run_until(lambda: lonely.stands, 2 * leader.config.fetch_timeout_ms)
    world.network.heal(links)
    world.run_for(leader.config.fetch_timeout_ms + leader.config.request_timeout_ms)
    if world.checker.elections != elections:
        violated(world, "E9", f"{lonely} was cut off, and when it came back leader {leader.key.id} was deposed")
    v1_leader_soon(world, "after a voter came back")


def v6_changes_come_to_an_end(world: World) -> None:
    """V6: every request for a change of voters has its result, and no change is half done."""
    leader = world.leader()
    role = None if leader is None or leader.process is None else leader.process.replica.state.role_state
    change = role.change if isinstance(role, Leader) else None
    if leader is not None and change is not None and leader.clock.now_ms() > change.deadline_ms:
        violated(world, "V6", f"{leader} is still busy with {change.request}, beyond its time")
    limit_ms = 20 * next(iter(world.nodes.values())).config.request_timeout_ms
    for asked in world.admin.changes:
        if asked.error_code is None and world.now_ms - asked.asked_us // 1_000 > limit_ms:
            violated(world, "V6", f"its outcome was never told: {asked}")


def whoever_joins_has_joined(world: World) -> None:
    """JOIN: with auto_join every replica of a dynamic quorum becomes a voter by itself, one after the other (KIP-1186).

    Among replicas of an older release it is only waited for: those need not know how, nor need their leader.
    """
    missing = [
        node for number, node in world.nodes.items() if not world.is_voter(node) and number not in world.network.older
    ]
    config = next(iter(world.nodes.values())).config
    if not config.auto_join or not world.is_dynamic or not missing:
        return
    # Each may have a lost disk of its own to remove before, and asks once in a fetch timeout.
    limit_ms = (1 + len(missing)) * patience_ms(world)
    if not world.run_until(lambda: all(world.is_voter(node) for node in missing), limit_ms) and not world.network.older:
        voters = sorted(key.id for key in world.current_voters())
        violated(
            world, "JOIN", f"after {limit_ms} ms voters are {voters}, wanted to join had {missing}: {_roles(world)}"
        )
    settle(world)


def whoever_is_wanted_leads(world: World) -> None:
    """PRIORITY: a voter of the highest priority that lives leads in the end, however often it was tried in vain.

    A leader of an older release knows of no priorities; then it is only waited for.
    """
    voters = [node for node in world.nodes.values() if world.is_voter(node) and node.process is not None]
    wanted = max((node.config.election_priority for node in voters), default=0)
    if not wanted:
        return

    def leads() -> bool:
        leader = world.leader()
        return leader is not None and leader.config.election_priority >= wanted

    config = voters[0].config
    # A pause before the next hand-over is never longer than the row of hand-overs was before, so than the run.
    limit_ms = patience_ms(world) + TAKEOVERS * (2 * config.priority_takeover_ms + world.now_ms)
    if not world.run_until(leads, limit_ms) and not world.network.older:
        violated(world, "PRIORITY", f"for {limit_ms} ms no voter of priority {wanted} has led: {_roles(world)}")
    settle(world)


def call_elections_for_whoever_is_ahead(world: World) -> None:
    """Let the leader resign, as an operator does, while an observer is in a newer epoch than the leader.

    It has heard of that epoch from a voter which stood for it and is down now. A leader does not take a newer epoch
    from a Fetch, or any peer could depose it; so the observer waits for the next election, as with Kafka's leaders.
    """

    def ahead() -> bool:
        leader = world.leader()
        epochs = [
            n.process.replica.epoch for n in world.nodes.values() if n.process is not None and not world.is_voter(n)
        ]
        return leader is None or leader.leads is None or max(epochs, default=0) > leader.leads

    for _ in range(ELECTIONS_MAX):
        if world.run_until(lambda: not ahead(), patience_ms(world)):
            return
        leader = world.leader()
        if leader is not None and leader.leads is not None and leader.process is not None:
            leader.process.executor.submit(ResignRequested(leader.leads))


def v8_observers_catch_up(world: World) -> None:
    """V8: an observer that reaches any node that is up to date has all that is committed, soon."""
    call_elections_for_whoever_is_ahead(world)
    v3_everybody_catches_up(world, "V8", [node for node in world.nodes.values() if not world.is_voter(node)])


def settle(world: World) -> None:
    """Wait until no caller waits any more and every replica has everything, within the given time."""
    longest = max((node.chain for node in world.nodes.values()), key=lambda chain: chain.end_offset)
    shortest = min(node.chain.end_offset for node in world.nodes.values())
    limit_ms = patience_ms(world) + PER_BATCH_MS * len(longest.between(shortest, longest.end_offset))

    def settled() -> bool:
        ends = {node.chain.end_offset for node in world.nodes.values()}
        return (
            len(ends) == 1
            and ends == {world.committed_end}
            and all(_high_watermark(node) == world.committed_end for node in world.nodes.values())
            and all(node.flushed_offset == world.committed_end for node in world.nodes.values())
            and all(node.process is None or not waiting(node) for node in world.nodes.values())
            and all(
                node.process is None or node.process.applier.applied_offset == world.committed_end
                for node in world.nodes.values()
            )
        )

    if not world.run_until(settled, limit_ms):
        ends = {
            str(node): (node.chain.end_offset, node.flushed_offset, _high_watermark(node))
            for node in world.nodes.values()
        }
        violated(world, "V3", f"end, flushed end, high watermark are {ends}, committed is {world.committed_end}")


# --- parts ----------------------------------------------------------------------------------------------------------


def violated(world: World, invariant: str, what: str) -> None:
    world.violated(invariant, what)
    world.raise_violation()


def log_position(node: SimulatedNode) -> tuple[int, int]:
    """Return epoch and end offset of a log, as elections compare them."""
    tail = node.chain.tail
    return (0, 0) if tail is None else (tail.epoch, tail.end_offset)


def waiting(node: SimulatedNode) -> int:
    """Return how many callers wait on a node: for their records, or to read."""
    return 0 if node.process is None else len(node.process.waiters) + len(node.process.executor.barriers)


def _high_watermark(node: SimulatedNode) -> int | None:
    return None if node.process is None else node.process.replica.high_watermark


def _roles(world: World) -> str:
    def role(node: SimulatedNode) -> str:
        if node.process is None:
            return f"{node.key.id} down"
        replica = node.process.replica
        return f"{node.key.id} {replica.role} in {replica.epoch}, log end {node.chain.end_offset}"

    return "; ".join(role(node) for node in world.nodes.values())


def _batches_lacking(world: World, node: SimulatedNode) -> int:
    return len(world.checker.facts.committed.between(node.chain.end_offset, world.committed_end))
