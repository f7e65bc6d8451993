"""Sessions: how long their clients are believed to live, and the results of their calls.

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


@attrs.define
class Session:
    """A live session."""

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
        for done in [done for done in self.results if done < number]:
            self.results_bytes -= len(self.results.pop(done))

    def keep(self, number: int, result: bytes) -> None:
        """Keep the result of a call."""
        self.results[number] = result
        self.results_bytes += len(result)

    @property
    def is_full(self) -> bool:
        """Whether it must acknowledge results before it calls again."""
        return len(self.results) >= RESULTS_MAX or self.results_bytes >= RESULTS_BYTES_MAX


class Sessions:
    """The live sessions, in the order in which they were opened."""

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        self.live: dict[UUID, Session] = {session.id: session for session in sessions}

    def open(self, session_id: UUID, *, ttl_ms: int, owner: str, offset: Offset) -> None:
        """Open a session, or renew it if it is open already."""
        known = self.live.get(session_id)
        if known is None:
            self.live[session_id] = Session(session_id, ttl_ms, owner, opened=offset, renewed=offset)
        else:
            known.renewed = offset

    def copies(self) -> list[Session]:
        """Return copies that later calls do not change."""
        return [attrs.evolve(session, results=dict(session.results)) for session in self.live.values()]
