"""Ctrl-C and SIGTERM for a process that runs a replica: it transfers leadership, flushes and closes before it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

from kraftlib.runtime.client.raft_client import RaftClient

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def run_until_signalled(client: RaftClient[Any], *, started: Callable[[], None] = lambda: None) -> None:
    """Run `client` until Ctrl-C or SIGTERM, then shut it down gracefully. Only for the main thread's loop.

    `started` is called once it runs. A second signal does what it would without us. Raises: what `start` raises, and
    ReplicaFailedError, if the replica stops itself or its state machine has failed.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        stop.set()
        _forget(loop)

    for number in SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        async with client:
            started()
            ended = asyncio.ensure_future(client.wait_closed())
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if ended.done():
                ended.result()
            ended.cancel()
    finally:
        _forget(loop)


def _forget(loop: asyncio.AbstractEventLoop) -> None:
    for number in SIGNALS:
        loop.remove_signal_handler(number)
