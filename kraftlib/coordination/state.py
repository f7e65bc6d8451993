"""The state of the coordination machine: its parts, and the end of a record."""

from __future__ import annotations

from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.history import History
from kraftlib.coordination.keys import Keys
from kraftlib.coordination.locks import Locks
from kraftlib.coordination.messages import NONE
from kraftlib.coordination.sessions import Session, Sessions
from kraftlib.types import Offset


class State:
    """Sessions, keys, locks and the latest changes of the two, as of the record at `applied`."""

    def __init__(
        self,
        *,
        applied: Offset = BEFORE_ALL,
        sessions: Sessions | None = None,
        keys: Keys | None = None,
        locks: Locks | None = None,
        history: History | None = None,
    ) -> None:
        self.applied = applied
        self.sessions = sessions or Sessions()
        self.keys = keys or Keys()
        self.locks = locks or Locks()
        self.history = history or History()
        self._granted: Offset = NONE

    def end_session(self, session: Session) -> None:
        """End a session, its ephemeral keys and its bids."""
        del self.sessions.live[session.id]
        self.keys.end_session(session.opened, self.applied)
        self.locks.end_session(session.opened)

    def grant(self, session: Offset, *, ticket: Offset = NONE) -> None:
        """Grant one bid that is ready, unless this record has granted one."""
        if self._granted != self.applied:
            self._granted = self.applied
            self.locks.grant(self.applied, session=session, ticket=ticket)

    def finish(self, *, granting: Offset) -> None:
        """End the record: grant one bid, and note what has changed."""
        self.grant(granting)
        keys, locks = self.keys, self.locks
        if keys.changed or locks.changed:
            changed = (*keys.changed, *locks.changed)
            keys.changed, locks.changed = [], []
            self.history.add(self.applied, changed)
