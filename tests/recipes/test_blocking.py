"""The recipes for threads are those for tasks: same names, same signatures, same outcomes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from kraftlib.coordination.access import Change
from kraftlib.errors import ClosedError, ConfigError, FencedError, OutcomeUnknownError, SessionEndedError, TermLostError
from kraftlib.recipes import blocking, face
from kraftlib.recipes.map import MapChange
from kraftlib.types import Offset
from tests.recipes.world import Troubled
from tests.runtime.client.ending_loop import EndingLoop
from tests.runtime.quorum import PATIENCE_S


def public(cls: type) -> dict[str, Any]:
    """The methods of a class, those of its bases included."""
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name != "bind"
    }


PAIRS = [(face.Recipes, blocking.Recipes), *blocking.FACES.items()]


@pytest.mark.parametrize(("ours", "threads"), PAIRS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_both_faces_have_the_same_names_and_signatures(ours: type, threads: type) -> None:
    assert set(public(threads)) == set(public(ours))
    for name, method in public(ours).items():
        assert inspect.signature(public(threads)[name]) == inspect.signature(method)
    assert hasattr(threads, "__enter__") == hasattr(ours, "__aenter__")


def test_both_are_made_alike() -> None:
    assert inspect.signature(blocking.Recipes) == inspect.signature(face.Recipes)
    made = {name for name in public(face.Recipes) if name not in ("close", "session")}
    assert made == set(
        "election lock rwlock semaphore lease map counter barrier double_barrier party queue locking_queue".split()
    )


@pytest.fixture
def access() -> Troubled:
    return Troubled(seed=4)


@pytest.fixture
def kraft(access: Troubled) -> Iterator[Any]:
    with blocking.Recipes(access, owner="w0") as kraft:
        yield kraft
    assert not [thread for thread in threading.enumerate() if thread.name == "kraftlib-recipes"]


def test_threads_hold_a_lock_one_after_the_other(kraft: Any) -> None:
    lock, counter = kraft.lock("x"), kraft.counter("n")
    inside = 0
    tokens = []

    def work(_: int) -> None:
        nonlocal inside
        with lock as term:
            inside += 1
            assert inside == 1
            tokens.append(term.token)
            assert term.is_valid()
            counter.add()
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert counter.value() == 40
    assert len(set(tokens)) == 40
    assert kraft.rwlock("x").reader.try_acquire().token > max(tokens)


def test_a_term_fences_a_write_and_a_lost_one_is_told_at_the_end(kraft: Any, access: Troubled) -> None:
    settings = kraft.map("settings")
    with pytest.raises(TermLostError), kraft.election("x") as term:  # noqa: PT012
        first = settings.put("k", b"1", fence=term)
        session = kraft.session()
        kraft._loop._loop.call_soon_threadsafe(access.end_session, session.id)
        kraft._loop.run(term._inner.wait_lost())
        assert not term.is_valid()
        with pytest.raises((FencedError, SessionEndedError)):
            settings.put("k", b"2", fence=term)
    change = next(settings.watch("k", since=first - 1))
    assert change == MapChange(first, "k", b"1")


def test_a_block_gives_back_what_it_took(kraft: Any) -> None:
    queue = kraft.locking_queue("x")
    queue.put(b"item")
    with pytest.raises(ZeroDivisionError), queue as claim:  # noqa: PT012
        assert claim.value == b"item"
        _ = 1 / 0
    with queue as claim, kraft.party("p", identity="a"):
        assert kraft.party("p").members() == ["a"]
    assert kraft.party("p").members() == []
    term = kraft.lease("l").take()
    with term:
        assert kraft.lease("l").take() is None
    assert kraft.lease("l").holder() is None


def test_after_the_end_a_call_says_so() -> None:
    with blocking.Recipes(Troubled()) as kraft:
        counter = kraft.counter("n")
    kraft.close()
    with pytest.raises(ClosedError):
        counter.add()


class Silent(Troubled):
    """Has no change to tell, and does not end its watches."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        self.asked.set()
        await asyncio.Event().wait()
        yield Change(0, b"")


def outcome_of(work: Callable[[], object]) -> SimpleQueue[object]:
    """Do `work` on a thread that may never end; its result, or what it raises, comes through the queue."""
    outcome: SimpleQueue[object] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            outcome.put(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def test_a_call_that_waits_is_told_when_another_thread_closes() -> None:
    access = Silent()
    with blocking.Recipes(access) as kraft:
        changes = kraft.map("m").watch()
        waits = outcome_of(lambda: next(changes))
        assert access.asked.wait(PATIENCE_S)
    assert isinstance(waits.get(timeout=PATIENCE_S), OutcomeUnknownError)


def test_a_call_that_is_handed_over_as_the_loop_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EndingLoop()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    with blocking.Recipes(Troubled()) as kraft:
        counter = kraft.counter("n")

        def add() -> object:
            loop.end_amid(kraft._loop.close)
            return counter.add()

        assert isinstance(outcome_of(add).get(timeout=PATIENCE_S), int | OutcomeUnknownError)


def test_an_iterator_that_is_collected_on_the_thread_of_the_loop_holds_nobody_up(kraft: Any) -> None:
    settings = kraft.map("m")
    first = settings.put("a", b"1")
    settings.put("a", b"2")

    def forget_in_a_cycle() -> None:
        changes = settings.watch(since=first)
        next(changes)
        cycle: list[Any] = [changes]
        cycle.append(cycle)

    gc.disable()
    try:
        forget_in_a_cycle()
        collected = threading.Event()
        kraft._loop._loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
        assert collected.wait(10)
    finally:
        gc.enable()
    assert kraft.counter("n").add() == 1


def test_in_a_child_of_this_process_a_call_says_what_to_do(kraft: Any) -> None:
    counter = kraft.counter("n")
    child = os.fork()
    if child == 0:  # no exception may leave this branch: it would go on as a second pytest
        status = 1
        signal.alarm(20)
        try:
            counter.add()
        except ConfigError as error:
            kraft.close()
            status = 0 if "after the fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counter.add() == 1
