"""Connections are accepted in turns, and none is lost at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

from kraftlib.runtime.net.acceptor import A_TURN, Acceptor
from kraftlib.runtime.net.notices import Notices


async def test_a_flood_is_accepted_in_turns_and_what_comes_after_the_stop_is_not() -> None:
    loop, taken = asyncio.get_running_loop(), contextlib.ExitStack()
    turns: list[int] = []
    with taken, socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.setblocking(False)

        def admit(accepted: socket.socket, address: object) -> None:
            taken.enter_context(accepted)
            turns[-1] += 1

        callers = [taken.enter_context(socket.socket()) for _ in range(3 * A_TURN)]
        for caller in callers:
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(listener.getsockname())
        acceptor = Acceptor(listener, admit, loop=loop, notices=Notices(logging.getLogger("test"), loop.time))
        async with asyncio.timeout(30):
            while sum(turns) < len(callers):
                turns.append(0)
                await asyncio.sleep(0)
        assert max(turns) <= 2 * A_TURN  # the loop may have come to it twice between two looks
        acceptor.stop()
        acceptor.stop()
        with socket.create_connection(listener.getsockname()):
            turns.append(0)
            await asyncio.sleep(0.05)
            assert turns[-1] == 0
