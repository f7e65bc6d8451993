"""Inquiries from outside at moments when an answer is delicate: steps of the core fuzzer.

    ask      a tool asks a leader for the progress of all, and a program looks at the status of some replica
    brink    a peer names the first epoch that is too far ahead to be believed
    woo      a follower that stands late or never is asked for its pre-vote while its leader lives

In some runs the log begins behind what is committed as soon as it is, before waiting observers have been told of it.
"""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Candidate, Follower, Leader, Resigned
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from tools.core_fuzz import made_up
from tools.core_fuzz.forged_requests import STRANGE_DISK, STRANGER, with_partition
from tools.rules.status import judge_status

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost
    from tools.core_fuzz.world import CoreWorld

PRICE_MS: Final = 100
"""The price of an epoch that a peer names."""


class Inquiries:
    """Each method is a step."""

    def __init__(self, world: CoreWorld, seed: int) -> None:
        self.world = world
        self.random = world.random
        own = chance.Random(f"inquiries of {world.theme.name}/{seed}")
        self._prunes = own.choice((False, False, True))
        self._pruned: CoreHost | None = None
        """The leader whose log is to begin anew before the next step."""

    def ask(self) -> None:
        """Ask a leader for the progress of all, and look at the status of a replica, best of one that is leaving."""
        if leaders := self.world.leaders():
            self.world.arrive(STRANGER, self.random.choice(leaders), made_up.question_about_the_quorum())
        up = self.world.up()  # the power may have gone meanwhile
        rare = [host for host in up if isinstance(host.running.state.role_state, Resigned | Candidate)]
        if up:
            judge_status(self.random.choice(rare or up).running)

    def brink(self) -> None:
        """Name the first epoch that a replica must not believe."""
        up = self.world.up()
        owing = [host for host in up if host.running.state.epoch_debt_ms]
        if not up:
            return
        host = self.random.choice(owing or up)
        state = host.running.state
        debt_ms = max(0, state.epochs_paid_at_ms - self.world.now_ms)  # it has not heard yet how late it is
        left_ms = state.config.epoch_jump_max * PRICE_MS - debt_ms
        asker = ReplicaKey(STRANGER, STRANGE_DISK)
        request = made_up.vote_for(asker, state.epoch + left_ms // PRICE_MS + 1, state.log.end)
        self.world.count("epoch beyond the brink")
        self.world.arrive(STRANGER, host, with_partition(request, pre_vote=True))

    def woo(self) -> None:
        """Ask followers for a pre-vote that stand late or never, for a log that is long enough."""
        for host in self.world.up():
            state = host.running.state
            role = state.role_state
            is_idle = isinstance(role, Follower) and role.has_fetched
            if is_idle and (state.reluctance_ms or not state.may_stand) and state.log.end.epoch <= state.epoch:
                end = OffsetAndEpoch(
                    offset=state.log.end_offset + self.random.choice((0, 1)), epoch=state.log.end.epoch
                )
                asker = ReplicaKey(STRANGER, STRANGE_DISK)
                self.world.count("wooed follower")
                request = made_up.vote_for(asker, state.epoch, end)
                self.world.arrive(STRANGER, host, with_partition(request, pre_vote=True))

    @property
    def is_urgent(self) -> bool:
        """Whether `prune` must be called before the next step."""
        return self._pruned is not None

    def committed(self, host: CoreHost) -> None:
        """A replica has heard of a commit."""
        role = host.running.state.role_state
        if self._prunes and isinstance(role, Leader):
            offsets = [waiting.fetch_offset for waiting in role.waiting.fetches.values()]
            if any(offset < host.high_watermark for offset in offsets):
                self._pruned = host

    def prune(self) -> None:
        """Let a log begin where all that is committed ends, before observers that wait have been told of it."""
        host, self._pruned = self._pruned, None
        if host is None or host.core is None:
            return
        last = next((batch for batch in host.store.batches if batch.end_offset == host.high_watermark), None)
        if last is not None:
            self.world.count("log that begins behind a waiting observer")
            snapshot_id = OffsetAndEpoch(offset=last.end_offset, epoch=last.epoch)
            self.world.take_snapshot(host, snapshot_id)
            while host.core is not None and host.slow:
                host.hear_slow_disk()
            if host.core is not None:
                host.tell(ev.RetentionDue(snapshot_id))
