"""Sessions: the time for which their clients are believed to live, and the results of their calls.

A result is kept until the client acknowledges it, so that a call that is repeated gets the first result. A call whose
number was acknowledged is over: if it arrives later, it is not applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import attrs

from kraftlib.types import Offset

RESULTS_MAX = 1_024
"""Results that a session may leave unacknowledged."""

RESULTS_BYTES_MAX = 8 * 1024 * 1024
NO_ROOM = "the session has left too many results unacknowledged"
"""The reason of a refusal: the call may be made again, under another number."""


@attrs.define
class Session:
    """A live session. Its id is its client's secret; keys and bids know it by `opened`."""

    id: UUID
    ttl_ms: int
    owner: str
    opened: Offset
    renewed: Offset
    """The last record that came from it."""
    acknowledged: int = 0
    """All calls with a lower number are over."""
    results: dict[int, bytes] = attrs.field(factory=dict)
    """By the number of the call."""
    results_bytes: int = 0

    def acknowledge(self, number: int) -> None:
        """Forget the results of all calls below `number`."""
        if number <= self.acknowledged:
            return
        self.acknowledged = number
        results = self.results
        for done in [done for done in results if done < number]:
            self.results_bytes -= len(results.pop(done))

    def keep(self, number: int, result: bytes) -> None:
        """Keep the result of a call."""
        former = self.results.get(number)
        self.results_bytes += len(result) if former is None else len(result) - len(former)
        self.results[number] = result

    def has_seen(self, number: int) -> bool:
        """Whether the call `number`, or a later one, has come."""
        return number < self.acknowledged or number <= max(self.results, default=0)

    def has_room(self, results: int) -> bool:
        """Whether so many more may be kept; else it must acknowledge some before it calls again."""
        return len(self.results) + results <= RESULTS_MAX and self.results_bytes < RESULTS_BYTES_MAX


class Sessions:
    """The live sessions, in the order in which they were opened."""

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        self.live: dict[UUID, Session] = {session.id: session for session in sessions}

    def open(self, session_id: UUID, *, ttl_ms: int, owner: str, offset: Offset) -> Session:
        """Open a session, or renew it if it is open already."""
        known = self.live.setdefault(session_id, Session(session_id, ttl_ms, owner, opened=offset, renewed=offset))
        known.renewed = offset
        return known

    def find(self, session_id: UUID, opened: Offset) -> Session | None:
        """Return the live session that was opened at that offset under that id."""
        known = self.live.get(session_id)
        return known if known is not None and known.opened == opened else None

    def copies(self) -> list[Session]:
        """Return copies that later calls do not change."""
        return [attrs.evolve(session, results=dict(session.results)) for session in self.live.values()]
