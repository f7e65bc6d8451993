"""Looks at every replica now and then: for faults that show only over time.

A leader that no majority has sent a request for too long must have given up (E7), as must one whose disk hangs (S10)
and one whose followers ask and get nowhere (E8), and no replica may spin (I20).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kraftlib.consensus.roles import Leader
from kraftlib.consensus.state import FADING_MAX
from kraftlib.testing import application_invariants as app_inv
from kraftlib.testing import invariants as inv
from kraftlib.testing import voter_invariants as voter_inv
from kraftlib.testing.clock import MILLISECOND

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World
    from kraftlib.types import Epoch, LeaderAndEpoch, Offset, ReplicaKey

LOOKS_PER_ELECTION_TIMEOUT = 2
BURST = 3_000
"""Largest number of calls of a core between two checks. A core in a hot loop makes far more."""

LATE_MS = 50

REMEMBERED_MS = 10_000
"""The metrics cover at least this time."""

NEWS_MS = 20
"""Time after which the news of a leader, or of a leadership that is over, have reached everybody in the process."""


@attrs.define
class _Seen:
    process: Process
    turns: int
    removed_since_us: int | None
    """Since when it leads and is no voter of the committed log."""
    running_since_us: int
    """Start of the time in which it was checked without a break, with the same voters."""
    voters: Sequence[ReplicaKey] = ()
    stalled_at: tuple[Epoch, Offset | None, Sequence[ReplicaKey]] | None = None
    """While it leads and something waits to be committed: its committed offset, and the voters that decide it."""
    stalled_since_us: int = 0
    leader: LeaderAndEpoch | None = None
    """The leader that its core knows, unless its disk was busy."""
    leader_since_us: int = 0


@attrs.frozen
class _Stuck:
    """A leader with records that its disk does not have, as it was seen first: nothing of this may change for long."""

    process: Process
    epoch: Epoch
    flushed_offset: Offset
    since_us: int


class Monitor:
    """Looks at the nodes of one world until it ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looking = False
        self._seen: dict[int, _Seen] = {}
        self._stuck: dict[int, _Stuck] = {}
        config = next(iter(world.nodes.values())).config
        self._may_be_alone = bool(world.kraft_version) or len(world.voter_keys) == 1
        """Whether a leader may have needed no vote of another replica."""
        self._pause_us = max(config.election_timeout_ms * MILLISECOND // LOOKS_PER_ELECTION_TIMEOUT, 10 * MILLISECOND)

    def start(self) -> None:
        """Begin to look."""
        self.looking = True
        self._world.timeline.after(self._pause_us, self._look)

    def _look(self) -> None:
        for node in self._world.nodes.values():
            self._look_at(node)
        self._world.timeline.after(self._pause_us, self._look)

    def _look_at(self, node: SimulatedNode) -> None:
        process, now_us = node.process, self._world.timeline.now_us
        self._check_disk(node)
        seen = self._seen.get(node.key.id)
        if process is None or not process.running or node.disk.is_stuck:
            self._seen.pop(node.key.id, None)
            return
        if seen is None or seen.process is not process:
            self._seen[node.key.id] = _Seen(process, process.turns, None, now_us)
            return
        check = self._world.checker.check
        check(inv.i20_no_spin, node, process.turns - seen.turns, BURST)
        seen.turns = process.turns
        self._check_quorum(node, process, seen)
        self._check_commits(node, process, seen)
        self._check_removal(node, seen)
        self._check_news(node, process, seen)
        view = process.replica.state.log
        # The missing records of a damaged log may name the voters. One that was cut before the end of a lost snapshot
        # goes by the header of that.
        is_all_there = view.header_offset <= view.end_offset == node.chain.end_offset and not view.holes
        if is_all_there and (node.chain.tail is not None or node.disks == 1):
            believed = [voter.key for voter in view.voters.latest]
            if believed or node.chain.tail is not None:
                check(voter_inv.i16_core_knows_its_voters, node, believed, self._world.checker.voters_of(node))

    def _check_disk(self, node: SimulatedNode) -> None:
        """See that a leader does not outlive its disk: a fetch timeout, on a clock that may be a fifth too slow."""
        process, epoch, now_us = node.process, node.leads, self._world.timeline.now_us
        all_flushed = node.chain.end_offset == node.flushed_offset
        alone = len(self._world.checker.voters_of(node)) < 2
        if process is None or not process.running or epoch is None or all_flushed or alone:
            self._stuck.pop(node.key.id, None)
            return
        before = self._stuck.get(node.key.id)
        same = before is not None and (before.process, before.epoch, before.flushed_offset) == (
            process, epoch, node.flushed_offset
        )  # fmt: skip
        if before is None or not same:
            self._stuck[node.key.id] = _Stuck(process, epoch, node.flushed_offset, now_us)
            return
        limit_ms = node.config.fetch_timeout_ms * 5 // 4 + LATE_MS
        stuck_ms = (now_us - before.since_us) // MILLISECOND
        self._world.checker.check(inv.s10_hung_disk_costs_the_leadership, node, stuck_ms, limit_ms)

    def _check_removal(self, node: SimulatedNode, seen: _Seen) -> None:
        """See that a leader does not outlive its own removal."""
        world = self._world
        if node.leads is None or node.leads != world.checker.facts.latest_epoch or world.is_voter(node):
            seen.removed_since_us = None
            return
        if seen.removed_since_us is None:
            seen.removed_since_us = world.timeline.now_us
        since_ms = (world.timeline.now_us - seen.removed_since_us) // MILLISECOND
        world.checker.check(voter_inv.m5_removed_leader_resigns, node, since_ms, 4 * node.config.fetch_timeout_ms)

    def _check_news(self, node: SimulatedNode, process: Process, seen: _Seen) -> None:
        """See that the application and a listener know the leader that the core has known for a while.

        A listener is not told that there is none, and of its own leadership only when it has caught up.
        """
        world, known = self._world, None if node.disk.is_busy else process.replica.leader_and_epoch
        if known is None or known != seen.leader:
            seen.leader, seen.leader_since_us = known, world.timeline.now_us
            return
        if world.timeline.now_us - seen.leader_since_us < NEWS_MS * MILLISECOND:
            return
        told: list[LeaderAndEpoch | None] = [process.executor.leader]
        if known.leader_id not in (None, node.key.id) and not process.loop.is_late:
            told.append(world.watches[node.key.id].told)
        world.checker.check(app_inv.v9_leader_is_told, node, known, told)
        led_ms = (world.timeline.now_us - process.leads_since_us) // MILLISECOND
        if node.leads is not None and NEWS_MS <= led_ms < REMEMBERED_MS and not self._may_be_alone:
            world.checker.check(app_inv.v9_election_is_timed, node, process.metrics.election_latency.maximum)

    def _check_quorum(self, node: SimulatedNode, process: Process, seen: _Seen) -> None:
        """See that a leader who is not listened to has given up."""
        role = process.replica.state.role_state
        voters = self._world.checker.voters_of(node)
        if voters != seen.voters:
            seen.voters, seen.running_since_us = voters, self._world.timeline.now_us
        if not isinstance(role, Leader) or len(voters) < 2:
            return
        heard = sorted((process.heard_us.get(voter.id, 0) for voter in voters if voter.id != node.key.id), reverse=True)
        needed = _others_needed(node, voters)
        latest_us = max(heard[needed - 1] if needed else seen.running_since_us, process.leads_since_us)
        silent_ms = (self._world.timeline.now_us - max(latest_us, seen.running_since_us)) // MILLISECOND
        # One and a half fetch timeouts, on a clock that may be a fifth too slow. They begin anew whenever a majority
        # has been heard of, which may be long after one of them was heard of last.
        limit_ms = node.config.fetch_timeout_ms * 15 // 8 * min(needed, 2) + LATE_MS
        self._world.checker.check(inv.e7_leader_without_listeners_resigns, node, silent_ms, limit_ms)

    def _check_commits(self, node: SimulatedNode, process: Process, seen: _Seen) -> None:
        """See that a leader gives up who commits nothing, though he is asked, for none of a majority gets on.

        Two fetch timeouts, twice as long after each leadership that was given up for that, on a clock that may be a
        fifth too slow.
        """
        state, now_us = process.replica.state, self._world.timeline.now_us
        voters = self._world.checker.voters_of(node)
        needed = _others_needed(node, voters)
        if node.leads is None or state.high_watermark == state.log.end_offset or needed <= 0:
            seen.stalled_at = None
            return
        stalled_at = (node.leads, state.high_watermark, voters)
        if stalled_at != seen.stalled_at:
            seen.stalled_at, seen.stalled_since_us = stalled_at, now_us
            return
        moved = sorted((process.moved_us.get(voter.id, 0) for voter in voters if voter.id != node.key.id), reverse=True)
        stalled_ms = (now_us - max(seen.stalled_since_us, moved[needed - 1])) // MILLISECOND
        patience_ms = 2 * node.config.fetch_timeout_ms << min(state.stalls, FADING_MAX)
        limit_ms = patience_ms * 5 // 4 + LATE_MS
        self._world.checker.check(inv.e8_leader_that_gets_nowhere_resigns, node, stalled_ms, limit_ms)


def _others_needed(node: SimulatedNode, voters: Sequence[ReplicaKey]) -> int:
    """Return the number of other voters that make a majority with the node."""
    return len(voters) // 2 + 1 - (1 if any(voter.id == node.key.id for voter in voters) else 0)
