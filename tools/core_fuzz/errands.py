"""What a run of the core fuzzer brings about once, whatever else it does: rare situations that chance does not reach.

| errand | what comes about |
|---|---|
| rejoin | a voter gets an empty disk, and joins by itself once its leader has told three times that it is silent |
| forget | a voter that has lost its vote hears its leader alone, and then all others alone, with records missing |
| resume | half-way through a download the leader leaves, and others have the same snapshot, or one of other bytes |

An errand begins in a calm phase with all replicas up, and is tried again until it has come about.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ReplicaId
from tools.core_fuzz.budget import may_be_replaced, may_lose_something

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

ERRANDS: Final = ("rejoin", "forget", "resume")
HAS_NONE: Final = 0.5
"""So many runs are left to chance."""
TRIES_MAX: Final = 6


class Errands:
    """The errand of one run, drawn beside its schedule."""

    def __init__(self, world: CoreWorld, seed: int) -> None:
        self.world = world
        self.phase = world.phase
        self.random = random = chance.Random(f"errand of {world.theme.name}/{seed}")
        self.wanted = random.choice(ERRANDS) if random.random() >= HAS_NONE else None
        self._tries = 0
        self._waits = random.randrange(1, 8)
        """For so many phases more."""
        self._loading: CoreHost | None = None
        """Whose download is to be interrupted after its first piece."""
        self.is_urgent = False
        """Whether `interrupt` must be called before the next step."""

    def is_due(self) -> bool:
        """Whether the phase that begins now is for the errand."""
        if self.wanted is None or self._tries >= TRIES_MAX:
            return False
        self._waits -= 1
        return self._waits < 0

    def begin(self) -> None:
        """Bring all up, and let it be calm for a while."""
        self._tries += 1
        self.world.dying, self.phase.cut = 0.0, frozenset()
        for host in self.world.hosts.values():
            if host.core is None:
                host.start()
        self.phase.begin(self.random.randrange(60, 160))
        steps: Mapping[str, Callable[[], None]] = {
            "rejoin": self._rejoin,
            "forget": self._forget,
            "resume": self._resume,
        }
        self.phase.then = steps[self.wanted or ""]

    def _is_done(self, what: str) -> None:
        self.world.count(what)
        self.wanted = None

    # --- rejoin ------------------------------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        leaders = [host for host in self.world.leaders() if host.running.high_watermark is not None]
        voters = [host for host in self.world.up() if host.running.is_voter and host not in leaders]
        if leaders and self._replace(voters) is not None:
            self._is_done("replaced voter")
            self.phase.begin(self.random.randrange(500, 1_000))

    def _replace(self, hosts: list[CoreHost]) -> CoreHost | None:
        found = [host for host in hosts if may_be_replaced(self.world, host)]
        if not found:
            return None
        host = self.random.choice(found)
        self.world.trouble.end(host)
        host.new_disk()
        host.start()
        return host

    # --- forget ------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        leaders = self.world.leaders()
        voters = [one for one in self.world.up() if one.running.is_voter and one.store.batches and one not in leaders]
        found = [host for host in voters if may_lose_something(self.world, host)]
        if not leaders or not found:
            return
        host, leader = self.random.choice(found), self.random.choice(leaders)
        self.world.trouble.end(host)
        host.store.lose_election()
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
        self._is_done("amnesiac without records")
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
        self._loading = self._replace([one for one in self.world.up() if one is not leader])
        self.phase.begin(self.random.randrange(150, 300))

    def piece_is_written(self, host: CoreHost) -> None:
        """A replica has a part of a snapshot."""
        self.is_urgent |= self._loading is host

    def interrupt(self) -> None:
        """Let the leader leave from whom the replica downloads."""
        host, self._loading, self.is_urgent = self._loading, None, False
        state = None if host is None or host.core is None else host.core.state
        leader = None if state is None else self.world.hosts.get(state.leader_id or 0)
        if leader is None or leader.core is None:
            return
        self._is_done("interrupted download")
        self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(150, 300))
        if self.random.random() < 0.7:
            leader.tell(ev.ResignRequested(leader.core.epoch))
        else:
            self.world.trouble.end(leader)
