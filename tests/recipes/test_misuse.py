"""What the recipes cannot work with is refused by its name, its value and a remedy, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.coordination.access import STALE, AtLeast
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.errors import ConfigError
from kraftlib.recipes import blocking
from kraftlib.recipes.face import Recipes
from kraftlib.recipes.map import At, Delete, Get, Is, Put
from tests.recipes.world import Troubled, clients

MADE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda kraft: kraft.lock(5), "name=5"),
    (lambda kraft: kraft.lock(""), "name=''"),
    (lambda kraft: kraft.map(None), "name=None"),
    (lambda kraft: kraft.queue(b"bytes"), "name=b'bytes'"),
    (lambda kraft: kraft.counter("\ud800"), "UTF-8"),
    (lambda kraft: kraft.election("e", identity=5), "identity=5"),
    (lambda kraft: kraft.party("p", identity=None), "identity=None"),
    (lambda kraft: kraft.semaphore("s", limit="5"), "limit='5'"),
    (lambda kraft: kraft.semaphore("s", limit=0), "limit=0"),
    (lambda kraft: kraft.semaphore("s", limit=True), "limit=True"),
    (lambda kraft: kraft.semaphore("s", limit=2, permits=3), "permits=3"),
    (lambda kraft: kraft.semaphore("s", limit=2, permits="1"), "permits='1'"),
    (lambda kraft: kraft.double_barrier("d", size="2"), "size='2'"),
    (lambda kraft: kraft.double_barrier("d", size=True), "size=True"),
    (lambda kraft: kraft.double_barrier("d", size=10**6), "size=1000000"),
]
"""What cannot be made, and a part of what is said."""

ASKED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda kraft: kraft.map("m").get(5), "key=5"),
    (lambda kraft: kraft.map("m").get("k", consistency="stale"), "consistency='stale'"),
    (lambda kraft: kraft.map("m").get("k", consistency=None), "consistency=None"),
    (lambda kraft: kraft.map("m").get("k", consistency=7), "consistency=7"),
    (lambda kraft: kraft.map("m").get("k", consistency=AtLeast), "consistency=<class"),
    (lambda kraft: kraft.map("m").get("k", consistency=AtLeast("5")), "AtLeast.offset='5'"),  # type: ignore[arg-type]
    (lambda kraft: kraft.map("m").get("k", consistency=AtLeast(True)), "AtLeast.offset=True"),
    (lambda kraft: kraft.map("m").peek(b"k"), "key=b'k'"),
    (lambda kraft: kraft.map("m").range(5), "prefix=5"),
    (lambda kraft: kraft.map("m").range(after=5), "after=5"),
    (lambda kraft: kraft.map("m").range(most="5"), "most='5'"),
    (lambda kraft: kraft.map("m").range(most=0), "most=0"),
    (lambda kraft: kraft.map("m").range(consistency="stale"), "consistency='stale'"),
    (lambda kraft: kraft.map("m").state(None), "prefix=None"),
    (lambda kraft: kraft.map("m").history(5), "key=5"),
    (lambda kraft: kraft.map("m").history("k", since="5"), "since='5'"),
    (lambda kraft: kraft.map("m").history("k", since=None), "since=None"),
    (lambda kraft: kraft.map("m").put(5, b"v"), "key=5"),
    (lambda kraft: kraft.map("m").put("\ud800", b"v"), "UTF-8"),
    (lambda kraft: kraft.map("m").put("k", "text"), r"value='text' must be bytes, for instance text\.encode\(\)"),
    (lambda kraft: kraft.map("m").put("k", None), "value=None"),
    (lambda kraft: kraft.map("m").put("k", b"v", ttl_ms="500"), "ttl_ms='500'"),
    (lambda kraft: kraft.map("m").put("k", b"v", ttl_ms=-1), "ttl_ms=-1"),
    (lambda kraft: kraft.map("m").put("k", b"v", ttl_ms=5), "ttl_ms=5 must be .* at least 100"),
    (lambda kraft: kraft.map("m").put("k", b"v", ttl_ms=2**40), "ttl_ms=1099511627776"),
    (lambda kraft: kraft.map("m").put("k", b"v", ttl_ms=True), "ttl_ms=True"),
    (lambda kraft: kraft.map("m").put("k", b"v", ephemeral="no"), "ephemeral='no'"),
    (lambda kraft: kraft.map("m").put("k", b"v", fence=17), "fence=17 must be a term.*not its token"),
    (lambda kraft: kraft.map("m").put("k", b"v", fence=object()), "fence=<object"),
    (lambda kraft: kraft.map("m").compare_and_set("k", expect="5", value=b"v"), "expect='5'"),
    (lambda kraft: kraft.map("m").compare_and_set("k", expect=None, value=b"v"), "expect=None"),
    (lambda kraft: kraft.map("m").compare_and_set("k", expect=True, value=b"v"), "expect=True"),
    (lambda kraft: kraft.map("m").compare_and_set("k", expect=0, value="v"), "value='v'"),
    (lambda kraft: kraft.map("m").compare_and_set("k", expect=0, value=b"v", fence=1), "fence=1"),
    (lambda kraft: kraft.map("m").delete(None), "key=None"),
    (lambda kraft: kraft.map("m").delete("k", fence="term"), "fence='term'"),
    (lambda kraft: kraft.map("m").transaction(Put("k", b"v")), r"then=Put.* must be a list, such as \[Put"),
    (lambda kraft: kraft.map("m").transaction("k"), "then='k'"),
    (lambda kraft: kraft.map("m").transaction([object()]), "<object.* is no operation"),
    (lambda kraft: kraft.map("m").transaction([At("k", 1)]), "is no operation: expected Put, Delete or Get"),
    (lambda kraft: kraft.map("m").transaction([Put]), "is no operation"),
    (lambda kraft: kraft.map("m").transaction([Get(5)]), "key=5"),  # type: ignore[arg-type]
    (lambda kraft: kraft.map("m").transaction([Delete(5)]), "key=5"),  # type: ignore[arg-type]
    (lambda kraft: kraft.map("m").transaction([], otherwise=[Is("k", b"")]), "is no operation"),
    (lambda kraft: kraft.map("m").transaction([], conditions=At("k", 1)), "conditions=At"),
    (lambda kraft: kraft.map("m").transaction([], conditions=[Get("k")]), "is no condition: expected Is or At"),
    (lambda kraft: kraft.map("m").transaction([], conditions=[Is("k", "v")]), "value='v'"),  # type: ignore[arg-type]
    (lambda kraft: kraft.map("m").transaction([], conditions=[At("k", "1")]), "revision='1'"),  # type: ignore[arg-type]
    (lambda kraft: kraft.map("m").transaction([], conditions=[At(1, 1)]), "key=1"),  # type: ignore[arg-type]
    (lambda kraft: kraft.counter("n").add("1"), "delta='1'"),
    (lambda kraft: kraft.counter("n").add(1.5), "delta=1.5"),
    (lambda kraft: kraft.counter("n").add(True), "delta=True"),
    (lambda kraft: kraft.counter("n").add(2**70), f"delta={2**70}"),
    (lambda kraft: kraft.counter("n").value(consistency="stale"), "consistency='stale'"),
    (lambda kraft: kraft.queue("q").put("text"), "value='text'"),
    (lambda kraft: kraft.locking_queue("q").put(5), "value=5"),
    (lambda kraft: kraft.double_barrier("d", size=2).leave(), "'d' was not entered"),
    (lambda kraft: kraft.lock("l").acquire(timeout_ms="5"), "timeout_ms='5'"),
    (lambda kraft: kraft.lock("l").acquire(timeout_ms=-5), "timeout_ms=-5"),
    (lambda kraft: kraft.lock("l").acquire(timeout_ms=0), "timeout_ms=0"),
    (lambda kraft: kraft.lock("l").acquire(timeout_ms=True), "timeout_ms=True"),
    (lambda kraft: kraft.semaphore("s", limit=2).acquire(timeout_ms=1.5), "timeout_ms=1.5"),
    (lambda kraft: kraft.rwlock("l").writer.acquire(timeout_ms="5"), "timeout_ms='5'"),
]
"""What cannot be done, and a part of what is said."""

WATCHED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda kraft: kraft.map("m").watch(5), "key=5"),
    (lambda kraft: kraft.map("m").watch(prefix=5), "prefix=5"),
    (lambda kraft: kraft.map("m").watch(prefix=None), "prefix=None"),
    (lambda kraft: kraft.map("m").watch("k", since="5"), "since='5'"),
    (lambda kraft: kraft.map("m").watch("k", since=-2), "since=-2"),
    (lambda kraft: kraft.map("m").watch("k", since=True), "since=True"),
]
"""What cannot be watched, and a part of what is said."""


async def _wrong_asks(kraft: Any) -> None:
    for ask, said in MADE:
        with pytest.raises(ConfigError, match=said):
            ask(kraft)
    for ask, said in ASKED:
        with pytest.raises(ConfigError, match=said):
            await ask(kraft)
    for ask, said in WATCHED:
        with pytest.raises(ConfigError, match=said):
            await anext(ask(kraft))


async def test_what_is_wrong_is_refused_before_a_session_is_opened() -> None:
    access = Troubled()
    async with access:
        kraft = Recipes(access)
        await _wrong_asks(kraft)
        assert access.calls == 0
        await kraft.close()


async def test_what_is_wrong_changes_nothing_of_a_session_that_is_open() -> None:
    async with clients(1) as (access, [kraft]):
        calls = access.calls
        await _wrong_asks(kraft)
        with pytest.raises(ConfigError, match="timeout_ms='5'"):
            await (await kraft.session()).renew(timeout_ms="5")
        assert access.calls == calls
        await kraft.map("m").put("k", b"v", ttl_ms=100)
        assert (await kraft.map("m").get("k", consistency=STALE)) is not None


def test_threads_are_told_the_same() -> None:
    access = Troubled()
    with blocking.Recipes(access) as kraft:
        calls = access.calls
        for ask, said in [*MADE, *ASKED]:
            with pytest.raises(ConfigError, match=said):
                ask(kraft)
        for ask, said in WATCHED:
            with pytest.raises(ConfigError, match=said):
                next(ask(kraft))
        assert access.calls == calls


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"owner": 5}, "owner=5 must be text"),
        ({"owner": None}, "owner=None"),
        ({"owner": b"me"}, "owner=b'me'"),
        ({"owner": "\ud800"}, "UTF-8"),
        ({"ttl_ms": "5"}, "ttl_ms='5'"),
        ({"ttl_ms": True}, "ttl_ms=True"),
        ({"ttl_ms": 5}, "ttl_ms=5 must be .* at least 100"),
        ({"ttl_ms": 10**9}, "ttl_ms=1000000000"),
        ({"timeout_ms": 0}, "timeout_ms=0"),
        ({"timeout_ms": True}, "timeout_ms=True"),
        ({"timeout_ms": None}, "timeout_ms=None"),
    ],
)
@pytest.mark.parametrize("made", [Recipes, blocking.Recipes])
def test_recipes_that_cannot_be_are_refused(made: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(MemoryAccess(), **options)
