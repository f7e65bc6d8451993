"""The sessions of brokers: when each was heard last, and how far it has read. In memory of the active controller only.

After a change of the active controller all sessions begin anew, so that no broker is fenced because a controller died.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import attrs

from kraftlib.types import Offset


@attrs.define
class Session:
    """One broker, since it was heard first."""

    broker_epoch: int
    heard_ms: int
    metadata_offset: Offset = -1
    shutdown_offset: Offset | None = None
    """Where its controlled shutdown was written, if it is in one."""


class Sessions:
    """All sessions. Those of fenced brokers count, too: a second process of the same id must wait for their end.

    Every broker that is not fenced has one. They stand in the order of their ends, so that no look goes through all of
    them.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self.timeout_ms: Final = session_timeout_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def clear(self) -> None:
        """Forget all."""
        self._sessions.clear()

    def heard(self, broker_id: int, broker_epoch: int, now_ms: int) -> Session:
        """Note a sign of life; return the session."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms)
        session.heard_ms = now_ms
        self._sessions.move_to_end(broker_id)
        return session

    def end(self, broker_id: int, now_ms: int) -> None:
        """The broker has said good-bye: end its session now."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.heard_ms = now_ms - self.timeout_ms - 1
            self._sessions.move_to_end(broker_id, last=False)

    def forget(self, broker_id: int) -> None:
        """Forget a session that has ended, of a broker that is fenced or gone."""
        self._sessions.pop(broker_id, None)

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the broker was heard within the timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and now_ms - session.heard_ms <= self.timeout_ms
        )

    def ended(self, now_ms: int) -> int | None:
        """Return the broker whose session has ended first; None, if all of them last."""
        broker_id = next(iter(self._sessions), None)
        if broker_id is None or now_ms - self._sessions[broker_id].heard_ms <= self.timeout_ms:
            return None
        return broker_id

    def lowest_offset(self, active: Iterable[int]) -> Offset:
        """Return the offset that each of these brokers has read at least; a very great one, if there are none."""
        return min(
            (self._sessions[number].metadata_offset for number in active if number in self._sessions), default=1 << 62
        )
