"""The core of a simulated replica as its executor sees it: each step is judged and checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.runtime.alarm import ASK_EVERY_MS
from kraftlib.testing import invariants as inv
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.judge import BrokenRuleError, Judged
from kraftlib.testing.surroundings import TIMER_LATE_US
from kraftlib.types import Epoch, LeaderAndEpoch

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World


ASKED_AT_ONCE: Final = 20
"""So often a core is asked when it is due within a few milliseconds: by the timer, and by what happens."""


class WatchedCore:
    """The core as its executor sees it, with a check of every call."""

    def __init__(self, world: World, process: Process, replica: Replica) -> None:
        self._world = world
        self._process = process
        self._replica = replica
        judge = world.judge
        self._judge: Judged = replica if judge is None else judge(replica)
        self._checker = world.checker
        self._asked_ms = deque[int](maxlen=ASKED_AT_ONCE)
        """When it was asked for its deadline, since the latest one."""
        self._is_watched = False
        """Whether a look at its latest deadline is to come."""

    def deadline_ms(self) -> int | None:
        """As `Core.deadline_ms`."""
        deadline_ms = self._replica.deadline_ms()
        self._asked_ms.append(self._process.node.clock.now_ms())
        self._checker.asked_when(self._process, deadline_ms, self._asked_ms)
        return deadline_ms

    def start(self, now_ms: int) -> Any:
        """As `Core.start`."""
        actions = self._judged(self._judge.start, now_ms)
        self._checker.handled(self._process)
        return actions

    def handle(self, event: ev.Event, now_ms: int) -> Any:
        """As `Core.handle`."""
        process = self._process
        process.turns += 1
        process.last_event = event
        if type(event) is ev.TimeoutReached:
            self._asked_ms.clear()
        if isinstance(event, ev.SnapshotCreated):
            process.snapshot_created(event.snapshot_id)
        elif isinstance(event, ev.SnapshotInstalled | ev.SnapshotAdopted):
            process.untold.discard(event.snapshot_id)
        actions = self._judged(self._judge.handle, event, now_ms)
        if any(isinstance(action, act.QuarantineState) for action in actions):
            process.machine.quarantined()
        self._checker.handled(process)
        self._watch_deadline()
        return actions if process.doom is None else process.until_doom(actions)

    def _watch_deadline(self) -> None:
        """See that the core is called when it is due, if nothing happens before.

        It is asked for its deadline at once when it was due just now, else some ms later if it is busy. Where the speed
        of the clock has changed, a timer may come early or late.
        """
        process = self._process
        is_exact = process.loop.is_alarm and type(process.last_event) is ev.TimeoutReached
        clock = process.node.clock
        if (self._is_watched and not is_exact) or clock.steady_since_us > process.began_us:
            return
        deadline_ms = self._replica.deadline_ms()
        if deadline_ms is None:
            return
        due_ms = deadline_ms if is_exact else max(deadline_ms, clock.now_ms() + ASK_EVERY_MS)
        self._is_watched = True
        state = (process.turns, process.resumed_us, process.node.disk.jobs_done, due_us := clock.world_us(due_ms))
        self._world.timeline.at(due_us + TIMER_LATE_US + MILLISECOND, self._look_whether_it_waits, due_ms, state)

    def _look_whether_it_waits(self, due_ms: int, before: tuple[int, int, int, int]) -> None:
        self._is_watched = False
        process, node = self._process, self._process.node
        now = (process.turns, process.resumed_us, node.disk.jobs_done, node.clock.world_us(due_ms))
        is_free = process.running and not process.executor.is_stopped and not node.disk.is_busy
        self._checker.check(inv.v13_due_is_done_in_time, node, due_ms, is_free and now == before)

    def _judged(self, step: Callable[..., list[act.Action]], *arguments: Any) -> list[act.Action]:
        try:
            return step(*arguments)
        except BrokenRuleError as broken:
            self._world.violated(broken.rule, f"{self._process.node}: {broken.what}")
            raise

    @property
    def voters(self) -> VoterSet:
        """As `Core.voters`."""
        return self._replica.voters

    @property
    def is_indispensable(self) -> bool:
        """As `Core.is_indispensable`."""
        return self._replica.is_indispensable

    @property
    def wants_records(self) -> bool:
        """As `Core.wants_records`."""
        return self._replica.wants_records

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """As `Core.leader_and_epoch`."""
        return self._replica.leader_and_epoch

    @property
    def role(self) -> Role:
        """As `Core.role`."""
        return self._replica.role

    @property
    def epoch(self) -> Epoch:
        """The epoch of the core."""
        return self._replica.epoch
