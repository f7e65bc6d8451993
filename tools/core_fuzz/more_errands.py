"""More errands of a run of the core fuzzer, which come between those of `errands`.

| errand | what comes about |
|---|---|
| lag | a voter that was cut off fetches a snapshot, and the leader is asked for what depends on who lives |
| part | a leader leaves, and what it has answered before that comes after its good-bye; connections break meanwhile |
| shear | a deposed leader loses the end of what it shares with its successor, behind which its own records are cut |
| upgrade | a static quorum is made dynamic, once more before that is committed; one voter may be unable to follow |
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.consensus import events as ev
from kraftlib.types import Offset
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from tools.core_fuzz import made_up
from tools.core_fuzz.budget import may_lose_something
from tools.core_fuzz.errand_tools import ErrandTools
from tools.core_fuzz.forged_requests import STRANGER

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

MORE_ERRANDS: Final = ("lag", "part", "shear", "upgrade")
SHARE: Final = 0.6
"""So many runs have one of these."""


class MoreErrands(ErrandTools):
    """The errands that came later, each in its turn."""

    def _add_one_more(self, random: chance.Random) -> None:
        """Draw whether a run has one of these, and when."""
        names = MORE_ERRANDS[:3] if self.world.is_dynamic else (*MORE_ERRANDS, "upgrade", "upgrade", "upgrade")
        if random.random() < SHARE:
            self.wanted.insert(random.randint(0, len(self.wanted)), random.choice(names))

    def steps(self) -> Mapping[str, Callable[[], None]]:
        """Return how each begins."""
        return {"lag": self._lag, "part": self._part, "shear": self._shear, "upgrade": self._upgrade}

    # --- lag ---------------------------------------------------------------------------------------------------------

    def _lag(self) -> None:
        leader = self._leader_of_some()
        if leader is None:
            return
        voters = [host for host in self.world.up() if host.key in leader.running.voters and host is not leader]
        if not voters:
            return
        lagging = self.random.choice(voters)
        self._cut_off([lagging.number])
        self._append(leader, leader.store.end_offset + self.random.randrange(2, 6))
        self.phase.begin(self.random.randrange(60, 200), is_still=True)
        self.phase.then = lambda: self._send_to_snapshot(leader, lagging)

    def _send_to_snapshot(self, leader: CoreHost, lagging: CoreHost) -> None:
        self.phase.cut = frozenset()
        if leader not in self.world.leaders() or leader.running.high_watermark is None:
            return
        self._retain_at(leader, leader.running.high_watermark)
        self._await("piece", lagging, lambda host: self._look_on(leader, host))
        self.phase.begin(self.random.randrange(60, 120), is_still=True)

    def _look_on(self, leader: CoreHost, loading: CoreHost) -> None:
        """Ask a leader for who lives, while a voter downloads its snapshot, and for what it may do with so many."""
        if leader not in self.world.leaders():
            return
        self._is_done("lag", "questions amid a download")
        self.world.arrive(STRANGER, leader, made_up.question_about_the_quorum())
        others = [one for one in leader.running.voters.ids if one not in (leader.number, loading.number)]
        if others and self.world.is_dynamic_at(leader):
            self.world.change_at(leader, self.random.choice(others))

    # --- part --------------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        leader = self._leader_of_some()
        if leader is None or not leader.running.wants_records:
            return
        self.world.append_to(leader)
        late = [one for one in self.world.wire if one.source == leader.number and isinstance(one.body, FetchResponse)]
        if leader.core is None or not late:
            return
        self._is_done("part", "answers after a good-bye")
        self.world.wire = [one for one in self.world.wire if one not in late]
        leader.tell(ev.ResignRequested(leader.core.epoch))
        for letter in list(self.world.wire):
            if letter.source == leader.number and isinstance(letter.body, EndQuorumEpochRequest):
                self.world.wire.remove(letter)
                self.world.hand(letter)
        for letter in late:
            asker = self.world.hosts[letter.target]
            for _ in range(self.random.choice((0, 2, 2))):
                asker.tell(ev.ConnectionLost(leader.number, refused=self.random.random() < 0.5))
            self.world.hand(letter)
        self.phase.begin(self.random.randrange(40, 80), is_still=True)

    # --- shear -------------------------------------------------------------------------------------------------------

    def _shear(self) -> None:
        leader = self._leader_of_some()
        offset = 0 if leader is None else leader.store.end_offset
        if leader is None or leader.high_watermark != offset:
            return
        self._cut_off([leader.number])
        self._append(leader, offset + self.random.randrange(1, 5))
        self.phase.begin(self.random.randrange(100, 250), is_still=True)
        self.phase.then = lambda: self._lose_common_end(leader, offset)

    def _lose_common_end(self, deposed: CoreHost, offset: Offset) -> None:
        heir = self._proved_leader()
        self.phase.cut = frozenset()
        if heir is None or heir is deposed or not may_lose_something(self.world, deposed):
            return
        if deposed.core is None or not deposed.store.lose_before(self.random, offset):
            return
        self._is_done("shear", "lost end of what is common")
        if self.random.random() < 0.6:
            shared = [batch.end_offset for batch in heir.store.batches if batch.end_offset <= offset]
            self._retain_at(heir, self.random.choice((offset, heir.high_watermark, *shared[-3:])))
        deposed.come_upon_damage()
        self.phase.begin(self.random.randrange(60, 120), is_still=True)

    # --- upgrade -----------------------------------------------------------------------------------------------------

    def _upgrade(self) -> None:
        leader = self._proved_leader()
        if leader is None or self.world.is_dynamic_at(leader):
            return
        self._is_done("upgrade", "upgrade of all voters")
        voters = [host for host in self.world.up() if host.number in leader.running.voters.ids and host is not leader]
        for place, voter in enumerate(voters):
            update = made_up.update_of(voter, leader)
            if place == 0 and self.random.random() < 0.3:
                none = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=0)
                update = attrs.evolve(update, kraft_version_feature=none)
            self.world.arrive(voter.number, leader, update)
        if leader.core is not None:
            self.world.plots.upgrade(leader)
        self.phase.begin(self.random.randrange(20, 60), is_still=True)
