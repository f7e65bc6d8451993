"""An engine always ends its node: whoever has started or closed a client may be cancelled, and nothing is left."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ClosedError, DirectoryInUseError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.runtime.committed import BatchReader, CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import FrameReceiver
from kraftlib.storage.lock import DirectoryLock
from kraftlib.types import Endpoint, LeaderAndEpoch
from tests.runtime.quorum import PATIENCE_S, PLACE, alone, until

ENGINES = pytest.mark.parametrize("engine", ["inline", "thread"])


class Gate:
    """Holds whoever passes until it is opened, on whichever loop."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        if is_open:
            self.opened.set()

    async def passed(self) -> None:
        self.reached.set()
        await until(self.opened.is_set)


async def test_a_client_that_got_no_thread_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = alone(engine="thread")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await client.start()
    async with asyncio.timeout(PATIENCE_S):
        await client.close()


def test_a_close_does_not_wait_for_a_loop_that_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for an append there."""
    client = alone(engine="thread")

    async def begin() -> None:
        await client.start()
        await client.wait_for_leader(timeout_ms=10_000)
        await client.append_one(b"value")

    asyncio.run(begin())
    asyncio.run(client.close())
    assert "did not end within" not in caplog.text


class GatedTransport(MemoryTransport):
    def __init__(self, *, start: Gate, close: Gate) -> None:
        super().__init__(MemoryHub(), PLACE)
        self._start_gate, self._close_gate = start, close

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        await self._start_gate.passed()
        return await super().start(receiver)

    async def close(self) -> None:
        await self._close_gate.passed()
        await super().close()


class Rig:
    """A client whose transport starts and closes when it is let."""

    def __init__(self, directory: Path, engine: str, *, start: bool = True, close: bool = True, **more: Any) -> None:
        self.start, self.close = Gate(is_open=start), Gate(is_open=close)
        self.directory = directory / "replica"
        transport = GatedTransport(start=self.start, close=self.close)
        self.client = alone({"transport": transport, **more}, directory=self.directory, engine=engine)

    @property
    def is_given_back(self) -> bool:
        """Whether nobody holds the directory, and no thread runs."""
        try:
            DirectoryLock.acquire(self.directory).release()
        except DirectoryInUseError:
            return False
        return not [thread for thread in threading.enumerate() if thread.name.startswith("kraftlib")]


@pytest.fixture
def rig(tmp_path: Path) -> Callable[..., Rig]:
    return lambda engine, **more: Rig(tmp_path, engine, **more)


@ENGINES
async def test_a_cancelled_start_leaves_nothing(rig: Callable[..., Rig], engine: str) -> None:
    held = rig(engine, start=False)
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(held.client.start())
        await until(held.start.reached.is_set)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert held.is_given_back
        await held.client.close()
        await held.client.wait_closed()
        with pytest.raises(ClosedError):
            await held.client.append_one(b"value")


@ENGINES
@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_cancelled_at_any_turn_leaves_nothing(
    rig: Callable[..., Rig], engine: str, turns: int
) -> None:
    held = rig(engine)
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(held.client.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait((starting,))
        await held.client.shutdown(timeout_ms=0)
        await until(lambda: held.is_given_back)


@ENGINES
async def test_a_start_that_is_cancelled_when_it_is_done_leaves_nothing(rig: Callable[..., Rig], engine: str) -> None:
    """Its caller has not heard yet that it has succeeded, and hears that it was cancelled."""

    class Cancelling(Listener):
        def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
            host.call_soon_threadsafe(starting.cancel) if engine == "thread" else starting.cancel()

    held, host = rig(engine, listener=Cancelling()), asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(held.client.start())
        await asyncio.wait((starting,))
        assert starting.cancelled()
        await until(lambda: held.is_given_back)
        await held.client.wait_closed()


@ENGINES
async def test_a_client_that_is_closed_while_it_starts_says_so(rig: Callable[..., Rig], engine: str) -> None:
    held = rig(engine, start=False)
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(held.client.start())
        await until(held.start.reached.is_set)
        await held.client.close()
        with pytest.raises(ClosedError, match="while it was starting"):
            await starting
        assert held.is_given_back


@ENGINES
async def test_a_client_that_is_closed_before_it_is_started_never_runs(rig: Callable[..., Rig], engine: str) -> None:
    held = rig(engine)
    async with asyncio.timeout(PATIENCE_S):
        starting = asyncio.create_task(held.client.start())  # it has not had its turn yet
        await held.client.close()
        with pytest.raises(ClosedError, match="closed before it was started"):
            await starting
        assert held.is_given_back


@ENGINES
async def test_the_end_goes_on_when_whoever_closes_is_cancelled(rig: Callable[..., Rig], engine: str) -> None:
    held = rig(engine, close=False)
    async with asyncio.timeout(PATIENCE_S):
        await held.client.start()
        closing = asyncio.create_task(held.client.shutdown(timeout_ms=0))
        await until(held.close.reached.is_set)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not held.is_given_back
        again = asyncio.create_task(held.client.close())
        waiting = asyncio.create_task(held.client.wait_closed())
        await asyncio.sleep(0.05)
        assert not again.done(), "the end is not there yet"
        assert not waiting.done()

        held.close.opened.set()
        await again
        await waiting
        assert held.is_given_back


@ENGINES
async def test_a_close_that_is_cancelled_and_never_repeated_still_ends(rig: Callable[..., Rig], engine: str) -> None:
    held = rig(engine)
    async with asyncio.timeout(PATIENCE_S):
        await held.client.start()
        closing = asyncio.create_task(held.client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        await held.client.wait_closed()
        await until(lambda: held.is_given_back)


async def test_a_host_that_closes_in_its_next_loop_is_understood(rig: Callable[..., Rig]) -> None:
    """`asyncio.run(start)` and later `asyncio.run(close)`: the thread does not mind."""
    held = rig("thread")
    await asyncio.to_thread(asyncio.run, held.client.start())
    await asyncio.to_thread(asyncio.run, held.client.shutdown(0))
    assert held.is_given_back


@ENGINES
async def test_what_was_got_from_a_client_may_be_finished_after_its_end(rig: Callable[..., Rig], engine: str) -> None:
    """A reader, a hold, a snapshot: they are given back in a `finally`, and the loop may have ended."""

    class Holding(Listener):
        reader: BatchReader | None = None

        def handle_commit(self, reader: BatchReader) -> None:
            reader.hold()
            self.reader = reader

    listener, held = Holding(), rig(engine)
    async with asyncio.timeout(PATIENCE_S):
        await held.client.start()
        held.client.register(listener)
        await held.client.wait_for_leader()
        appended = await held.client.append_one(b"value")
        await until(lambda: listener.reader is not None)
        hold = held.client.hold_log("feed")
        snapshot = held.client.begin_snapshot(offset=appended.last_offset + 1)
        await held.client.shutdown(timeout_ms=0)
    assert listener.reader is not None
    listener.reader.close()
    hold.release()
    assert snapshot.freeze().offset == appended.last_offset + 1


async def test_a_callback_that_ends_the_loop_of_the_replica_fails_it_and_everybody_is_told(tmp_path: Path) -> None:
    """SystemExit in a callback ends an event loop, and with it the engine's thread."""

    class Ending(StateMachine):
        def apply(self, record: CommittedRecord) -> None:
            if record.value == b"end":
                asyncio.get_running_loop().call_soon(sys.exit, 3)

        def snapshot(self) -> Iterable[bytes]:
            return []

        def restore(self, values: Iterable[bytes]) -> None:
            pass

    directory = tmp_path / "replica"
    client = alone({"state_machine": Ending()}, directory=directory, engine="thread")
    async with asyncio.timeout(PATIENCE_S):
        await client.start()
        await client.wait_for_leader()
        waiting = asyncio.create_task(client.wait_for_offset(1_000_000))
        await client.append_one(b"end")
        with pytest.raises(ReplicaFailedError, match="ended by a callback"):
            await waiting
        with pytest.raises(ReplicaFailedError):
            await client.wait_closed()
        with pytest.raises((ClosedError, ReplicaFailedError, OutcomeUnknownError)):
            await client.append_one(b"after")
        await client.close()
        assert "ended by a callback" in (client.status().failure or "")
    DirectoryLock.acquire(directory).release()
