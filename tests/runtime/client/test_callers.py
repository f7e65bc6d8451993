"""The callers of a node. `test_node` and `test_voter_changes` have what they wait for."""

from __future__ import annotations

import asyncio

from kraftlib.runtime.client.callers import Callers
from kraftlib.runtime.waiters import call_here


async def test_a_caller_that_has_gone_costs_no_look_at_the_others() -> None:
    looks = 0

    class Watched(asyncio.Future[None]):
        def done(self) -> bool:
            nonlocal looks
            looks += 1
            return super().done()

    callers, promises = Callers(call_here), [Watched() for _ in range(1_000)]
    for promise in promises:
        callers.run(promise, asyncio.sleep(60))
    for promise in promises[:-1]:
        promise.cancel()
        callers.cancel_work_for(promise)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert callers.working == 1
    assert looks < 10 * len(promises)
    callers.cancel_work_for(promises[-1])
    await callers.finish_work()
    assert promises[-1].exception() is not None
