"""Trouble that comes by itself: losses of power, of disks and of durable data. Each method is a step.

`budget` bounds the losses at one time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlib.consensus import events as ev
from kraftlib.types import BOOTSTRAP_SNAPSHOT
from tools.core_fuzz.budget import may_be_replaced, may_lose_something

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld


class Trouble:
    """Takes power and disks away, and gives them back."""

    def __init__(self, world: CoreWorld) -> None:
        self.world = world
        self.random = world.random
        self.phase = world.phase

    def power(self) -> None:
        """From now on the power may go before any action, or not any more."""
        self.world.dying = self.world.dies_at_once if self.random.random() < 0.5 else 0.0

    def crash(self) -> None:
        """Let a replica lose power."""
        host = self.random.choice(list(self.world.hosts.values()))
        if host.core is not None:
            self.end(host)

    def end(self, host: CoreHost) -> None:
        """Let a replica lose power, for a while."""
        self.world.count("power loss")
        host.crash()
        host.down_until_ms = self.world.now_ms + self.random.choice((0, 10, 300, 3_000))

    def start(self) -> None:
        """Start those that have been down for long enough."""
        for host in self.world.hosts.values():
            if host.core is None and (self.world.now_ms >= host.down_until_ms or self.random.random() < 0.2):
                host.start()

    def _impair(self, what: str, do: Callable[[CoreHost], object], host: CoreHost | None = None) -> None:
        with_log = [one for one in self.world.hosts.values() if one.store.batches]
        if host is None and not with_log:
            return
        host = host or self.random.choice(with_log)
        if not host.store.batches or not may_lose_something(self.world, host):
            return
        if host.core is not None:
            self.end(host)
        if do(host) is not None:
            self.world.count(what)

    def lose_election(self) -> None:
        """Let a replica lose its election."""
        self._lose_vote_of(None)

    def vote_is_cast(self, host: CoreHost) -> None:
        """A replica has voted for another one: now and then this is what it forgets."""
        if self.world.forgets and self.random.random() < self.world.forgets:
            self.world.forgetful = host

    def forget_and_go_back(self, host: CoreHost) -> None:
        """Let a replica forget whom it has just voted for, who then is not heard for a while, under the old leader.

        Later the old leader dies, and others stand: for the epoch of the forgotten vote, if no voter knows better.
        """
        election = host.store.election
        voted = None if election is None or election.voted_key is None else election.voted_key.id
        if voted is None or not may_lose_something(self.world, host):
            return
        self._lose_vote_of(host)
        if host.core is None:
            host.start()
        others = [number for number in self.world.hosts if number != voted]
        self.phase.cut = frozenset([(voted, other) for other in others] + [(other, voted) for other in others])
        self.phase.begin(self.random.randrange(40, 160))
        self.phase.then = self._old_leaders_die

    def forget_leadership(self, host: CoreHost) -> bool:
        """Let a leader forget that it was elected, and run again; whether the budget allows it."""
        if not host.store.batches or not may_lose_something(self.world, host):
            return False
        self._lose_vote_of(host)
        if host.core is None:
            host.start()
        return True

    def _old_leaders_die(self) -> None:
        for leader in self.world.leaders():
            self.end(leader)
            leader.down_until_ms = self.world.now_ms + 3_000
        if self.random.random() < 0.5:
            self.phase.cut = frozenset()
        self.phase.begin(self.random.randrange(40, 160))

    def _lose_vote_of(self, host: CoreHost | None) -> None:
        def lose(host: CoreHost) -> bool:
            host.store.lose_election(self.random)
            if self.random.random() < 0.7:
                host.down_until_ms = self.world.now_ms
            return True

        self._impair("lost election" if host is None else "lost vote", lose, host)

    def stale_copy(self) -> None:
        """Let a replica go on with an older copy of its log."""

        def lose(host: CoreHost) -> bool:
            host.store.forget_tail(self.random)
            return True

        self._impair("lost end of a log", lose)

    def damage(self) -> None:
        """Lose records that were durable, while a replica runs or while it is down: often those of a leader."""
        whole = [host for host in self.world.hosts.values() if host.store.batches and not host.store.is_damaged]
        leaders = [host for host in self.world.leaders() if host in whole] if self.random.random() < 0.3 else []
        if not whole:
            return
        host = self.random.choice(leaders or whole)
        if host.core is not None and self.random.random() < 0.5:  # while it runs
            if may_lose_something(self.world, host) and host.store.damage(self.random, latent=True):
                self.world.count("damaged log")
                if self.random.random() < 0.7:
                    host.come_upon_damage()
            return

        def lose(one: CoreHost) -> object:
            return one.store.damage(self.random, latent=self.random.random() < 0.3)

        self._impair("damaged log", lose, host)

    def lose_snapshot(self) -> None:
        """Let a replica lose a stored snapshot: often the one that is its whole log."""
        found = [
            (host, snapshot_id)
            for host in self.world.hosts.values()
            for snapshot_id in sorted(host.store.snapshots)
            if snapshot_id != BOOTSTRAP_SNAPSHOT
        ]
        if not found:
            return
        whole_logs = [(host, snapshot_id) for host, snapshot_id in found if snapshot_id.offset == host.store.end_offset]
        host, snapshot_id = self.random.choice(whole_logs if whole_logs and self.random.random() < 0.7 else found)
        if not may_lose_something(self.world, host):
            return
        self.world.count("lost snapshot")
        if host.core is None or self.random.random() < 0.4:
            if host.core is not None:
                self.end(host)
            host.store.set_aside(snapshot_id)
        else:
            host.tell(ev.SnapshotDamaged(snapshot_id, "fuzzed"))
        if self.random.random() < 0.5:
            self.world.plots.depose()  # another replica asks for its vote soon

    def full(self) -> None:
        """Fill a disk, or make room."""
        if up := self.world.up():
            host = self.random.choice(up)
            host.is_full = not host.is_full
            self.world.count("full disk")
            host.tell(ev.DiskSpaceChanged(host.is_full))

    def replace(self) -> None:
        """Replace a disk by an empty one."""
        host = self.random.choice(list(self.world.hosts.values()))
        if may_be_replaced(self.world, host):
            self.world.count("replaced disk")
            self.end(host)
            host.new_disk()

    def take_from(self, host: CoreHost, kind: str) -> None:
        """Let a replica that is down lose something; the budget has been asked."""
        newest = max(host.store.snapshots, default=BOOTSTRAP_SNAPSHOT)
        if kind == "damage":
            host.store.damage(self.random, latent=self.random.random() < 0.3)
        elif kind == "stale-copy":
            host.store.forget_tail(self.random)
        elif kind == "lose-election":
            host.store.lose_election(self.random)
        elif newest != BOOTSTRAP_SNAPSHOT:
            host.store.set_aside(newest)

    def quit(self) -> None:
        """Let a replica end gracefully."""
        if up := self.world.up():
            self.world.count("graceful end")
            self.random.choice(up).tell(ev.ShutdownRequested(self.random.choice((0, 100, 1_000))))

    def stop_machine(self) -> None:
        """Let the state machine of a replica fail."""
        if up := self.world.up():
            self.world.count("failed state machine")
            self.random.choice(up).tell(ev.StateMachineFailed())
