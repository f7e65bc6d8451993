"""The states of the state machines: in some runs replicas compare them, and one of them errs.

A state is hashed where a log passes certain offsets, as `kraftlib.runtime.digests` does, and the core hears of it some
time later. At most one replica has a wrong state at a time, for good or at one offset, and at most one voter is lied
about, in another way. So where a majority takes two, a right state is never quarantined (U4).
"""

from __future__ import annotations

import hashlib
import random as chance
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.types import Offset, ReplicaId
from kraftlib.wire.messages.state_digest import StateDigestRequest, StateDigestResponse
from tools.core_fuzz.promises import BrokenPromiseError

if TYPE_CHECKING:
    from tools.core_fuzz.host import CoreHost, Letter
    from tools.core_fuzz.world import CoreWorld

COMPARES: Final = 0.35
"""So many runs compare states."""


class States:
    """The states of all replicas of a run, drawn beside its schedule."""

    def __init__(self, world: CoreWorld, seed: int) -> None:
        self._world = world
        self.random = random = chance.Random(f"states of {world.theme.name}/{seed}")
        self.are_compared = random.random() < COMPARES
        self._every = random.choice((2, 5, 15))
        """At how many offsets a state is hashed once."""
        self._errs = random.choice((0.0, 0.02, 0.1))
        """How likely a replica errs where its state is hashed, if all others are right."""
        self._other_form = random.choice((None, None, None, 1, 2, 3))
        """The replica that writes its state in another form."""
        self.liar: ReplicaId = random.choice((1, 2, 3))
        """The replica that is lied about."""
        self._wrong: dict[ReplicaId, tuple[Offset, ReplicaId]] = {}
        """The offset from which on a replica has a wrong state, and the replica that erred: it, or the only voter."""
        self._erred: ReplicaId | None = None
        """The replica whose state was wrong at one offset or several, and right again behind it."""
        self._led_astray: tuple[ReplicaId, bool] | None = None
        """The replica that is to err where its state is hashed next, and whether it does so for good."""
        self._apart: ReplicaId | None = None
        """The replica whose state is compared with no other for now: no StateDigest goes to it or from it."""

    @property
    def every(self) -> int:
        """At how many offsets a state is hashed once."""
        return self._every

    def lead_astray(self, host: CoreHost, *, for_good: bool) -> bool:
        """Let a replica err, which is not found before `compare_again`; whether it may."""
        if not self.are_compared or not self._may_err(host):
            return False
        self._led_astray, self._apart = (host.number, for_good), host.number
        return True

    def compare_again(self) -> None:
        """Let all states be compared again."""
        self._led_astray = self._apart = None

    def is_kept_apart(self, letter: Letter) -> bool:
        """Whether a message compares the state of the replica that is kept apart."""
        if self._apart is None or not isinstance(letter.body, StateDigestRequest | StateDigestResponse):
            return False
        return self._apart in (letter.source, letter.target)

    def _may_err(self, host: CoreHost) -> bool:
        return not self._wrong and self._erred in (None, host.number)

    def applied(self, host: CoreHost, high_watermark: Offset) -> None:
        """A replica takes what is below for committed, and applies it."""
        if not self.are_compared or host.running.state.machine_failed_ms is not None:
            return
        for batch in host.store.batches:
            is_new = host.high_watermark < batch.end_offset <= high_watermark
            if is_new and batch.base_offset // self._every != batch.end_offset // self._every:
                errs = self._led_astray == (host.number, True)
                if self._may_err(host) and (errs or self.random.random() < self._errs):
                    self._world.count("wrong state")
                    self._led_astray = None if errs else self._led_astray
                    self._wrong[host.number] = batch.end_offset, host.number
                host.slow.append(self.hashed(host, batch.end_offset))

    def hashed(self, host: CoreHost, offset: Offset) -> ev.StateHashed:
        """Return what a replica is told of its state at an offset."""
        form, errs = 1 if host.number == self._other_form else 0, self._led_astray == (host.number, False)
        text = f"{form}/{offset}"
        wrong_from, erred = self._wrong.get(host.number, (offset + 1, host.number))
        if wrong_from <= offset:
            text += f" of {erred}"
        elif self._may_err(host) and (errs or self.random.random() < self._errs / 2):
            self._world.count("state that was wrong once")
            self._erred = host.number
            self._led_astray = None if errs else self._led_astray
            text += f" of {host.number} once"
        return ev.StateHashed(offset=offset, snapshot_version=form, sha256=hashlib.sha256(text.encode()).digest())

    def hash_of(self, offset: Offset, *, is_right: bool) -> ev.StateHashed:
        """Return what a replica is told of a state that is as it must be at an offset, or of one of no replica."""
        right = hashlib.sha256(f"0/{offset}".encode()).digest()
        return ev.StateHashed(offset=offset, snapshot_version=0, sha256=right if is_right else self.lie_at(offset))

    def lie_at(self, offset: Offset) -> bytes:
        """Return a hash of no replica's state."""
        return hashlib.sha256(f"{offset} of a liar".encode()).digest()

    def quarantined(self, host: CoreHost) -> None:
        """A replica is found to be wrong. Where one voter is a majority, others are measured by its word.

        So are those that meet replicas which have loaded a wrong state of the only voter.
        """
        self._world.count("quarantined replica")
        host.slow = [event for event in host.slow if type(event) is not ev.StateHashed]
        is_minority = host.running.voters.majority > 1 and len(self._wrong) < 2
        if host.number not in (*self._wrong, self._erred) and is_minority:
            raise BrokenPromiseError("U4", f"{host} is quarantined, and its state is right")

    def has_new_disk(self, host: CoreHost) -> None:
        """An empty disk takes the place of a state."""
        self._wrong.pop(host.number, None)

    def replaced(self, host: CoreHost) -> None:
        """A snapshot takes the place of a state. That of the only voter holds its state, wrong or not."""
        self._wrong.pop(host.number, None)
        voters = host.running.voters.ids
        if len(voters) == 1 and voters[0] in self._wrong:
            self._wrong[host.number] = self._wrong[voters[0]]
