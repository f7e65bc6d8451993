"""Passwords that arrive (PLAIN) are checked in one thread of their own: milliseconds of work for each, at the wish of
any peer.

The event loop never does that work, one thread bounds it to a core, and its queue is short. Wrong passwords cost
tokens, of their address and of all addresses together; a peer that has none left is refused without work, until time
has given some back. Tokens are looked at when a password comes and again when its turn comes, so that those which wait
together cost no more than those which come one by one. Addresses of voters, and those that have logged in before, are
not refused for the failures of others: else a flood of wrong passwords would keep every voter out of a replica that was
started again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from kraftlib.frozen import define

V = TypeVar("V")
Then = Callable[[bool | None], None]

QUEUE_MAX: Final = 64
"""Checks that wait or are under way."""

ADDRESS_FAILURES: Final = 10
ADDRESS_FAILURES_PER_S: Final = 1.0
"""Wrong passwords of one address: the number allowed at once, and per second."""

FAILURES: Final = 50
FAILURES_PER_S: Final = 10.0
"""Wrong passwords of all addresses together."""

ADDRESSES_MAX: Final = 1_024
"""Addresses that are remembered."""


@define
class _Tokens:
    per_s: float
    most: float
    left: float
    at: float

    def look(self, now: float) -> bool:
        """Whether there is a token."""
        self.left, self.at = min(self.most, self.left + (now - self.at) * self.per_s), now
        return self.left >= 1


class PasswordChecks:
    """The checks of one server. All but the check itself is on its event loop. `is_voter_host` as for `Admission`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, is_voter_host: Callable[[str], bool] = lambda host: False
    ) -> None:
        self._loop: Final = loop
        self._is_voter_host: Final = is_voter_host
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="kraftlib-passwords")
        self._waiting: Final[deque[tuple[str, Callable[[], bool], Then]]] = deque()
        self._is_checking = False
        self._is_closed = False
        self._all: Final = _Tokens(FAILURES_PER_S, FAILURES, FAILURES, loop.time())
        self._failed: Final[OrderedDict[str, _Tokens]] = OrderedDict()
        self._known: Final[OrderedDict[str, None]] = OrderedDict()

    def submit(self, host: str, check: Callable[[], bool], then: Then) -> None:
        """Have a password checked, and tell `then` whether it is right; None: it was refused without a look."""
        if len(self._waiting) + self._is_checking >= QUEUE_MAX or not self._may_fail(host):
            then(None)
            return
        self._waiting.append((host, check, then))
        self._check_next()

    def close(self) -> None:
        """Check nothing more."""
        self._is_closed = True
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _check_next(self) -> None:
        while self._waiting and not (self._is_checking or self._is_closed):
            host, check, then = self._waiting.popleft()
            if not self._may_fail(host):
                then(None)  # the tokens were used up while it waited
                continue
            self._is_checking = True
            self._loop.run_in_executor(self._thread, check).add_done_callback(partial(self._checked, host, then))

    def _checked(self, host: str, then: Then, future: asyncio.Future[bool]) -> None:
        self._is_checking = False
        try:
            if not future.cancelled():
                self._note(host, is_right=future.result())
                then(future.result())
        finally:
            self._check_next()

    def _may_fail(self, host: str) -> bool:
        """Whether there is a token for a wrong password of this address."""
        now = self._loop.time()
        failed = self._failed.get(host)
        may_fail = failed is None or failed.look(now)
        if self._all.look(now):
            return may_fail
        return may_fail and (host in self._known or self._is_voter_host(host))

    def _note(self, host: str, *, is_right: bool) -> None:
        if is_right:
            _remember(self._known, host, None)
            return
        now = self._loop.time()
        tokens = self._failed.get(host) or _Tokens(ADDRESS_FAILURES_PER_S, ADDRESS_FAILURES, ADDRESS_FAILURES, now)
        for each in (tokens, self._all):
            each.look(now)
            each.left = max(0.0, each.left - 1)
        _remember(self._failed, host, tokens)


def _remember(known: OrderedDict[str, V], host: str, value: V) -> None:
    known[host] = value
    known.move_to_end(host)
    if len(known) > ADDRESSES_MAX:
        known.popitem(last=False)
