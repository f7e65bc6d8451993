"""An access over which everything goes wrong that may, and clients on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from kraftlib.coordination.access import Done
from kraftlib.coordination.commands import decode, encode, encode_command
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.coordination.messages import Answer, Ask, Expire, Question
from kraftlib.errors import OutcomeUnknownError, UnavailableError
from kraftlib.recipes.face import Recipes


class Troubled(MemoryAccess):
    """Sends calls twice, loses answers and sends again, and can be cut off."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self.chance = None if seed is None else random.Random(seed)
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.calls = 0

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        self.calls += 1
        if not self.reachable.is_set():
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    await self.reachable.wait()
            except TimeoutError:
                raise UnavailableError("no leader within the timeout") from None
        if self.chance is None:
            return await super().call(command, timeout_ms=timeout_ms)
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            await super().call(command, timeout_ms=timeout_ms)  # the answer is lost
            for _ in range(self.chance.randrange(3)):
                await asyncio.sleep(0)
        return await super().call(command, timeout_ms=timeout_ms)

    def end_session(self, session: UUID, renewed: int | None = None) -> None:
        """Let a session expire now."""
        live = self.machine._state.sessions.live.get(session)
        if live is not None:
            row = Expire.SessionRow(session=session, renewed=live.renewed if renewed is None else renewed)
            self._append(encode_command(Expire(epoch=self.epoch, sessions=(row,))))

    def bids(self, lock: str) -> list[Answer.Row]:
        question = Question(ask=Ask.LOCK, name=lock)
        return list(decode(Answer, self.machine.query(encode(question))).rows)


class Late(Troubled):
    """Applies calls at once, and answers as long as `late` is set only after a while."""

    late = False

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        done = await super().call(command, timeout_ms=timeout_ms)
        if self.late:
            await asyncio.sleep(0.2)
        return done

    def keys(self, prefix: str) -> list[str]:
        return list(self.machine._state.keys.with_prefix(prefix))


@asynccontextmanager
async def cancelled_in_between(access: Late) -> AsyncIterator[None]:
    """A body that is cancelled after its record and before the answer."""
    access.late = True
    try:
        async with asyncio.timeout(0.05):
            yield
    except TimeoutError:
        return
    finally:
        access.late = False
    raise AssertionError("the body has ended before it was cancelled")


class Silent(Troubled):
    """Applies the next `swallow` calls and tells nobody."""

    swallow = 0

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        done = await super().call(command, timeout_ms=timeout_ms)
        if self.swallow > 0:
            self.swallow -= 1
            raise OutcomeUnknownError("nobody answered")
        return done


@asynccontextmanager
async def clients(
    count: int, *, access: Troubled | None = None, ttl_ms: int = 10_000
) -> AsyncIterator[tuple[Troubled, list[Recipes]]]:
    """Clients w0, w1, … on one access."""
    async with AsyncExitStack() as stack:
        access = await stack.enter_async_context(access or Troubled())  # type: ignore[arg-type]
        kraft = [
            await stack.enter_async_context(Recipes(access, owner=f"w{n}", ttl_ms=ttl_ms, timeout_ms=2_000))
            for n in range(count)
        ]
        yield access, kraft
