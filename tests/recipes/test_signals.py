"""A process that is told to end releases what it holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib.recipes.signals import ExitAtSigterm

ROOT = Path(__file__).resolve().parent.parent.parent

TASKS = """
import asyncio
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.recipes.face import Recipes

async def main():
    async with MemoryAccess() as access:
        try:
            async with Recipes(access) as kraft, kraft.lock("x"):
                print("holds", flush=True)
                await asyncio.sleep(60)
        finally:
            print([row.name for row in access.machine._state.locks.bids("lock/x")], flush=True)

asyncio.run(main())
"""

THREADS = """
import time
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.recipes.blocking import Recipes

access = MemoryAccess()
try:
    with Recipes(access) as kraft, kraft.lock("x"):
        print("holds", flush=True)
        time.sleep(60)
finally:
    print([row.name for row in access.machine._state.locks.bids("lock/x")], flush=True)
"""


@pytest.mark.parametrize("program", [TASKS, THREADS], ids=["tasks", "threads"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, {143}), (signal.SIGINT, {1, 130, -signal.SIGINT})])
def test_a_signal_ends_the_body_and_the_bid_is_released(program: str, number: int, status: set[int]) -> None:
    # A process that is started in the background ignores Ctrl-C, unless it is told not to.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + program
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "holds\n"
            child.send_signal(number)
            output, errors = child.communicate(timeout=30)
        finally:
            child.kill()
    assert output == "[]\n", errors
    assert child.returncode in status, errors


def test_a_handler_that_is_set_within_the_block_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with ExitAtSigterm():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with ExitAtSigterm():
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
