"""The callers of a node that wait for a leader, a snapshot, or work on the loop, such as a change of voters.

Each has a promise, which is settled once: with the result, or with the error by which the node ends. Callers that wait
for a commit or an applied record are in `kraftlib.runtime.waiters` and `kraftlib.runtime.offset_waiters`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from kraftlib.errors import ClosedError
from kraftlib.runtime.waiters import Post, Promise, Settled, settle
from kraftlib.types import Epoch, LeaderAndEpoch, OffsetAndEpoch


class Callers:
    """The waiting callers of one node. `post` settles promises on the loop of the callers."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._leader_waiters: list[tuple[Epoch, Promise]] = []
        self._snapshot_waiters: dict[int, Promise] = {}
        self._snapshot_numbers = itertools.count()
        self._work: dict[Promise, asyncio.Task[Any]] = {}
        """Changes of voters and forwarded appends that are under way."""
        self._ended_by: Callable[[], BaseException] | None = None
        """The error for callers while the node ends; None while it does not."""

    @property
    def have_ended(self) -> bool:
        """Whether callers are told of the end."""
        return self._ended_by is not None

    @property
    def leader_waiters(self) -> int:
        """Number of callers that wait for a leader."""
        return len(self._leader_waiters)

    @property
    def working(self) -> int:
        """Number of callers that wait for work on the loop."""
        return len(self._work)

    # --- a leader ----------------------------------------------------------------------------------------------------

    def wait_for_leader(self, promise: Promise, known: LeaderAndEpoch, *, after_epoch: Epoch) -> None:
        """Settle `promise` with the leader and its epoch, as soon as there is one of an epoch after this."""
        if known.leader_id is not None and known.epoch > after_epoch:
            self._post(settle, [(promise, known, None)])
        else:
            self._leader_waiters.append((after_epoch, promise))

    def leader_known(self, leader: LeaderAndEpoch) -> None:
        """Settle the promises of callers that wait for this leader."""
        if leader.leader_id is not None and self._leader_waiters:
            outcomes: list[Settled] = [
                (promise, leader, None) for after_epoch, promise in self._leader_waiters if leader.epoch > after_epoch
            ]
            self._leader_waiters = [waiter for waiter in self._leader_waiters if leader.epoch <= waiter[0]]
            self._post(settle, outcomes)

    # --- a snapshot --------------------------------------------------------------------------------------------------

    def wait_for_snapshot(
        self, promise: Promise, create: Callable[[Callable[[OffsetAndEpoch | None, BaseException | None], None]], None]
    ) -> None:
        """Settle `promise` with the result of `create`: the id of a snapshot, or an error."""
        number = next(self._snapshot_numbers)

        def done(snapshot_id: OffsetAndEpoch | None, error: BaseException | None) -> None:
            if self._snapshot_waiters.pop(number, None) is not None:
                self._post(settle, [(promise, snapshot_id, error)])

        self._snapshot_waiters[number] = promise
        try:
            create(done)
        except BaseException:
            del self._snapshot_waiters[number]
            raise

    # --- work on the loop --------------------------------------------------------------------------------------------

    def run(
        self,
        promise: Promise,
        work: Coroutine[Any, Any, Any],
        done: Callable[[BaseException | None], None] = lambda error: None,
    ) -> None:
        """Settle `promise` with the outcome of `work`, which is cancelled if the node ends or the caller has gone."""
        doing = asyncio.ensure_future(work)
        self._work[promise] = doing

        def settled(task: asyncio.Task[Any]) -> None:
            del self._work[promise]
            ended = self._ended_by or (lambda: ClosedError("the caller that asked for it has gone"))
            error = ended() if task.cancelled() else task.exception()
            done(error)
            self._post(settle, [(promise, None if error is not None else task.result(), error)])

        doing.add_done_callback(settled)

    # --- their end ---------------------------------------------------------------------------------------------------

    def cancel_work_for(self, promise: Promise) -> None:
        """Cancel the work of a caller that does not wait any more."""
        task = self._work.get(promise)
        if task is not None:
            task.cancel()

    def forget_gone(self) -> None:
        """Forget the callers that do not wait for a leader any more."""
        self._leader_waiters = [waiter for waiter in self._leader_waiters if not waiter[1].done()]

    def fail(self, error_of: Callable[[], BaseException]) -> None:
        """Settle all promises with an error; those of work once it was cancelled. The first error stands."""
        self._ended_by = self._ended_by or error_of
        for task in self._work.values():
            task.cancel()
        waiting = [*(promise for _, promise in self._leader_waiters), *self._snapshot_waiters.values()]
        outcomes: list[Settled] = [(promise, None, error_of()) for promise in waiting]
        self._leader_waiters.clear()
        self._snapshot_waiters.clear()
        if outcomes:
            self._post(settle, outcomes)

    async def finish_work(self) -> None:
        """Wait until work that was cancelled has ended."""
        if self._work:
            await asyncio.wait(self._work.values())
