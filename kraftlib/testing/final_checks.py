"""The checks at the end of a run, when the faults are over and every replica has caught up.

Some let time pass until a promise holds or its bound is reached. Each reports a violation under its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraftlib.consensus.roles import Leader
from kraftlib.errors import CorruptBatchError
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.snapshots.sending import HASHES_MAX
from kraftlib.testing import invariants as inv
from kraftlib.testing import strangers
from kraftlib.testing.liveness import patience_ms, violated, waiting
from kraftlib.testing.reads import ClientRead
from kraftlib.testing.subject import restored, state_of
from kraftlib.testing.workload import ClientAppend
from kraftlib.types import LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.world import World

LOOK_MS: Final = 100
"""Time in which retention reads a snapshot to its end and lets go of what is below."""


def v9_applications_are_told(world: World) -> None:
    """V9, at the end: every caller knows what became of its call, and every application and listener the leader."""
    calls: list[ClientAppend | ClientRead] = [*world.workload.appends, *world.workload.reads]
    waiting = [call for call in calls if not call.done()]
    nodes = [node for node in world.nodes.values() if node.process is not None]

    def told() -> bool:
        return all(call.done() for call in waiting) and all(len(set(_leaders(world, node))) == 1 for node in nodes)

    if not world.run_until(told, patience_ms(world)):
        forgotten = [f"{type(call).__name__} {call.number}" for call in waiting if not call.done()]
        leaders = {str(node): _leaders(world, node) for node in nodes}
        violated(world, "V9", f"not told are {forgotten}; core, application and listener know {leaders}")


def v11_old_snapshots_go(world: World) -> None:
    """V11, at the end: of the snapshots, and the log below, nothing is kept that is too much and that no reader holds.

    A look comes now and then and takes one snapshot, after it was read in the background. One that is being sent stays
    for a fetch timeout.
    """
    nodes = [node for node in world.nodes.values() if _has_too_much(node)]
    if not nodes:
        return
    config = nodes[0].config
    limit_ms = 2 * min(config.retention_interval_ms, config.snapshot_interval_ms or config.retention_interval_ms)
    limit_ms += max(len(node.log.snapshots()) for node in nodes) * LOOK_MS + 2 * config.fetch_timeout_ms
    if not world.run_until(lambda: not any(_has_too_much(node) for node in nodes), limit_ms):
        kept = {str(node): [*node.log.snapshots()] for node in nodes if _has_too_much(node)}
        violated(world, "V11", f"after {limit_ms} ms snapshots are kept that are too much: {kept}")


def v12_hashes_are_told(world: World) -> None:
    """V12, at the end: a replica answers as many questions for the hash of its snapshot at once as may wait."""
    known = [
        (node, process, process.replica.state.log.snapshots)
        for node in world.running_nodes()
        if (process := node.process)
    ]
    able = [(node, process, ids[-1]) for node, process, ids in known if ids and ids[-1].offset and not node.is_damaged]
    if not able:
        return
    node, process, newest = able[world.committed_end % len(able)]
    answers = strangers.ask_for_hashes(world, process, newest, HASHES_MAX)
    limit_ms = patience_ms(world) + HASHES_MAX * LOOK_MS
    if not world.run_until(lambda: all(answer.given for answer in answers), limit_ms):
        violated(world, "V12", f"{node} has not told the hash of {newest} within {limit_ms} ms")
    errors = [getattr(answer.response, "error_code", None) for answer in answers]
    if any(errors) and newest in node.log.snapshots() and node.process is process:
        violated(world, "V12", f"{node}, asked for the hash of {newest}, answers with the errors {errors}")


def _has_too_much(node: SimulatedNode) -> bool:
    """Whether the oldest snapshot may go, and the log below the next one: all is too large, or it is too old."""
    process, config, log = node.process, node.config, node.log
    if process is None or not process.running or node.is_damaged:
        return False
    ids = [*log.snapshots()]
    if len(ids) < 2 or (config.retention_bytes < 0 and config.retention_ms < 0):
        return False
    size, headers = log.size_bytes, []
    for one in ids:
        with SnapshotReader(log.open_snapshot(one), epoch=one.epoch) as reader:
            size += reader.size
            headers.append(reader.header)
    age_ms = node.clock.wall_ms() - headers[0].last_contained_log_timestamp
    is_too_much = 0 <= config.retention_bytes < size or 0 <= config.retention_ms < age_ms
    held = [hold for hold in process.retention.holds if hold.offset < ids[1].offset]
    return is_too_much and all(log.size_bytes > hold.max_bytes for hold in held)


def _leaders(world: World, node: SimulatedNode) -> list[LeaderAndEpoch | None]:
    """Return the leader as the core knows it, as the application reads it, and as a listener has heard of it."""
    process = node.process
    if process is None:
        return [None]
    return [process.replica.leader_and_epoch, process.executor.leader, world.watches[process.node_id].told]


def l16_cores_know_their_logs(world: World) -> None:
    """L16, at the end: each core's view of its log equals the log as it is opened anew."""
    for node in world.nodes.values():
        if node.process is not None and not node.disk.is_busy and not node.is_damaged:
            world.checker.look_at_picture(node.process)
    world.raise_violation()


def u3_states_are_equal(world: World) -> None:
    """U3, at the end: every replica has the same state, and a snapshot of it says all of it."""
    subject = world.subject
    states = {}
    for node in world.nodes.values():
        if node.process is None:
            continue
        machine = node.process.machine
        states[str(node)] = state = state_of(subject, machine)
        if state_of(subject, restored(subject, state)) != state:
            violated(world, "U3", f"the state of {node} is another one after a snapshot and its restoration")
        if subject.check is not None:
            try:
                subject.check(machine.inner)
            except Exception as error:  # noqa: BLE001 - whatever a check of the user's finds
                violated(world, "U3", f"the state of {node} is wrong: {error!r}")
    different = [name for name, state in states.items() if state != next(iter(states.values()))]
    if different:
        violated(world, "U3", f"with equal logs, the states of {different} differ from the others")
    world.raise_violation()


def i18_logs_are_equal(world: World) -> None:
    """I18, at the end: the logs of all nodes hold the same bytes, and all of them are flushed."""
    checker, nodes = world.checker, list(world.nodes.values())
    start = max(node.log.start_offset for node in nodes)
    checker.check(inv.i18_same_bytes, nodes, start, world.committed_end)
    images = set()
    for node in nodes:
        offset, parts = start, []
        try:
            while offset < node.log.end_offset:
                for batch in node.log.read(offset, 1 << 20):
                    parts.append(bytes(batch.data))
                    offset = batch.end_offset
        except CorruptBatchError:
            continue  # damage that was not read yet, so it is not repaired either
        images.add(b"".join(parts))
    if len(images) > 1:
        violated(world, "I18", f"the logs of {len(nodes)} nodes have {len(images)} different contents")
    world.raise_violation()


def i19_nothing_is_left_over(world: World) -> None:
    """I19, at the end: every request is answered, and no queue has grown."""
    for node in world.nodes.values():
        process = node.process
        if process is None:
            continue
        role = process.replica.state.role_state
        parked = dict(process.replica.state.downstream.fetches)
        parked |= {**role.parked, **role.waiting.fetches} if isinstance(role, Leader) else {}
        sizes = {"parked fetches": (len(parked), 4 * len(world.nodes)), "waiting callers": (waiting(node), 0)}
        world.checker.check(inv.i19_bounds, node, sizes)
        if not node.disk.is_busy:
            change = role.change if isinstance(role, Leader) else None
            reads = [read.request_id for read in process.replica.state.reads if read.remote]
            known = {*parked, *reads, *([] if change is None else [change.request_id])}
            forgotten = [number for number in process.port.requests if number not in known]
            world.checker.check(inv.i19_every_request_is_answered, node, forgotten)
    world.raise_violation()


def i20_idle_quorum_is_quiet(world: World) -> None:
    """I20 and V2: without appends, replicas sleep between their Fetches, and no voter starts an election.

    Damage that was not read yet may be found just then, and its leader resigns.
    """
    config = next(iter(world.nodes.values())).config
    seconds = 2
    before = {number: node.process.turns for number, node in world.nodes.items() if node.process is not None}
    elections = world.checker.elections
    is_whole = not any(node.is_impaired for node in world.living_voters())
    world.run_for(1_000 * seconds)
    wait_ms = max(config.fetch_max_wait_ms, 1)
    limit = 100 + 8 * len(world.nodes) * 1_000 // wait_ms
    for number, node in world.nodes.items():
        if node.process is not None and number in before:
            turns = (node.process.turns - before[number]) // seconds
            world.checker.check(inv.i20_no_spin, node, turns, limit)
    if is_whole and world.checker.elections != elections:
        violated(world, "V2", f"{world.checker.elections - elections} elections in an idle, healthy quorum")
    world.raise_violation()
