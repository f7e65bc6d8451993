"""Steps of the core fuzzer that bring about a rare place on purpose: several things that happen one after the other.

`Phase.then` has the deed that follows when a phase is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Leader
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ReplicaId
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from tools.core_fuzz import made_up
from tools.core_fuzz.budget import may_lose_something
from tools.core_fuzz.host import OPERATOR

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

WAITS_FOR_A_DOWNLOAD: Final = 0.2
"""So often what is meant for a download waits for one: if all were spoiled, none would come to its end."""


class Plots:
    """Each method is a step."""

    def __init__(self, world: CoreWorld) -> None:
        self.world = world
        self.random = world.random
        self.phase = world.phase
        self.awaits_heir = False
        """Whether the next leader is to be cut off at its election."""
        self._epoch = 0
        """The newest epoch when that was decided."""
        self._rivals = 0
        """The number of steps for which a stranger asks for votes that no replica may have."""
        self._awaits_download: Callable[[CoreHost, CoreHost], None] | None = None
        """The deed that waits until a replica downloads a snapshot."""

    def depose(self) -> None:
        """Cut a leader off that goes on to append; the others elect another one, and its log diverges."""
        leaders = [host for host in self.world.leaders() if host.running.voters.majority > 1]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        self.world.count("deposed leader")
        for _ in range(self.random.choice((1, 1, 2, 4))):
            if (
                leader.core is not None
                and leader in self.world.leaders()
                and leader.core.wants_records
                and not leader.is_full
            ):
                self.world.append_to(leader)
            if leader.store.flushes and self.random.random() < 0.8:
                leader.finish_flush()
        others = [number for number in self.world.hosts if number != leader.number]
        self.phase.cut = frozenset((leader.number, other) for other in others) | frozenset(
            (other, leader.number) for other in others
        )
        self.phase.begin(self.random.randrange(60, 200))

    def behead(self) -> None:
        """Depose a leader, and cut its successor off before any other replica has its records; perhaps the next, too.

        So a log may lack two epochs that another one has, and a voter may know the leader of an epoch by its id alone.
        """
        if self.awaits_heir or self.phase.then is not None:
            return
        self.world.count("beheaded quorum")
        self.awaits_heir = True
        self._epoch = max((host.running.epoch for host in self.world.up()), default=0)
        self.depose()

    def follow_up(self) -> None:
        """Do what `behead` has begun, in each step that comes after it, and what waits for a download."""
        if self._awaits_download is not None and self._interfere(self._awaits_download):
            self._awaits_download = None
        if self._rivals:
            self._rivals -= 1
            self.world.forger.press()
        heir = next((host for host in self.world.leaders() if host.running.epoch > self._epoch), None)
        if not self.awaits_heir or heir is None:
            return
        self.awaits_heir = self.random.random() < 0.4
        self._epoch, self._rivals = heir.running.epoch, self.random.choice((0, 100))
        forgets = bool(self.world.kinds["lose-election"]) and self.random.random() < 0.3
        if not forgets:
            self.phase.cut = frozenset()  # the one that was deposed hears of it, too
        for letter in list(self.world.wire):
            is_introduction = letter.source == heir.number and isinstance(letter.body, BeginQuorumEpochRequest)
            if is_introduction and self.random.random() < 0.7:
                self.world.wire.remove(letter)
                self.world.hand(letter)
        if forgets and heir.core is not None and self.world.trouble.forget_leadership(heir):
            self._let_meet(heir)
        else:
            self._cut_off(heir)

    def _let_meet(self, heir: CoreHost) -> None:
        """Let an heir that has forgotten its election meet the leader of before, and those who know better."""
        self.world.count("forgotten leadership")
        self.phase.cut = frozenset(link for link in self.phase.cut if heir.number not in link)
        self.phase.begin(self.random.randrange(60, 200))

    def _cut_off(self, heir: CoreHost) -> None:
        self.world.count("cut off heir")
        if heir.core is not None and heir.store.flushes:
            heir.finish_flush()
        others = [number for number in self.world.hosts if number != heir.number]
        self.phase.cut = frozenset((heir.number, other) for other in others) | frozenset(
            (other, heir.number) for other in others
        )
        self.phase.begin(self.random.randrange(60, 200), refuses=self.random.random() < 0.5)

    @property
    def is_under_way(self) -> bool:
        """Whether `follow_up` has something to do."""
        return self.awaits_heir or self._rivals > 0 or self._awaits_download is not None

    def refuse(self) -> None:
        """Let the link between the leader and one voter be refused for long, while all others hear the leader."""
        leaders = [host for host in self.world.leaders() if len(host.running.voters) >= 3]
        if not leaders or self.phase.then is not None:
            return
        leader = self.random.choice(leaders)
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        one = self.random.choice(others)
        self.world.count("refused link")
        self.phase.cut = frozenset({(one, leader.number), (leader.number, one)})
        self.phase.begin(self.random.randrange(200, 500), refuses=True)
        if self.random.random() < 0.5:
            self.phase.then = lambda: self._mend(leader)
        host = self.world.hosts[one]
        if host.core is not None:
            host.tell(ev.ConnectionLost(leader.number, refused=False))

    def _mend(self, leader: CoreHost) -> None:
        """Let the link hold for a while, before the leader dies: a voter that lost pre-votes has heard it since."""
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(40, 120), is_still=True)
        self.phase.then = lambda: self._kill(leader)

    def _kill(self, leader: CoreHost) -> None:
        if leader not in self.world.leaders():
            return
        self.world.count("leader that dies behind a mended link")
        self.world.trouble.end(leader)
        leader.down_until_ms = self.world.now_ms + 3_000
        for host in self.world.up():
            host.tell(ev.ConnectionLost(leader.number, refused=False))
            host.tell(ev.ConnectionLost(leader.number, refused=True))

    def mute(self) -> None:
        """Let no replica connect to one for long, best one that is wanted as leader, which reaches all others."""
        numbers = [number for number, priority in self.world.priorities.items() if priority] or list(self.world.hosts)
        if self.phase.then is not None:
            return
        one = self.random.choice(numbers)
        self.world.count("muted replica")
        self.phase.cut = frozenset((other, one) for other in self.world.hosts if other != one)
        refuses = self.random.random() < 0.3
        self.phase.begin(self.random.randrange(300, 900), refuses=refuses, answers_pass=True)

    def corner(self) -> None:
        """Let one voter fall behind; then the leader dies, and a third one, which has everything, loses something.

        Committed records are on two disks by then: the one that is gone for a while, and the one that is hurt.
        """
        leaders = [host for host in self.world.leaders() if len(host.running.voters) >= 3]
        if not leaders or self.phase.then is not None:
            return
        leader = self.random.choice(leaders)
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        behind = self.random.sample(others, len(others) // 2)
        cut = {(one, other) for one in behind for other in self.world.hosts if other not in behind}
        self.phase.cut = frozenset(cut | {(other, one) for one, other in cut})
        self.phase.begin(self.random.randrange(60, 250))
        self.phase.then = lambda: self._close_in(behind)

    def _close_in(self, behind: Sequence[ReplicaId]) -> None:
        self.world.count("last copies")
        rest = [host for host in self.world.up() if host.number not in behind and host.running.is_voter]
        leaders = [host for host in rest if isinstance(host.running.state.role_state, Leader)]
        hurt = [host for host in rest if host not in leaders]
        for leader in leaders:
            self.world.trouble.end(leader)
            leader.down_until_ms = self.world.now_ms + self.random.choice((0, 3_000, 3_000))
        if hurt:
            self._hurt(self.random.choice(hurt))
        self.phase.cut = frozenset()
        is_calm = self.random.random() < 0.7
        self.phase.begin(self.random.randrange(60, 200), is_calm=is_calm)

    def _hurt(self, host: CoreHost) -> None:
        """Take something from a replica, if the budget allows it, and let it run again at once."""
        kinds = [name for name in ("lose-election", "damage", "lose-snapshot", "stale-copy") if self.world.kinds[name]]
        kinds = kinds or ["lose-election"]
        if not may_lose_something(self.world, host):
            return
        kind = self.random.choice(kinds)
        newest = max(host.store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if kind == "lose-snapshot" and newest != BOOTSTRAP_SNAPSHOT:
            self.world.count("lost snapshot")
            host.tell(ev.SnapshotDamaged(newest, "fuzzed"))
            return
        self.world.trouble.end(host)
        self.world.trouble.take_from(host, "lose-election" if kind == "lose-snapshot" else kind)
        self.world.count("hurt " + kind)
        host.start()

    def change_and_die(self) -> None:
        """Change the voters, and let the leader lose power soon after it has sent the record."""
        before = {host.number for host in self.world.leaders()}
        self.world.change()
        for leader in self.world.leaders():
            if leader.number not in before or leader.control is None or leader.core is None or leader.is_full:
                continue
            if leader.core.wants_records:
                self.world.append_to(leader)
            for _ in range(self.random.randrange(12)):
                letter = self.world.take()
                if letter is not None:
                    self.world.hand(letter)
                for host in self.world.up():
                    if host is not leader and host.store.flushes:
                        host.finish_flush()
            if leader.core is not None:
                self.world.trouble.end(leader)
            return

    def change_source(self) -> None:
        """Let the leader that sends a snapshot lead no more, and all others have that snapshot, or one like it."""
        self._at_a_download(self._change_source_of)

    def _at_a_download(self, do: Callable[[CoreHost, CoreHost], None]) -> None:
        """Do something to a replica that downloads, and its leader: now, or now and then as soon as there is one."""
        if not self._interfere(do) and self.random.random() < WAITS_FOR_A_DOWNLOAD:
            self._awaits_download = do

    def _interfere(self, do: Callable[[CoreHost, CoreHost], None]) -> bool:
        loading = [host for host in self.world.up() if host.store.incoming is not None]
        host = self.random.choice(loading) if loading else None
        leader = None if host is None else self.world.leader_of(host)
        if host is None or leader is None or leader.core is None:
            return False
        do(host, leader)
        return True

    def _change_source_of(self, host: CoreHost, leader: CoreHost) -> None:
        if host.store.incoming is None:
            return
        wanted = host.store.incoming.snapshot_id
        self.world.count("source of a download changed")
        for other in self.world.up():
            self.world.take_snapshot(other, wanted)
        if leader.core is None:
            return
        if self.random.random() < 0.5:
            leader.tell(ev.ResignRequested(leader.core.epoch))
        else:
            self.world.trouble.end(leader)

    def outdate(self) -> None:
        """Let the leader that sends a snapshot take a newer one, and let the older one go."""
        self._at_a_download(self._outdate)

    def _outdate(self, host: CoreHost, leader: CoreHost) -> None:
        self.world.count("outdated download")
        if leader in self.world.leaders() and leader.running.wants_records and not leader.is_full:
            self.world.append_to(leader)
        if leader.core is not None:
            self.world.take_snapshot(leader)
        newest = max(leader.store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if leader.core is not None and newest != BOOTSTRAP_SNAPSHOT and self.random.random() < 0.5:
            leader.tell(ev.DiskSpaceChanged(True))  # a full disk waits for no replica that still fetches it
            leader.tell(ev.RetentionDue(newest))
            leader.tell(ev.DiskSpaceChanged(False))

    def shake(self) -> None:
        """Change what a replica that has forgotten its vote waits for: the leader, the voters, who is reached."""
        lost = [host for host in self.world.up() if host.running.state.amnesia is not None]
        leaders = self.world.leaders()
        if not lost or not leaders or self.phase.then is not None:
            return
        host, leader = self.random.choice(lost), self.random.choice(leaders)
        self.world.count("shaken amnesiac")
        match self.random.randrange(7):
            case 0:
                leader.tell(ev.ResignRequested(leader.running.epoch))
            case 1:
                self.world.trouble.end(leader)
            case 2:
                self.world.change()
                if leader.control is not None and leader.core is not None and leader.core.wants_records:
                    self.world.append_to(leader)
            case 3:  # it hears the leader, and not the others, or the other way round
                others = [number for number in self.world.hosts if number != host.number]
                cut = others if self.random.random() < 0.3 else [self.random.choice(others)]
                self.phase.cut = frozenset((host.number, other) for other in cut)
                self.phase.begin(self.random.randrange(20, 120))
            case 4:  # it finds out that records are missing, too
                if host.store.damage(self.random, latent=True):
                    self.world.count("damaged log")
                    host.come_upon_damage()
            case 5:
                self.world.forger.mislead(host)
            case _:
                self.world.trouble.end(host)
                host.start()

    def change_twice(self) -> None:
        """Ask for changes of the voters and updates one after the other, while the last one is not committed yet."""
        leaders = [host for host in self.world.leaders() if host.running.high_watermark is not None]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        if not self.world.is_dynamic_at(leader):
            self.upgrade(leader)
            return
        self.world.count("change amid a change")
        for _ in range(self.random.randint(2, 5)):
            if leader.core is None or leader not in self.world.leaders():
                return
            if self.random.random() < 0.5:
                self.world.forger.forge_update(leader, is_true=self.random.random() < 0.7)
            else:
                self.world.change_at(leader)
            if leader.control is not None and self.random.random() < 0.8:
                self._append_at_once(leader)
            for _ in range(self.random.choice((0, 0, 0, 2, 5))):
                if (letter := self.world.take()) is not None:
                    self.world.hand(letter)

    def upgrade(self, leader: CoreHost) -> None:
        """Make a static quorum a dynamic one, if all voters support that, and ask for it again and again."""
        self.world.count("upgrade")
        for _ in range(self.random.randint(1, 4)):
            if leader.core is None or leader not in self.world.leaders():
                return
            self.world.arrive(OPERATOR, leader, made_up.upgrade(self.random))
            if leader.control is not None and self.random.random() < 0.8:
                self._append_at_once(leader)

    def _append_at_once(self, leader: CoreHost) -> None:
        while leader.core is not None and leader.store.flushes:
            leader.finish_flush()
        leads = leader.core is not None and leader in self.world.leaders()
        if leads and leader.running.wants_records and not leader.is_full:
            self.world.append_to(leader)

    def yield_in_vain(self) -> None:
        """Let a leader be asked to hand over to a voter that it does not reach, so that it stays."""
        leaders = [host for host in self.world.leaders() if len(host.running.voters) >= 2]
        if not leaders or self.phase.then is not None:
            return
        leader = self.random.choice(leaders)
        others = [voter_id for voter_id in leader.running.voters.ids if voter_id != leader.number]
        if not others:
            return
        one = self.random.choice(others)
        self.world.count("hand-over in vain")
        if self.random.random() < 0.8:
            self.phase.cut = frozenset({(one, leader.number), (leader.number, one)})
            self.phase.begin(self.random.randrange(30, 150), refuses=self.random.random() < 0.3)
        leader.tell(ev.TransferRequested(leader.running.epoch, one, self.random.choice((50, 200, 500))))

    def wreck(self) -> None:
        """Let one replica lose several things at once."""
        found = [host for host in self.world.hosts.values() if host.store.batches]
        host = self.random.choice(found) if found else None
        if host is None or not may_lose_something(self.world, host):
            return
        kinds = [name for name in ("lose-election", "damage", "lose-snapshot", "stale-copy") if self.world.kinds[name]]
        if len(kinds) < 2:
            return
        self.world.count("wrecked replica")
        if host.core is not None:
            self.world.trouble.end(host)
        for kind in self.random.sample(kinds, self.random.randint(2, len(kinds))):
            self.world.trouble.take_from(host, kind)
        if self.random.random() < 0.7:
            host.start()
