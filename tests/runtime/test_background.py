"""The background thread ends when the replica does, in the midst of what it does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from kraftlib.errors import ClosedError
from kraftlib.runtime.background import BackgroundThread
from tests.runtime.quorum import PATIENCE_S


async def test_what_is_under_way_ends_at_its_next_step() -> None:
    background = BackgroundThread(asyncio.get_running_loop(), name="background-of-a-test")
    began = threading.Event()
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def endless() -> None:
        while True:
            began.set()
            background.step()

    background.disk.run(endless, lambda result, error: ended.set_result(error))
    assert began.wait(PATIENCE_S)
    background.cancel()

    assert isinstance(await asyncio.wait_for(ended, PATIENCE_S), ClosedError)
    assert background.close(PATIENCE_S)


async def test_closing_says_whether_all_has_ended() -> None:
    background = BackgroundThread(asyncio.get_running_loop(), name="background-of-a-test")
    go_on = threading.Event()
    background.disk.run(lambda: go_on.wait(PATIENCE_S), lambda result, error: None)

    assert not background.close(0.01)
    go_on.set()
    assert background.close(PATIENCE_S)
