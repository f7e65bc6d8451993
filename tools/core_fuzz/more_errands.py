"""More errands of a run of the core fuzzer, which come between those of `errands`.

| errand | what comes about |
|---|---|
| lag | a voter that was cut off fetches a snapshot, and the leader is asked for what depends on who lives |
| part | a leader leaves, and what it has answered before that comes after its good-bye; connections break meanwhile |
| shear | a deposed leader loses the end of what it shares with its successor, behind which its own records are cut |
| upgrade | a static quorum is made dynamic, once more before that is committed; one voter may be unable to follow |
| patch | half-way through a snapshot that is to fill a hole the leader leaves, and others have it in other bytes |
| stray | a state is wrong once, or for good, and compared when more is applied, or when the log begins later |

A deposed leader of `shear` may be writing a snapshot, which is there when its log has been cut to before it.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kraftlib.consensus import events as ev
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from tools.core_fuzz import made_up
from tools.core_fuzz.budget import may_lose_something
from tools.core_fuzz.forged_requests import STRANGER
from tools.core_fuzz.late_errands import LateErrands

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost

MORE_ERRANDS: Final = ("lag", "part", "shear", "patch")
SHARE: Final = 0.75
"""So many runs have one of these."""

UPGRADE: Final = "upgrade"
UPGRADES: Final = 0.8
"""So many of the runs with a static quorum have this one before all others, while it is static still."""

STRAY: Final = "stray"
STRAYS: Final = 0.6
"""So many of the runs in which states are compared have this one, too."""


class MoreErrands(LateErrands):
    """The errands that came later, each in its turn."""

    def _add_one_more(self, random: chance.Random) -> None:
        """Draw whether a run has one of these, and when."""
        if random.random() < SHARE:
            self.wanted.insert(random.randint(0, len(self.wanted)), random.choice(MORE_ERRANDS))
        if self.world.states.are_compared and random.random() < STRAYS:
            self.wanted.insert(random.randint(0, len(self.wanted)), STRAY)
        if not self.world.is_dynamic and random.random() < UPGRADES:
            self.wanted.insert(0, UPGRADE)

    def steps(self) -> Mapping[str, Callable[[], None]]:
        """Return how each begins."""
        return {
            **self.late_steps(),
            "lag": self._lag,
            "part": self._part,
            "shear": self._shear,
            "patch": self._patch,
            UPGRADE: self._upgrade,
            STRAY: self._stray,
        }

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
        if deposed.core is None:
            return
        is_writing = self.random.random() < 0.4
        if is_writing:
            snapshot_id = OffsetAndEpoch(offset=offset, epoch=deposed.store.epoch_before(offset))
            self.world.take_snapshot(deposed, snapshot_id, slowly=True)
        if not deposed.store.lose_before(self.random, offset):
            return
        self._is_done("shear", "lost end of what is common")
        if is_writing:
            self._await("cut", deposed, self._finish_writing)
        elif self.random.random() < 0.7:
            shared = [batch.end_offset for batch in heir.store.batches if batch.end_offset <= offset]
            self._retain_at(heir, self.random.choice((offset, heir.high_watermark, *shared[-3:])))
        deposed.come_upon_damage()
        self.phase.begin(self.random.randrange(60, 120), is_still=True)

    def _finish_writing(self, host: CoreHost) -> None:
        """Let a snapshot be there that ends behind the log, and let the log begin at it."""
        while host.core is not None and host.slow:
            host.hear_slow_disk()
        newest = max(host.store.snapshots, default=None)
        if host.core is not None and newest is not None and newest.offset > host.store.end_offset:
            self.world.count("snapshot ahead of its log")
            host.tell(ev.RetentionDue(newest))

    # --- patch -------------------------------------------------------------------------------------------------------

    def _patch(self) -> None:
        leader = self._leader_of_some()
        if leader is None:
            return
        self._append(leader, leader.store.end_offset + self.random.randrange(2, 5))
        self.phase.begin(self.random.randrange(60, 120), is_still=True)
        self.phase.then = lambda: self._tear(leader)

    def _tear(self, leader: CoreHost) -> None:
        """Let a voter lose records that no other one has any more: a snapshot stands in for them."""
        if leader not in self.world.leaders() or leader.running.high_watermark is None:
            return
        offset = leader.running.high_watermark
        found = [host for host in self.world.up() if host.key in leader.running.voters and host is not leader]
        found = [host for host in found if max(host.store.snapshots, default=BOOTSTRAP_SNAPSHOT).offset < offset]
        torn = self.random.choice(found) if found else None
        if torn is None or not may_lose_something(self.world, torn):
            return
        if not torn.store.lose_before(self.random, offset):
            return
        for other in self.world.up():
            if other is not torn:
                self._retain_at(other, offset)
        self._await("piece", torn, self._change_patch)
        torn.come_upon_damage()
        self.phase.begin(self.random.randrange(150, 300), is_still=True)

    def _change_patch(self, torn: CoreHost) -> None:
        if torn.store.holes and self._let_leader_go(torn):
            self._is_done("patch", "interrupted patch")

    # --- stray -------------------------------------------------------------------------------------------------------

    def _stray(self) -> None:
        leader, states = self._leader_of_some(), self.world.states
        if leader is None:
            return
        voters = [host for host in self.world.up() if host.key in leader.running.voters and host is not leader]
        voters = [host for host in voters if host.running.state.machine_failed_ms is None]
        one, for_good = self.random.choice(voters) if voters else None, self.random.random() < 0.5
        if one is None or not states.lead_astray(one, for_good=for_good):
            return
        self._append(leader, leader.store.end_offset + 2 * states.every + 1)
        self.phase.begin(self.random.randrange(100, 200), is_still=True)
        self.phase.then = lambda: self._compare_again(one, for_good=for_good)

    def _compare_again(self, one: CoreHost, *, for_good: bool) -> None:
        while one.core is not None and one.slow:
            one.hear_slow_disk()
        if one.core is not None and for_good:
            self._retain_at(one, one.high_watermark)
        self.world.states.compare_again()
        self._is_done(STRAY, "states that are compared late")
        self.phase.begin(self.random.randrange(100, 200), is_still=True)

    # --- upgrade -----------------------------------------------------------------------------------------------------

    def _upgrade(self) -> None:
        leader = self._proved_leader()
        if leader is None or self.world.is_dynamic_at(leader):
            return
        self._is_done(UPGRADE, "upgrade of all voters")
        voters = [host for host in self.world.up() if host.number in leader.running.voters.ids and host is not leader]
        unable = voters[:1] if self.random.random() < 0.3 else []
        for voter in voters:
            self._describe(voter, leader, is_able=voter not in unable)
        self.world.plots.upgrade(leader)
        for voter in unable:
            self._describe(voter, leader, is_able=True)
        if leader in self.world.leaders():
            self.world.plots.upgrade(leader)
        self.phase.begin(self.random.randrange(20, 60), is_still=True)

    def _describe(self, voter: CoreHost, leader: CoreHost, *, is_able: bool) -> None:
        """Let a voter say what it supports."""
        if leader.core is None:
            return
        update = made_up.update_of(voter, leader)
        if not is_able:
            none = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=0)
            update = attrs.evolve(update, kraft_version_feature=none)
        self.world.arrive(voter.number, leader, update)
