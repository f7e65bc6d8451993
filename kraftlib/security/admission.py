"""Decides which accepted connections stay: strangers share their slots, voters have slots of their own.

Strangers may hold `connections_max` slots, `connections_per_address_max` of them from one address. Where these are
full, a new connection takes the slot of one that has asked nothing yet: the oldest one, of the address that has most.
The oldest one has had most time to speak, and a flood of connections evicts its own. After these a connection gives way
that has rested for `idle_ms`. If there is none, the new one is refused.

A connection from the address of a voter, or one that has shown by its certificate or password that it is a voter, has
one of `voter_connections_max` further slots. Strangers from other addresses never hold them, with one exception: on a
port that authenticates, a newcomer may prove to be a voter, so that it may wait there until it has spoken.

Behind a NAT and on loopback strangers share the address of voters, and the address proves nothing. There a newcomer is
always let in: first in the place of connections that have asked nothing, then of those that have sent no request of a
voter, then of the voter that has rested for longest. A real voter that lost its connection has it again at once.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from kraftlib.frozen import immutable
from kraftlib.security.limits import TcpLimits


class Standing(enum.IntEnum):
    """The evidence that a connection has given so far."""

    NEWCOMER = 0
    """Nothing."""

    ASKED = 1
    """It has sent a request that was not refused."""

    VOTER = 2
    """It has sent a valid request of a voter, from the address of one or authenticated."""


class Seat(Protocol):
    """An accepted connection, as far as this module knows it."""

    standing: Standing
    of_voters: bool
    """Whether it has one of the slots of voters."""

    @property
    def host(self) -> str:
        """The remote address without the port."""
        ...

    @property
    def accepted_at(self) -> float:
        """When it was accepted, in s."""
        ...

    def idle_s(self, now: float) -> float:
        """Return for how long it has asked nothing; 0 while it waits for an answer, or has asked nothing at all."""
        ...


S = TypeVar("S", bound=Seat)


@immutable
class Place(Generic[S]):
    """A slot for a newcomer."""

    of_voters: bool
    instead_of: S | None = None
    """The connection to close for it."""


class Admission(Generic[S]):
    """The slots of one port. `is_voter_host` says whether a voter has this address; it may share it with strangers.

    `authenticates`: whether a newcomer may prove that it is a voter, wherever it comes from.
    """

    def __init__(self, limits: TcpLimits, *, is_voter_host: Callable[[str], bool], authenticates: bool) -> None:
        self._limits: Final = limits
        self._is_voter_host: Final = is_voter_host
        self._authenticates: Final = authenticates
        self._seats: dict[S, None] = {}
        self._voters: dict[S, None] = {}
        """Those in slots of voters."""
        self._per_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, seat: S) -> bool:
        return seat in self._seats

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._seats))

    def held_by(self, host: str) -> int:
        """Return the number of strangers' slots that this address holds."""
        return self._per_host[host]

    def place_for(self, host: str, now: float) -> Place[S] | None:
        """Return the slot of a new connection from `host`; None if there is none for it."""
        voters = self._voters
        has_room = len(voters) < self._limits.voter_connections_max
        trusted = self._is_voter_host(host)
        if trusted and has_room:
            return Place(of_voters=True)
        if self._has_room_for(host):
            return Place(of_voters=False)
        if trusted:
            return Place(of_voters=True, instead_of=min(voters, key=lambda seat: _rank(seat, now)))
        full_host = self._per_host[host] >= self._limits.connections_per_address_max
        victim = self._stranger_that_yields(host if full_host else None, now)
        if victim is not None:
            return Place(of_voters=False, instead_of=victim)
        if not self._authenticates:
            return None
        unproven = [seat for seat in voters if seat.standing is not Standing.VOTER]
        if has_room or not unproven:
            return Place(of_voters=True) if has_room else None
        return Place(of_voters=True, instead_of=min(unproven, key=lambda seat: _rank(seat, now)))

    def add(self, seat: S) -> None:
        """Take `seat`, whose `of_voters` is that of its place."""
        self._seats[seat] = None
        if seat.of_voters:
            self._voters[seat] = None
        else:
            self._per_host[seat.host] += 1

    def remove(self, seat: S) -> None:
        """Free the slot of `seat`; does nothing if it has none."""
        if seat in self._seats:
            del self._seats[seat]
            if seat.of_voters:
                del self._voters[seat]
            else:
                self._leave(seat.host)

    def prove(self, seat: S, now: float) -> S | None:
        """Note that `seat` is a voter: it gets one of their slots. Return the connection to close for it."""
        seat.standing = Standing.VOTER
        if seat.of_voters or seat not in self._seats:
            return None
        unproven = [each for each in self._voters if each.standing is not Standing.VOTER]
        is_full = len(self._voters) >= self._limits.voter_connections_max
        if is_full and not unproven:
            return None  # it keeps the slot that it has
        self._leave(seat.host)
        seat.of_voters = True
        self._voters[seat] = None
        if not is_full:
            return None
        gives_way = min(unproven, key=lambda each: _rank(each, now))
        if self._has_room_for(gives_way.host):
            gives_way.of_voters = False  # the two change slots
            del self._voters[gives_way]
            self._per_host[gives_way.host] += 1
            return None
        return gives_way

    def _has_room_for(self, host: str) -> bool:
        """Whether a stranger from `host` gets a slot without another one's leaving."""
        strangers = len(self._seats) - len(self._voters)
        is_full = self._per_host[host] >= self._limits.connections_per_address_max
        return not is_full and strangers < self._limits.connections_max

    def _leave(self, host: str) -> None:
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _stranger_that_yields(self, host: str | None, now: float) -> S | None:
        """Return the stranger to close for a newcomer, of `host` if that alone is full; None if all are busy."""
        strangers = [seat for seat in self._seats if not seat.of_voters and host in (None, seat.host)]
        newcomers = [seat for seat in strangers if seat.standing is Standing.NEWCOMER]
        if newcomers:
            return min(newcomers, key=lambda seat: (-self._per_host[seat.host], seat.accepted_at))
        longest = max(strangers, key=lambda seat: seat.idle_s(now), default=None)
        return longest if longest is not None and longest.idle_s(now) * 1_000 >= self._limits.idle_ms else None


def _rank(seat: Seat, now: float) -> tuple[int, float, float]:
    """Return the order in which connections give way: the least first."""
    return seat.standing, -seat.idle_s(now), seat.accepted_at
