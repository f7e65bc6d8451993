"""Locks: bids for the permits of a name, granted first come, first served.

    waiting ──there is room──▶ ready ──any record──▶ held
       └──────────────┴───────────────────────────────┴──▶ over: released, withdrawn, or the session has ended

The token of a grant is the offset of the record that granted it. So that it is unique, **a record grants one bid at
most**: where it makes room for more, the rest is ready, which reserves its room, until the next records come. The owner
of a bid that is ready renews its session, and that record grants it.

A bid that does not fit holds up those behind it, so a writer is not starved by readers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import attrs

from kraftlib.coordination.keys import RuleError
from kraftlib.coordination.messages import NONE, Acquire, Answer, Event
from kraftlib.types import Offset

Row = Answer.Row


@attrs.frozen
class Bid:
    """A bid. Changed by replacement, so a snapshot may hold it."""

    ticket: Offset
    """Of the record that made it."""
    lock: str
    limit: int
    permits: int
    session: Offset
    """The offset at which it was opened."""
    number: int
    """The sequence number of the call that made it."""
    owner: str = ""
    ready: bool = False
    """There is room for it: it is granted, or will be by one of the next records."""
    token: Offset = NONE

    def row(self, event: Event) -> Row:
        """Return the row that describes it."""
        return Row(
            event=event,
            name=self.lock,
            revision=self.ticket,
            session=self.session,
            owner=self.owner,
            token=self.token,
            permits=self.permits,
        )

    @property
    def state(self) -> Event:
        """BID, READY or GRANTED."""
        return Event.GRANTED if self.token != NONE else Event.READY if self.ready else Event.BID


class _Lock:
    """The bids of one name. It exists as long as there is one."""

    __slots__ = ("limit", "served", "taken", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        """Permits of those that are served."""
        self.served: OrderedDict[Offset, Bid] = OrderedDict()
        """Ready or held."""
        self.waiting: OrderedDict[Offset, Bid] = OrderedDict()


class Locks:
    """All locks. `changed` collects the rows of the record that is being applied."""

    def __init__(self, bids: Iterable[Bid] = (), ready: Iterable[Offset] = ()) -> None:
        """`bids` in the order of `bids`, `ready` in that of `ready`: tickets."""
        self._locks: dict[str, _Lock] = {}
        self.of_session: dict[Offset, dict[int, Bid]] = {}
        """By the number of the call."""
        self.ready: OrderedDict[Offset, Bid] = OrderedDict()
        """To be granted, first the one that has been ready for the longest time."""
        self.changed: list[Row] = []
        by_ticket = {}
        for bid in bids:
            by_ticket[bid.ticket] = bid
            self._insert(bid)
        for ticket in ready:
            self.ready[ticket] = by_ticket[ticket]

    def bids(self, name: str) -> list[Bid]:
        """Return the bids of a lock: those that are served, then those that wait, each in its order."""
        lock = self._locks.get(name)
        return [] if lock is None else [*lock.served.values(), *lock.waiting.values()]

    def names(self) -> list[str]:
        """Return the names of all locks, in order."""
        return sorted(self._locks)

    def is_held(self, name: str, token: Offset) -> bool:
        """Whether the lock is held by the grant with this token."""
        lock = self._locks.get(name)
        return lock is not None and token != NONE and any(bid.token == token for bid in lock.served.values())

    # --- bids --------------------------------------------------------------------------------------------------------

    def bid(self, asked: Acquire, *, session: Offset, number: int, offset: Offset) -> Bid:
        """Make a bid; if there is room it is ready. Raises: RuleError, if others bid for a lock of another limit."""
        lock = self._locks.get(asked.lock)
        if lock is not None and lock.limit != asked.limit:
            raise RuleError(f"the lock {asked.lock!r} is in use with limit={lock.limit}, not {asked.limit}")
        if asked.replace:
            for old in [bid for bid in self.bids(asked.lock) if bid.owner == asked.owner]:
                self.release(old.session, old.number)
        bid = Bid(offset, asked.lock, asked.limit, asked.permits, session, number, asked.owner)
        self._insert(bid)
        self.changed.append(bid.row(Event.BID))
        self._admit(asked.lock)
        return self.of_session[session][number]

    def _insert(self, bid: Bid) -> None:
        lock = self._locks.setdefault(bid.lock, _Lock(bid.limit))
        self.of_session.setdefault(bid.session, {})[bid.number] = bid
        if bid.ready:
            lock.served[bid.ticket] = bid
            lock.taken += bid.permits
        else:
            lock.waiting[bid.ticket] = bid

    def _admit(self, name: str) -> None:
        """Let the first waiting bids be ready, as many as there is room for."""
        lock = self._locks[name]
        while lock.waiting:
            bid = next(iter(lock.waiting.values()))
            if bid.permits > lock.limit - lock.taken:
                return
            del lock.waiting[bid.ticket]
            served = attrs.evolve(bid, ready=True)
            self._insert(served)
            self.ready[bid.ticket] = served
            self.changed.append(served.row(Event.READY))

    def grant(self, offset: Offset, *, session: Offset, ticket: Offset = NONE) -> None:
        """Grant the bid `ticket`, if it is ready; else one of `session`; else the first of all."""
        if not self.ready:
            return
        own = [bid.ticket for bid in self.of_session.get(session, {}).values() if bid.state == Event.READY]
        first = min(own, default=next(iter(self.ready)))
        bid = self.ready.get(ticket, self.ready[first])
        del self.ready[bid.ticket]
        held = attrs.evolve(bid, token=offset)
        self._locks[bid.lock].served[bid.ticket] = held
        self.of_session[bid.session][bid.number] = held
        self.changed.append(held.row(Event.GRANTED))

    def release(self, session: Offset, number: int) -> bool:
        """End the bid of a call, and make room for others; return whether there was one."""
        bid = self.of_session.get(session, {}).get(number)
        if bid is None:
            return False
        lock = self._locks[bid.lock]
        if bid.ready:
            del lock.served[bid.ticket]
            lock.taken -= bid.permits
            self.ready.pop(bid.ticket, None)
        else:
            del lock.waiting[bid.ticket]
        own = self.of_session[session]
        del own[number]
        if not own:
            del self.of_session[session]
        self.changed.append(bid.row(Event.ENDED))
        if lock.served or lock.waiting:
            self._admit(bid.lock)
        else:
            del self._locks[bid.lock]
        return True

    def end_session(self, session: Offset) -> None:
        """End the bids of a session, in the order in which they were made."""
        own = self.of_session.get(session, {})
        # By number: to end one may make room for the next, which is another value then.
        for number in sorted(own, key=lambda number: own[number].ticket):
            self.release(session, number)
