"""The kinds of trouble that the simulator makes: each is begun with one call, and says how to end it.

Whatever happens here must be survived: no kind may destroy what was flushed, and none lets a replica lie.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.consensus.events import ResignRequested, ShutdownRequested, TransferRequested
from kraftlib.testing import network_faults as net
from kraftlib.testing import strangers
from kraftlib.testing.clock import MILLION, MILLISECOND
from kraftlib.testing.network_faults import Undo, any_node, leader_or_any
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending, Process, doom_after

if TYPE_CHECKING:
    from kraftlib.testing.world import World

Begin = Callable[["World", chance.Random], Undo | None]


@attrs.frozen
class Fault:
    """One kind. `begin` makes the trouble and returns how to end it; None if there was nothing to do, or no end."""

    name: str
    begin: Begin
    longest_ms: int
    """Longest duration, with the election timeouts of the default configuration."""

    shortest_ms: int = 20
    """Shortest duration, likewise."""


# --- processes and machines -----------------------------------------------------------------------------------------


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
    return lambda: _start(world.nodes.values())


def kill_between_actions(world: World, random: chance.Random) -> Undo | None:
    """Let a process die between any two of the next actions of its core; preferably that of a leader."""
    node = leader_or_any(world, random)
    if node is None or node.process is None:
        return None
    node.process.doom = doom_after(random.randrange(12), node.random)

    def undo() -> None:
        if node.process is not None:
            node.process.doom = None
        _start([node])

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
    return lambda: _start([node])


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


def snapshot_amid_change(world: World, random: chance.Random) -> Undo | None:
    """Change the voters; who has the record of that, and does not know it to be committed, cuts its log now (KIP-853).

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
                _cut(process)
        if left:
            world.timeline.after(pause_us, look, left - 1)

    (add_voter if random.random() < 0.5 else remove_voter)(world, random)
    look(200)
    return None


def _cut(process: Process) -> None:
    """Have a snapshot written, and everything before it forgotten."""
    if process.retention.holds:
        return
    process.take_snapshot(0)
    latest = process.replica.state.log.latest_snapshot
    if latest is not None and latest.offset <= process.applier.applied_offset:
        process.retention.let_go(latest)


def forget_log(world: World, random: chance.Random) -> Undo | None:
    """Let a node forget what its latest snapshot replaces: who is further behind has to fetch that snapshot."""
    node = leader_or_any(world, random)
    if node is not None and node.process is not None:
        _cut(node.process)
    return None


def hold_log(world: World, random: chance.Random) -> Undo | None:
    """Have a reader hold the log of a node, for so many bytes or as long as it takes; its retention looks meanwhile."""
    node = any_node(world, random)
    if node is None or node.process is None:
        return None
    limit = random.choice((200, 2_000, 1 << 30))
    hold = node.process.retention.hold(f"reader {random.randrange(3)}", None, limit)
    if not hold.expired:
        hold.advance(random.randint(hold.offset, max(hold.offset, node.process.applier.applied_offset)))

    def undo() -> None:
        for stored in () if node.process is None else node.process.retention.holds:
            stored.release()

    return undo


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
        _start(world.nodes.values())

    return undo


def _start_newer(world: World, node: SimulatedNode) -> None:
    """Start a node with the newest release, whatever it had before."""
    if node.process is None:
        world.network.older.discard(node.key.id)
        node.start()


def upgrade_kraft_version(world: World, random: chance.Random) -> Undo | None:
    """Have the operator make a static quorum a dynamic one (UpdateFeatures, kraft.version 0 -> 1)."""
    world.admin.upgrade()
    return None


def wipe_observer(world: World, random: chance.Random) -> Undo | None:
    """Take the disk of an observer away: it returns empty, as another replica (scenario M7).

    Not while it is being made a voter that the others cannot do without: two voters of which one is gone are stuck.
    """
    observers = [node for node in world.nodes.values() if not world.is_voter(node) and not _is_needed(world, node)]
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
    if world.is_dynamic and len(voters) > 1 and (not _anybody_impaired(world) or len(voters) > 3):
        lost = [key for key in voters if world.nodes[key.id].key != key]
        world.admin.remove(random.choice(lost or voters))
    return None


def replace_disk(world: World, random: chance.Random) -> Undo | None:
    """Take the disk of a voter away: it comes back as an observer, and its key never votes again (scenario M7).

    Only as long as the other voters are a majority that can lose another one; and not where a configuration names
    voters, for an empty disk would take itself for one of those.
    """
    kept = world.kept_voters()
    if not world.kraft_version or len(kept) - 1 <= len(world.current_voters()) // 2 or _anybody_impaired(world):
        return None
    if world.admin.is_changing:
        return None  # those that are voters then may need this one
    node = random.choice(kept)
    node.end(Ending.POWER_LOST)
    node.wipe()
    return node.start


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
        _start([node])

    return undo


def transfer_leadership(world: World, random: chance.Random) -> Undo | None:
    """Have the leader hand over to a voter."""
    leader = world.leader()
    if leader is not None and leader.process is not None:
        target = random.choice(world.current_voters())
        timeout_ms = leader.config.election_timeout_ms
        leader.process.executor.submit(TransferRequested(leader.leads or 0, target.id, timeout_ms))
    return None


# --- time -----------------------------------------------------------------------------------------------------------


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


# --- disks ----------------------------------------------------------------------------------------------------------


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
        _start([node])

    return undo


def full_disk(world: World, random: chance.Random) -> Undo | None:
    """Let a disk have no more space than what is on its way needs; now and then all of them (scenario S6)."""
    one = leader_or_any(world, random)
    nodes = list(world.nodes.values()) if one is None or random.random() < 0.2 else [one]

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
        _start([node])

    return undo


def lose_vote(world: World, random: chance.Random) -> Undo | None:
    """Take the election file of a voter away while it is down (scenario E3).

    Half of the time the leader dies when it comes back, so that somebody asks it for its vote.
    """
    node = _spared_voter(world, random)
    if node is None:
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
    node = _spared_voter(world, random)
    if node is None:
        return None
    node.end(Ending.POWER_LOST)
    node.damage_log(latent=random.random() < 0.3)
    return node.start


def damage_several(world: World, random: chance.Random) -> Undo | None:
    """Let the disks of a minority of the voters lose records at one time, each in several places (scenario S1).

    If it is one replica, it may have forgotten its votes as well.
    """
    first = _spared_voter(world, random)
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
    return lambda: _start(nodes)


def change_amid_transfer(world: World, random: chance.Random) -> Undo | None:
    """Change the voters while a leader waits to hand over to who is down, and again once the first change was given up.

    Whoever is down lacks something by then. What is submitted meanwhile waits to be appended: no log tells of it (M2).
    """
    leader = world.leader()
    others = [node for node in world.living_voters() if node is not leader]
    if not world.is_dynamic or leader is None or leader.process is None or not others or _anybody_impaired(world):
        return None
    target, patience_ms = random.choice(others), leader.config.request_timeout_ms
    target.end(Ending.KILLED)
    is_over = False

    def hand_over() -> None:
        if leader.process is not None and leader.leads is not None and not is_over:
            leader.process.executor.submit(TransferRequested(leader.leads, target.key.id, 3 * patience_ms))

    def change(change_one: Begin) -> None:
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


# --- parts ----------------------------------------------------------------------------------------------------------


def _anybody_impaired(world: World) -> bool:
    """Whether a replica has forgotten its votes or lost records: until it is whole again, no other voter may go."""
    return any(node.is_impaired for node in world.nodes.values())


def _is_needed(world: World, observer: SimulatedNode) -> bool:
    """Whether an observer may be about to vote, and the voters that live would then be no majority without it."""
    if not (world.admin.is_changing or observer.config.auto_join):
        return False
    return 2 * len(world.kept_voters()) <= len(world.current_voters()) + 1


def _spared_voter(world: World, random: chance.Random) -> SimulatedNode | None:
    """Pick a voter whose disk may lose something: one at a time, and none that is the only voter of a set in some log.

    The voters may be changing meanwhile. If the others cannot elect each other then, they cannot be asked to
    (`liveness.electable`), and what was acknowledged must be there all the same.
    """
    count, kept = len(world.current_voters()), world.kept_voters()
    sets = [world.checker.voters_of(node) for node in world.nodes.values()]
    spared = 3 <= count == len(kept) and not _anybody_impaired(world) and min(map(len, sets)) > 1
    return random.choice(kept) if spared else None


def _start(nodes: Iterable[SimulatedNode]) -> None:
    for node in nodes:
        node.start()


def _end(world: World, random: chance.Random, ending: Ending, *, silently: bool) -> Undo | None:
    node = leader_or_any(world, random)
    if node is None:
        return None
    node.end(ending, silently=silently)
    return node.start


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
        Fault("impossible-message", impossible_message, 0),
        Fault("take-snapshot", take_snapshot, 0),
        Fault("snapshot-between-epochs", snapshot_between_epochs, 0),
        Fault("forget-log", forget_log, 0),
        Fault("hold-log", hold_log, 8_000),
        Fault("restart-all-in-turn", restart_all_in_turn, 20_000),
        Fault("upgrade-kraft-version", upgrade_kraft_version, 0),
        Fault("wipe-observer", wipe_observer, 2_000),
        Fault("add-voter", add_voter, 0),
        Fault("remove-voter", remove_voter, 0),
        Fault("replace-disk", replace_disk, 2_000),
        Fault("transfer-leadership", transfer_leadership, 0),
        Fault("clock-drift", clock_drift, 10_000),
        Fault("wall-clock-jump", wall_clock_jump, 0),
        Fault("cut-pair", net.cut_pair, 8_000),
        Fault("cut-one-way", net.cut_one_way, 8_000),
        Fault("isolate", net.isolate, 8_000),
        Fault("lonely-leader", net.lonely_leader, 8_000, shortest_ms=1_000),
        Fault("unheard-leaders", net.unheard_leaders, 20_000, shortest_ms=5_000),
        Fault("split", net.split, 8_000),
        Fault("random-cuts", net.random_cuts, 8_000),
        Fault("loss", net.loss, 6_000),
        Fault("packet-loss", net.packet_loss, 6_000),
        Fault("duplication", net.duplication, 8_000),
        Fault("reordering", net.reordering, 8_000),
        Fault("delay", net.delay, 5_000),
        Fault("reset-connections", net.reset_connections, 0),
        Fault("corruption", net.corruption, 4_000),
        Fault("withhold-records", net.withhold_records, 16_000, shortest_ms=2_000),
        Fault("slow-disk", slow_disk, 6_000),
        Fault("hung-disk", hung_disk, 6_000),
        Fault("failing-disk", failing_disk, 3_000),
        Fault("stuck-disk", stuck_disk, 6_000),
        Fault("full-disk", full_disk, 8_000),
        Fault("lose-vote", lose_vote, 2_000),
        Fault("damage-log", damage_log, 2_000),
        Fault("change-amid-transfer", change_amid_transfer, 10_000, shortest_ms=8_000),
        Fault("fail-machine", fail_machine, 6_000),
        Fault("damage-several", damage_several, 2_000),
        Fault("snapshot-amid-change", snapshot_amid_change, 0),
        Fault("uneven-connections", net.uneven_connections, 8_000),
    )
}
"""Every kind by its name. The order counts: the trace names a kind by its place."""
