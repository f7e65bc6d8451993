"""The models of map and lock: they accept what the recipes do under trouble, and find what is wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Any

import pytest

from kraftlib.coordination.access import Done
from kraftlib.coordination.locks import Locks
from kraftlib.errors import ConfigError, FencedError, SessionEndedError, TermLostError
from kraftlib.recipes.face import Recipes
from kraftlib.recipes.terms import Term
from kraftlib.testing import coordination_models as models
from kraftlib.testing.linearizability import Call, check_each, check_history
from tests.recipes.world import Troubled, clients

KEYS = ["a", "b"]


def calls(*actions: tuple[Any, Any, int, int | None]) -> list[Call]:
    return [Call(action=action, result=result, began=began, ended=ended) for action, result, began, ended in actions]


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        (calls((("grant", "a", 5), True, 0, 1), (("grant", "b", 6), True, 2, 3)), False),
        (calls((("grant", "a", 5), True, 0, 1), (("release", 5), True, 1, 3), (("grant", "b", 6), True, 2, 4)), True),
        (calls((("grant", "a", 5), True, 0, 1), (("end", "a"), True, 2, 3), (("grant", "b", 6), True, 0, 4)), True),
        (calls((("grant", "a", 5), True, 0, 1), (("end", "a"), True, 2, 3), (("grant", "b", 4), True, 4, 5)), False),
        (calls((("grant", "a", 5), True, 0, 1), (("end", "a"), True, 2, 3), (("write", 5), True, 4, 5)), False),
        (calls((("grant", "a", 5), True, 0, 1), (("end", "a"), True, 2, 3), (("write", 5), False, 4, 5)), True),
        (calls((("grant", "a", 5), True, 0, 1), (("write", 5), False, 2, 3)), False),
    ],
)
def test_a_lock_has_one_holder_growing_tokens_and_fences(history: list[Call], verdict: bool) -> None:
    assert check_history(history, models.LOCK).linearizable is verdict


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        (calls((("put", b"1", None), True, 0, 1), (("get",), None, 2, 3)), False),
        (calls((("put", b"1", "w"), True, 0, 1), (("end", "w"), True, 2, 3), (("get",), b"1", 4, 5)), False),
        (calls((("put", b"1", "w"), True, 0, 1), (("end", "v"), True, 2, 3), (("get",), b"1", 4, 5)), True),
        (calls((("swap", None, b"1"), True, 0, 5), (("swap", None, b"2"), True, 0, 5)), False),
        (calls((("put", b"1", None), True, 0, None), (("delete",), True, 2, 3), (("get",), None, 4, 5)), True),
        (calls((("delete",), True, 2, 3)), False),
    ],
)
def test_a_key_is_what_was_written_last(history: list[Call], verdict: bool) -> None:
    assert check_history(history, models.MAP_KEY).linearizable is verdict


def test_an_action_that_is_not_known_is_refused() -> None:
    for model in (models.LOCK, models.MAP_KEY):
        with pytest.raises(ConfigError):
            check_history(calls((("sing",), True, 0, 1)), model)


# Recipes whose sessions end between any two steps ---------------------------------------------------


class Recorder(Troubled):
    """Notes all calls of all clients; lets sessions expire between two records."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ends = random.Random(seed + 1)
        self.notes: list[tuple[Hashable, Call]] = []
        self.now = 0

    def tick(self) -> int:
        self.now += 1
        return self.now

    def note(self, thing: Hashable, action: Any, result: Any, began: int, *, known: bool = True) -> None:
        ended = self.tick() if known else None
        self.notes.append((thing, Call(action=action, result=result, began=began, ended=ended)))

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        if self.ends.random() < 0.08:
            began = self.tick()
            session = self.ends.choice(list(self.machine._state.sessions.live.values()) or [None])
            if session is not None:
                self.end_session(session.id)
                for thing in [*KEYS, "lock"]:
                    self.note(thing, ("end", session.owner), True, began)
        return await super().call(command, timeout_ms=timeout_ms)


async def use_map(access: Recorder, kraft: Recipes, owner: str, chance: random.Random, value: bytes) -> None:
    key, settings = chance.choice(KEYS), kraft.map("m")
    began = access.tick()
    match chance.randrange(5):
        case 0 | 1:
            action: Any = ("put", value, owner if chance.random() < 0.5 else None)
            work: Any = settings.put(key, value, ephemeral=action[2] is not None)
        case 2:
            action, work = ("delete",), settings.delete(key)
        case 3:
            entry = await settings.get(key)
            access.note(key, ("get",), entry and entry.value, began)
            return
        case _:
            entry = await settings.get(key)
            action = ("swap", entry and entry.value, value)
            work = settings.compare_and_set(key, expect=-1 if entry is None else entry.value, value=value)
    try:
        result = await work
    except SessionEndedError:
        access.note(key, action, None, began, known=False)
    else:
        access.note(key, action, result if action[0] == "delete" else result is not None, began)


async def use_lock(access: Recorder, kraft: Recipes, owner: str, chance: random.Random) -> None:
    began = access.tick()
    try:
        async with kraft.lock("x") as term:
            access.note("lock", ("grant", owner, term.token), True, began)
            for _ in range(chance.randrange(3)):
                await write(access, kraft, term)
            ending = access.tick()
    except SessionEndedError:
        return
    except TermLostError:
        await write(access, kraft, term)
        return
    access.note("lock", ("release", term.token), True, ending)
    await write(access, kraft, term)


async def write(access: Recorder, kraft: Recipes, term: Term) -> None:
    """Write with the fence of a term, which may be over."""
    began = access.tick()
    try:
        await kraft.map("guarded").put("k", b"", fence=term)
    except FencedError:
        access.note("lock", ("write", term.token), False, began)
    except SessionEndedError:
        access.note("lock", ("write", term.token), None, began, known=False)
    else:
        access.note("lock", ("write", term.token), True, began)


async def run(seed: int) -> Recorder:
    access = Recorder(seed)
    async with clients(3, access=access) as (_, kraft):

        async def work(at: int) -> None:
            chance = random.Random(seed * 10 + at)
            for number in range(12):
                if chance.random() < 0.4:
                    await use_lock(access, kraft[at], f"w{at}", chance)
                else:
                    await use_map(access, kraft[at], f"w{at}", chance, b"%d-%d" % (at, number))

        await asyncio.wait_for(asyncio.gather(*[work(at) for at in range(3)]), 30)
    return access


def judged(access: Recorder) -> list[bool | None]:
    """The verdict on each key, and on the lock."""
    verdicts = []
    for thing, model in [*((key, models.MAP_KEY) for key in KEYS), ("lock", models.LOCK)]:
        history = [call for noted, call in access.notes if noted == thing]
        verdicts.append(check_each(history, model, lambda call: 0).linearizable)
    return verdicts


@pytest.mark.parametrize("seed", range(25))
async def test_what_callers_are_told_is_linearizable_whenever_sessions_end(seed: int) -> None:
    access = await run(seed)
    assert judged(access) == [True, True, True]


async def test_such_runs_end_sessions_of_holders_and_refuse_late_writes() -> None:
    seen = [call for seed in range(8) for _, call in (await run(seed)).notes]
    assert any(call.action[0] == "end" for call in seen)
    assert any(call.action[0] == "write" and call.result is False for call in seen)


async def test_a_machine_that_does_not_compare_fences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "is_held", lambda self, name, token: True)
    assert any([False in judged(await run(seed)) for seed in range(25)])


async def test_a_machine_that_keeps_the_keys_of_ended_sessions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlib.coordination.keys.Keys.end_session", lambda self, session, offset: None)
    assert any([False in judged(await run(seed)) for seed in range(25)])
