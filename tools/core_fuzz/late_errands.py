"""Errands of the core fuzzer in which a leader or a candidate fails half-way.

| errand | what comes about |
|---|---|
| starve | the voters fetch from a leader, and their disks are full for longer than it waits; it may be leaving |
| falter | a candidate loses power and records, and is started again in the epoch in which it stands |
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from tools.core_fuzz.budget import may_lose_something
from tools.core_fuzz.errand_tools import ErrandTools

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

LATE_ERRANDS: Final = ("starve", "falter")
SHARE_OF_EACH: Final = 0.4
"""The share of the runs that have each of them."""

HAS_NONE_EITHER: Final = 0.8
"""The share of the runs without another errand that have none of these, either."""

TIMEOUTS: Final = (1.6, 1.6, 2.5, 5.0)
"""The time that a leader starves for, in fetch timeouts: until a voter change is over, or until the leader resigns."""


class LateErrands(ErrandTools):
    """The errands of this module."""

    def _add_late_ones(self, random: chance.Random) -> None:
        """Draw which of them a run has, and when."""
        if not self.wanted and random.random() < HAS_NONE_EITHER:
            return
        for errand in LATE_ERRANDS:
            if random.random() < SHARE_OF_EACH:
                self.wanted.insert(random.randint(0, len(self.wanted)), errand)

    def late_steps(self) -> Mapping[str, Callable[[], None]]:
        """Return how each begins."""
        return {"starve": self._starve, "falter": self._falter}

    # --- starve ------------------------------------------------------------------------------------------------------

    def _starve(self) -> None:
        leader = self._proved_leader()
        if leader is None or leader.is_full or leader.core is None:
            return
        voters = leader.running.voters
        others = [host for host in self.world.up() if host.key in voters and host is not leader]
        if not others or len(others) < len(voters) - 1:
            return
        leaves = self.world.is_dynamic_at(leader) and self.random.random() < 0.5
        if leaves:
            self.world.change_at(leader, leader.number)
        while leader.core is not None and leader.store.flushes:
            leader.finish_flush()
        if leader.core is None or leader not in self.world.leaders() or not leader.running.wants_records:
            return
        leaves = leaves and leader.control is not None
        spared = self._too_few(len(others) + 1, leaves=leaves) if self.random.random() < 0.6 else 0
        for other in others[spared:]:
            self._fill(other, is_full=True)
        self._is_done("starve", "starved leader")
        self.world.append_to(leader)
        timeout_ms = leader.running.state.config.fetch_timeout_ms if leader.core is not None else 0
        until_ms = self.world.now_ms + int(timeout_ms * self.random.choice(TIMEOUTS))
        self._let_time_pass(until_ms, lambda: self._feed(others))

    @staticmethod
    def _too_few(voters: int, *, leaves: bool) -> int:
        """Return the greatest number of other voters with which nothing is committed."""
        return (voters - 1) // 2 if leaves else voters // 2 - 1

    def _fill(self, host: CoreHost, *, is_full: bool) -> None:
        if host.core is not None and host.is_full is not is_full:
            host.is_full = is_full
            host.tell(ev.DiskSpaceChanged(is_full))

    def _let_time_pass(self, until_ms: int, then: Callable[[], None]) -> None:
        """Let messages arrive until that time."""
        if self.world.now_ms >= until_ms:
            then()
            return
        self.phase.begin(10, is_still=True)
        self.phase.then = lambda: self._let_time_pass(until_ms, then)

    def _feed(self, hosts: list[CoreHost]) -> None:
        for host in hosts:
            self._fill(host, is_full=False)
        self.phase.begin(self.random.randrange(40, 120), is_still=True)

    # --- falter ------------------------------------------------------------------------------------------------------

    def _falter(self) -> None:
        leader = self._proved_leader()
        if leader is None or len(leader.running.voters) < 2:
            return
        self._await("candidacy", leader, self._hurt_candidate)
        leader.tell(ev.ResignRequested(leader.running.epoch))
        self.phase.begin(self.random.randrange(60, 150), is_still=True)

    def stood(self, host: CoreHost) -> None:
        """A candidate has voted for itself."""
        if self._awaited == "candidacy":
            self._watched, self.is_urgent = host, True

    def _hurt_candidate(self, host: CoreHost) -> None:
        election = host.store.election
        stands = election is not None and election.voted_key == host.key and election.leader_id is None
        if not stands or not may_lose_something(self.world, host):
            return
        self.world.trouble.end(host)
        if host.store.damage(self.random, latent=False):
            self._is_done("falter", "candidate without records")
        host.start()
