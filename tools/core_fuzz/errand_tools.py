"""The deeds that all errands share: a leader, a cut, a log that grows or begins later, and what is awaited."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraftlib.consensus import events as ev
from kraftlib.types import Offset, OffsetAndEpoch, ReplicaId

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld


class ErrandTools:
    """The list of the errands of a run, one after the other, and the deeds that they share."""

    def __init__(self, world: CoreWorld, random: chance.Random) -> None:
        self.world = world
        self.phase = world.phase
        self.random = random
        self.wanted: list[str] = []
        """Those that are still to come about, the first one next."""
        self._tries = 0
        self._waits = 0
        """The number of phases for which the next errand waits."""
        self._awaited = ""
        """The thing that is awaited: a piece of a download, a commit, a cut of the log, or another leader."""
        self._watched: CoreHost | None = None
        """The replica of which it is."""
        self._then: Callable[[CoreHost], None] | None = None
        self.is_urgent = False
        """Whether `interrupt` must be called before the next step."""

    def is_due(self) -> bool:
        """Whether the phase that begins now is for an errand."""
        if not self.wanted:
            return False
        self._waits -= 1
        return self._waits < 0

    def _is_done(self, errand: str, what: str) -> None:
        self.world.count(what)
        self._is_over(errand)

    def _is_over(self, errand: str) -> None:
        if errand in self.wanted:
            self.wanted.remove(errand)
            self._tries, self._waits = 0, self.random.randrange(1, 4)

    def _proved_leader(self) -> CoreHost | None:
        """Return the leader of the newest epoch, if it has committed something in it."""
        leader = max(self.world.leaders(), key=lambda one: one.running.epoch, default=None)
        return None if leader is None or leader.running.high_watermark is None else leader

    def _leader_of_some(self) -> CoreHost | None:
        """Return a proved leader of at least three voters with space for what is to come."""
        leader = self._proved_leader()
        return None if leader is None or leader.is_full or len(leader.running.voters) < 3 else leader

    def _await(self, what: str, host: CoreHost, then: Callable[[CoreHost], None]) -> None:
        self._awaited, self._watched, self._then = what, host, then

    def _forget(self) -> None:
        self._awaited, self._watched, self._then, self.is_urgent = "", None, None, False

    def piece_is_written(self, host: CoreHost) -> None:
        """A replica has a part of a snapshot."""
        self.is_urgent |= self._awaited == "piece" and self._watched is host

    def committed(self, host: CoreHost) -> None:
        """A leader has committed something."""
        self.is_urgent |= self._awaited == "commit" and self._watched is host

    def was_cut(self, host: CoreHost) -> None:
        """The end of a log was cut off."""
        self.is_urgent |= self._awaited == "cut" and self._watched is host

    def interrupt(self) -> None:
        """Do what was waited for."""
        host, then = self._watched, self._then
        self._forget()
        if host is not None and host.core is not None and then is not None:
            then(host)

    def _cut_off(self, numbers: Sequence[ReplicaId], *, sides: Sequence[ReplicaId] | None = None) -> None:
        """Let nothing pass between these and the others, or those of `sides`, either way."""
        others = [one for one in (self.world.hosts if sides is None else sides) if one not in numbers]
        pairs = {(one, other) for one in numbers for other in others}
        self.phase.cut = frozenset(pairs | {(other, one) for one, other in pairs})

    def _append(self, leader: CoreHost, end_offset: Offset) -> None:
        """Append one record after the other, each flushed here, until the log ends there or takes no more."""
        while leader in self.world.leaders() and leader.store.end_offset < end_offset:
            while leader.core is not None and leader.store.flushes:
                leader.finish_flush()
            if leader.core is None or not leader.core.wants_records:
                return
            before = leader.store.end_offset
            self.world.append_to(leader, records=1)
            if leader.store.end_offset == before:
                return
        while leader.core is not None and leader.store.flushes:
            leader.finish_flush()

    def _let_leader_go(self, host: CoreHost) -> bool:
        """Let the leader that a replica follows leave, or lose power; whether there is one."""
        leader = self.world.leader_of(host)
        if leader is None or leader.core is None:
            return False
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(150, 300))
        if self.random.random() < 0.7:
            leader.tell(ev.ResignRequested(leader.core.epoch))
        else:
            self.world.trouble.end(leader)
        return True

    def _retain_at(self, host: CoreHost, offset: Offset) -> None:
        found = [batch for batch in host.store.batches if batch.end_offset == offset]
        if found:
            snapshot_id = OffsetAndEpoch(offset=offset, epoch=found[0].epoch)
            self.world.take_snapshot(host, snapshot_id)
            while host.core is not None and host.slow:
                host.hear_slow_disk()
            if host.core is not None:
                host.tell(ev.RetentionDue(snapshot_id))
