"""One budget in bytes for all answers that wait: peers that do not read must not fill the memory of a replica.

Each connection has an account of its pending answers: answers that its peer has not read yet, and answers that were
given before those of earlier requests. Where all accounts together exceed the budget, the peers are closed whose oldest
unread answer is oldest, strangers before voters, until the rest fits. A peer that reads is never the oldest for long:
its account begins anew whenever everything has been read that waited at the time of the last beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlib.frozen import define


@define(eq=False, kw_only=True)
class Account:
    """The answers of one connection."""

    measure: Callable[[], int]
    """Returns how many bytes wait now."""

    close: Callable[[], None]
    """Closes the connection, and gives back what it holds."""

    is_voter: bool = False
    sent_bytes: int = 0
    """All that was given to the connection to send."""

    waiting_bytes: int = 0
    """The bytes that waited when it was measured last."""

    read_up_to: int = 0
    """Once so much of `sent_bytes` was read, the account begins anew."""

    since: float = 0.0
    """When the account began, in s."""


class AnswerBudget:
    """The accounts of all accepted connections. `now` returns the time in s."""

    def __init__(self, max_bytes: int, now: Callable[[], float]) -> None:
        self._max_bytes: Final = max_bytes
        self._now: Final = now
        self._waiting: set[Account] = set()
        self.waiting_bytes = 0
        """The bytes that all of them hold."""
        self.gone_bytes = 0
        """The bytes that have waited, and were read or dropped. Its reader sets it back."""
        self.when_relieved: Callable[[], None] = lambda: None
        """Called after peers have been closed."""

    def update(self, account: Account) -> None:
        """Measure `account`; close others, or it, if all together hold too much."""
        before, waiting = account.waiting_bytes, account.measure()
        if not before and not waiting:
            return
        self._note(account, waiting)
        if account.waiting_bytes > before and self.waiting_bytes > self._max_bytes:
            self._relieve()

    def forget(self, account: Account) -> None:
        """Take note that the connection is gone."""
        self._waiting.discard(account)
        self._add(account, -account.waiting_bytes)

    def _note(self, account: Account, waiting: int) -> None:
        if not waiting:
            if account.waiting_bytes:
                self.forget(account)
            return
        if not account.waiting_bytes or account.sent_bytes - waiting >= account.read_up_to:
            account.read_up_to, account.since = account.sent_bytes, self._now()
        self._add(account, waiting - account.waiting_bytes)
        self._waiting.add(account)

    def _add(self, account: Account, size: int) -> None:
        account.waiting_bytes += size
        self.waiting_bytes += size
        self.gone_bytes += max(0, -size)

    def _relieve(self) -> None:
        for account in list(self._waiting):
            self._note(account, account.measure())  # some of it may have been read meanwhile
        while self._waiting and self.waiting_bytes > self._max_bytes:
            slowest = min(self._waiting, key=lambda account: (account.is_voter, account.since))
            self.forget(slowest)
            slowest.close()
        self.when_relieved()
