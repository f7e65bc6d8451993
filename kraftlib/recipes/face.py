"""`Recipes`: the recipes of one client, by name, on one session."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from kraftlib.coordination.access import Access
from kraftlib.coordination.arguments import check_name, check_text, check_whole
from kraftlib.coordination.commands import TTL_MS_MAX, TTL_MS_MIN
from kraftlib.recipes.counting import Barrier, Counter, DoubleBarrier
from kraftlib.recipes.groups import LockingQueue, Party, Queue
from kraftlib.recipes.locks import Election, Lease, Lock, RWLock, Semaphore
from kraftlib.recipes.map import ReplicatedMap
from kraftlib.recipes.session import Session
from kraftlib.recipes.sessions import SharedSession
from kraftlib.recipes.signals import ExitAtSigterm
from kraftlib.validators import check_whole_timeout

TTL_MS: Final = 10_000
TIMEOUT_MS: Final = 30_000


class Recipes:
    """The recipes by which a service coordinates itself, over any access.

        async with Recipes(access) as kraft:
            async with kraft.election("scheduler") as term: ...

    Locks and ephemeral keys live as long as the session: `ttl_ms` after this process was last heard of, it ends. If it
    has ended while the process lives on, its terms are lost, and the next call opens another one.

    Within the block, SIGTERM ends the task that has entered it as Ctrl-C does, unless the process has its own handler.
    """

    def __init__(self, access: Access, *, owner: str = "", ttl_ms: int = TTL_MS, timeout_ms: int = TIMEOUT_MS) -> None:
        """`owner` names this process to others. `timeout_ms` is how long a call looks for a leader."""
        check_text("owner", owner)
        check_whole("ttl_ms", ttl_ms, least=TTL_MS_MIN, most=TTL_MS_MAX)
        check_whole_timeout(timeout_ms, least=1)
        self._sessions = SharedSession(access, ttl_ms=ttl_ms, owner=owner, timeout_ms=timeout_ms)
        self._sigterm = ExitAtSigterm()

    async def session(self) -> Session:
        """Return the session, which tells how sure it is to be alive."""
        return await self._sessions.get()

    async def close(self) -> None:
        """End the session, and with it all that it holds. The access stays open."""
        await self._sessions.close()

    async def __aenter__(self) -> Recipes:
        try:
            await self._sessions.get()
        except BaseException:
            await self._sessions.end()  # a session that is opened after this would be renewed for ever
            raise
        self._sigterm.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            self._sigterm.__exit__(kind, error, trace)

    # --- recipes -----------------------------------------------------------------------------------------------------

    def election(self, name: str, *, identity: str = "") -> Election:
        """One leader at a time, with a fencing token."""
        return Election(self._sessions, check_name(name), identity=identity)

    def lock(self, name: str) -> Lock:
        """One holder at a time."""
        return Lock(self._sessions, check_name(name))

    def rwlock(self, name: str) -> RWLock:
        """Many readers or one writer."""
        return RWLock(self._sessions, check_name(name))

    def semaphore(self, name: str, *, limit: int, permits: int = 1) -> Semaphore:
        """At most `limit` permits at a time."""
        return Semaphore(self._sessions, check_name(name), limit=limit, permits=permits)

    def lease(self, name: str) -> Lease:
        """A lock that is had at once or not at all."""
        return Lease(self._sessions, check_name(name))

    def map(self, name: str) -> ReplicatedMap:
        """Keys and values, with revisions, transactions and watches."""
        return ReplicatedMap(self._sessions, check_name(name))

    def counter(self, name: str) -> Counter:
        """A number to which each addition counts once."""
        return Counter(self._sessions, check_name(name))

    def barrier(self, name: str) -> Barrier:
        """Holds up all that wait for it."""
        return Barrier(self._sessions, check_name(name))

    def double_barrier(self, name: str, *, size: int) -> DoubleBarrier:
        """`size` processes begin together and end together."""
        return DoubleBarrier(self._sessions, check_name(name), size=size)

    def party(self, name: str, *, identity: str = "") -> Party:
        """A group whose members see each other."""
        return Party(self._sessions, check_name(name), identity=identity)

    def queue(self, name: str) -> Queue:
        """First in, first out."""
        return Queue(self._sessions, check_name(name))

    def locking_queue(self, name: str) -> LockingQueue:
        """A queue whose items are removed only when their work is done."""
        return LockingQueue(self._sessions, check_name(name))
