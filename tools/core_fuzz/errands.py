"""Errands: rare situations that chance does not reach, and that a run of the core fuzzer brings about once.

| errand | what comes about |
|---|---|
| rejoin | a voter gets an empty disk, and joins by itself once its leader has told three times that it is silent |
| forget | a voter that has lost its vote hears its leader alone, and then all others alone, with records missing |
| resume | half-way through a download the leader leaves, and others have the same snapshot, or one of other bytes |
| supersede | a voter gets an empty disk, and voters change while that disk fetches and the others are not reached |
| outlive | Fetches wait for a change of the voters to be committed, and retention passes them at that moment |
| outrun | a deposed leader's log ends where its successor's begins, with a record of another epoch |
| come-back | a leader that was elected and cut off at once has one record, where the log of the next one begins |
| leave | a leader removes itself, and is read from before that is committed |
| bereave | a voter dies, and another disk was full; then a live one is to be removed, or the leader must hand over |

Those of `more_errands` and `late_errands` come between these. An errand begins in a calm phase with all replicas up.
It is tried again until it has come about.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ReplicaId
from kraftlib.wire.messages.describe_quorum import DescribeQuorumResponse
from tools.core_fuzz.budget import may_be_replaced, may_lose_something
from tools.core_fuzz.more_errands import MoreErrands

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

ERRANDS: Final = ("rejoin", "forget", "resume", "supersede", "outlive", "outrun", "come-back", "leave", "bereave")
HAS_NONE: Final = 0.4
"""So many runs have none of these."""
ERRANDS_OF_A_RUN: Final = 3
TRIES_MAX: Final = 3


class Errands(MoreErrands):
    """The errands of one run, one after the other, drawn beside its schedule."""

    def __init__(self, world: CoreWorld, seed: int) -> None:
        super().__init__(world, chance.Random(f"errands of {world.theme.name}/{seed}"))
        has_some = self.random.random() >= HAS_NONE
        self.wanted = self.random.sample(ERRANDS, ERRANDS_OF_A_RUN) if has_some else []
        self._waits = self.random.randrange(1, 8)
        self._add_one_more(chance.Random(f"more errands of {world.theme.name}/{seed}"))
        self._add_late_ones(chance.Random(f"late errands of {world.theme.name}/{seed}"))
        self._newest_epoch = 0
        """When it began that another leader is awaited."""

    def begin(self) -> None:
        """Bring all up, and let it be calm for a while."""
        if self._tries == TRIES_MAX:
            self._is_over(self.wanted[0])
        if not self.wanted:
            return
        self._tries += 1
        self._forget()
        self.world.dying, self.phase.cut = 0.0, frozenset()
        for host in self.world.hosts.values():
            if host.core is None:
                host.start()
        self.phase.begin(self.random.randrange(60, 160), is_still=True)
        steps: Mapping[str, Callable[[], None]] = {
            **self.steps(),
            "rejoin": self._rejoin,
            "forget": self._lose_vote,
            "resume": self._resume,
            "supersede": self._supersede,
            "outlive": self._outlive,
            "outrun": self._outrun,
            "come-back": self._come_back,
            "leave": self._leave,
            "bereave": self._bereave,
        }
        self.phase.then = steps[self.wanted[0]]

    # --- rejoin ------------------------------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        if self._replace_voter() is not None:
            self._is_done("rejoin", "replaced voter")
            self.phase.begin(self.random.randrange(300, 400), is_still=True)
            self.phase.then = self._let_predecessor_seem_alive

    def _let_predecessor_seem_alive(self) -> None:
        """Let the leader say once, perhaps, that the voter of before has fetched: then it is silent anew."""
        if self.random.random() < 0.6:
            self.world.forger.aim_at(DescribeQuorumResponse)
        self.phase.begin(self.random.randrange(400, 600), is_still=True)

    def _replace_voter(self) -> CoreHost | None:
        leader = self._proved_leader()
        voters = [host for host in self.world.up() if host.running.is_voter and host is not leader]
        return None if leader is None else self._replace(voters)

    def _replace(self, hosts: Sequence[CoreHost]) -> CoreHost | None:
        found = [host for host in hosts if may_be_replaced(self.world, host)]
        if not found:
            return None
        host = self.random.choice(found)
        self.world.trouble.end(host)
        host.new_disk()
        host.start()
        return host

    # --- forget ------------------------------------------------------------------------------------------------------

    def _lose_vote(self) -> None:
        leaders = self.world.leaders()
        voters = [one for one in self.world.up() if one.running.is_voter and one.store.batches and one not in leaders]
        found = [host for host in voters if may_lose_something(self.world, host)]
        if not leaders or not found:
            return
        host, leader = self.random.choice(found), self.random.choice(leaders)
        self.world.trouble.end(host)
        host.store.lose_election(self.random)
        host.start()
        others = [number for number in self.world.hosts if number not in (host.number, leader.number)]
        self.phase.cut = frozenset((host.number, other) for other in others)
        self.phase.begin(self.random.randrange(40, 120))
        self.phase.then = lambda: self._lack_records(host, leader.number)

    def _lack_records(self, host: CoreHost, leader_id: ReplicaId) -> None:
        self.phase.cut = frozenset()
        if host.core is None or not host.store.is_amnesiac or not may_lose_something(self.world, host):
            return
        if not host.store.damage(self.random, latent=True):
            return
        self._is_done("forget", "amnesiac without records")
        host.come_upon_damage()
        self.phase.cut = frozenset({(host.number, leader_id)})
        self.phase.begin(self.random.randrange(40, 120))

    # --- resume ------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        leader = max(self.world.leaders(), key=lambda one: one.running.epoch, default=None)
        if leader is None:
            return
        self.world.take_snapshot(leader)
        newest = max(leader.store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if newest == BOOTSTRAP_SNAPSHOT or leader.core is None:
            return
        for other in self.world.up():
            self.world.take_snapshot(other, newest)
        loading = self._replace([one for one in self.world.up() if one is not leader])
        if loading is not None:
            self._await("piece", loading, self._interrupt)
        self.phase.begin(self.random.randrange(150, 300))

    def _interrupt(self, host: CoreHost) -> None:
        """Let the leader leave from whom the replica downloads."""
        if self._let_leader_go(host):
            self._is_done("resume", "interrupted download")

    # --- supersede, outlive ------------------------------------------------------------------------------------------

    def _supersede(self) -> None:
        host, leader = self._replace_voter(), self._proved_leader()
        if host is None or leader is None:
            return
        self._is_done("supersede", "replaced voter amid a change")
        self.phase.begin(self.random.randrange(60, 120), is_still=True)
        self.phase.then = lambda: self._change_alone(leader)

    def _outlive(self) -> None:
        leader = self._proved_leader()
        if leader is None:
            return
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        is_full = len(others) + 1 == len(self.world.hosts) and len(others) > 1
        self._change_alone(leader, self.random.choice(others) if is_full else None)
        if leader.core is not None and not leader.core.state.are_voters_committed:
            self.phase.then = lambda: self._let_commit(leader)

    def _change_alone(self, leader: CoreHost, number: ReplicaId | None = None) -> None:
        """Let a leader append a change of the voters while it does not reach the other voters."""
        self.phase.cut = frozenset()
        state = None if leader.core is None else leader.core.state
        if state is None or not isinstance(state.role_state, Leader) or state.high_watermark is None:
            return
        for host in self.world.up():
            if host.store.flushes:
                host.finish_flush()
        self.world.change_at(leader, number)
        if leader.control is not None and leader.core is not None and leader.core.wants_records:
            self.world.append_to(leader)
            self.world.count("change that no other replica has")
        voters = [host.number for host in self.world.hosts.values() if host is not leader and host.key in state.voters]
        self._cut_off([leader.number], sides=voters)
        self.phase.begin(self.random.randrange(30, 60), is_still=True)

    def _let_commit(self, leader: CoreHost) -> None:
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(40, 80), is_still=True)
        self._await("commit", leader, self._retain)

    def _retain(self, leader: CoreHost) -> None:
        """Let the log begin at the newest commit at once."""
        self._is_done("outlive", "retention at a commit")
        self._retain_at(leader, leader.high_watermark)

    # --- outrun ------------------------------------------------------------------------------------------------------

    def _outrun(self) -> None:
        """Cut a leader off that appends more than the next one begins with."""
        leader = self._leader_of_some()
        if leader is None:
            return
        self._cut_off([leader.number])
        self._append(leader, leader.store.end_offset + self.random.randrange(4, 8))
        self.phase.begin(self.random.randrange(80, 200), is_still=True)
        self.phase.then = lambda: self._overtake(leader)

    def _overtake(self, deposed: CoreHost) -> None:
        """Let the next leader append as much."""
        heir = self._proved_leader()
        if heir is None or heir is deposed or heir.is_full:
            return
        self._append(heir, deposed.store.end_offset)
        self.phase.begin(self.random.randrange(40, 80), is_still=True)
        self.phase.then = lambda: self._meet(deposed, heir)

    def _meet(self, deposed: CoreHost, heir: CoreHost) -> None:
        """Let the log of the next leader begin where that of the deposed one ends."""
        offset = deposed.store.end_offset - self.random.choice((0, 0, 1, 2))
        if heir.core is not None and heir.high_watermark >= offset:
            self._is_done("outrun", "outrun leader")
            self._retain_at(heir, offset)
            if self.random.random() < 0.5 and may_lose_something(self.world, deposed):
                deposed.store.damage(self.random, latent=True)
                deposed.come_upon_damage()
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(60, 120), is_still=True)

    # --- come-back ---------------------------------------------------------------------------------------------------

    def _come_back(self) -> None:
        """Cut a leader off that appends a little, so that another one is elected with less."""
        leader = self._leader_of_some()
        if leader is None:
            return
        self._append(leader, leader.store.end_offset + self.random.randrange(2, 5))
        self._cut_off([leader.number])
        self._newest_epoch = leader.running.epoch
        self._await("heir", leader, self._cut_heir_off)
        self.phase.begin(self.random.randrange(80, 200), is_still=True)

    def elected(self, host: CoreHost) -> None:
        """A replica has become leader."""
        if self._awaited == "heir" and host.running.epoch > self._newest_epoch:
            self._watched, self.is_urgent = host, True

    def _cut_heir_off(self, heir: CoreHost) -> None:
        """Let no other replica have the first record of the next leader, and let the one before lead once more."""
        while heir.core is not None and heir.store.flushes:
            heir.finish_flush()
        self._cut_off([heir.number])
        self.phase.begin(self.random.randrange(100, 200), is_still=True)
        self.phase.then = lambda: self._return(heir)

    def _return(self, cut_off: CoreHost) -> None:
        leader, offset = self._proved_leader(), cut_off.store.end_offset
        if leader is not None and leader is not cut_off and leader.high_watermark >= offset:
            self._is_done("come-back", "leader that came back")
            self._retain_at(leader, offset)
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(60, 120), is_still=True)

    # --- leave -------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        leader = self._proved_leader()
        if leader is None or not self.world.is_dynamic_at(leader) or len(leader.running.voters) < 3:
            return
        self.world.change_at(leader, leader.number)
        while leader.core is not None and leader.store.flushes:
            leader.finish_flush()
        if leader.control is None or leader.core is None or not leader.core.wants_records:
            return
        self.world.append_to(leader)
        self._is_done("leave", "read from a leader that leaves")
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        self._cut_off([leader.number], sides=self.random.sample(others, len(others) - 1))
        self.world.read_at(leader)
        self.phase.begin(self.random.randrange(30, 60), is_still=True)

    # --- bereave -----------------------------------------------------------------------------------------------------

    def _bereave(self) -> None:
        leader = self._proved_leader()
        if leader is None or not 3 <= len(leader.running.voters) <= 4:
            return
        others = [host for host in self.world.up() if host.key in leader.running.voters and host is not leader]
        if len(others) < len(leader.running.voters) - 1:
            return
        dead = min(others, key=lambda host: host.number) if self.random.random() < 0.7 else self.random.choice(others)
        self.world.trouble.end(dead)
        dead.down_until_ms = self.world.now_ms + 10_000
        spare = next(host for host in others if host is not dead)
        self._fill(spare, is_full=self.random.random() < 0.5)
        self.phase.begin(self.random.randrange(50, 120), is_still=True)
        self.phase.then = lambda: self._wait_for(leader, dead, spare)

    def _wait_for(self, leader: CoreHost, dead: CoreHost, spare: CoreHost) -> None:
        self._fill(spare, is_full=False)
        self.phase.begin(self.random.randrange(50, 120), is_still=True)
        self.phase.then = lambda: self._lean_on(leader, dead)

    def _lean_on(self, leader: CoreHost, dead: CoreHost) -> None:
        """Ask a leader for what only live voters can do."""
        if leader not in self.world.leaders() or dead.core is not None:
            return
        self._is_done("bereave", "quorum without one")
        live = [voter_id for voter_id in leader.running.voters.ids if voter_id not in (dead.number, leader.number)]
        if live and self.world.is_dynamic_at(leader) and self.random.random() < 0.4:
            self.world.change_at(leader, self.random.choice(live))
        elif self.random.random() < 0.5:
            leader.tell(ev.StateMachineFailed())
        else:
            self._fill(leader, is_full=True)
        self.phase.begin(self.random.randrange(60, 120), is_still=True)
