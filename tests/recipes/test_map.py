"""The map: its writes, reads, transactions and watches."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kraftlib.coordination.access import LINEARIZABLE, AtLeast, Consistency
from kraftlib.coordination.history import CHANGES_MAX
from kraftlib.recipes.map import ABSENT, At, Delete, Entry, Get, Is, MapChange, MapState, Put
from tests.recipes.world import Troubled, clients


async def test_what_is_put_is_read_with_its_revision() -> None:
    async with clients(2, access=Troubled(seed=3)) as (_, [one, two]):
        settings, other = one.map("settings"), two.map("settings")
        first = await settings.put("ui/color", b"blue")
        assert await other.get("ui/color") == Entry("ui/color", b"blue", first)
        assert await other.get("ui/color", consistency=AtLeast(first)) == Entry("ui/color", b"blue", first)
        assert (await other.peek("ui/color"))[0] == Entry("ui/color", b"blue", first)
        assert await two.map("settings/ui").get("color") is None, "another map, whatever its name"

        green = await other.compare_and_set("ui/color", expect=first, value=b"green")
        assert green is not None
        assert await settings.compare_and_set("ui/color", expect=first, value=b"red") is None
        assert await settings.compare_and_set("ui/color", expect=b"green", value=b"red") is not None
        assert await settings.compare_and_set("new", expect=ABSENT, value=b"1") is not None
        assert await settings.compare_and_set("new", expect=ABSENT, value=b"2") is None
        assert [change.value for change in await other.history("ui/color")] == [b"blue", b"green", b"red"]
        assert [change.value for change in await other.history("ui/color", since=first)] == [b"green", b"red"]
        assert [entry.key for entry in await other.range()] == ["new", "ui/color"]
        assert [entry.key for entry in await other.range("ui/")] == ["ui/color"]
        assert await settings.delete("new")
        assert not await settings.delete("new")


async def test_pages_of_a_range_make_the_whole() -> None:
    async with clients(1) as (_, [kraft]):
        settings = kraft.map("settings")
        for number in range(10):
            await settings.put(f"k{number}", b"")
        found: list[str] = []
        while page := await settings.range("k", after=found[-1] if found else "", most=3):
            found += [entry.key for entry in page]
        assert found == [f"k{number}" for number in range(10)]


@pytest.mark.parametrize("count", [0, 3, 2_500], ids=["nothing", "a page", "several pages"])
async def test_a_state_and_the_changes_after_it_are_a_copy_of_the_map(count: int) -> None:
    async with clients(1) as (_, [kraft]):
        settings = kraft.map("settings")
        puts = [Put(f"k{number}", b"1") for number in range(count)]
        for at in range(0, count, 250):
            await settings.transaction(puts[at : at + 250])
        await settings.put("other", b"")
        state = await settings.state("k")
        assert set(state.entries) == {put.key for put in puts}
        last = await settings.put("k0", b"2")
        async with contextlib.aclosing(settings.watch(prefix="k", since=state.offset)) as changes:
            assert await anext(changes) == MapChange(last, "k0", b"2")


async def test_a_transaction_is_all_or_nothing() -> None:
    async with clients(1) as (_, [kraft]):
        accounts = kraft.map("accounts")
        ann = await accounts.put("ann", b"10")
        move = [Put("ann", b"7"), Put("bob", b"3"), Get("ann"), Delete("old")]
        done = await accounts.transaction(move, conditions=[At("ann", ann), Is("ann", b"10"), At("bob", ABSENT)])
        assert (done.succeeded, done.read) == (True, {"ann": Entry("ann", b"7", done.offset)})
        again = await accounts.transaction(move, conditions=[At("ann", ann)], otherwise=[Get("bob"), Get("nobody")])
        assert (again.succeeded, again.read) == (False, {"bob": Entry("bob", b"3", done.offset)})


async def test_a_watch_resumes_from_an_offset_and_is_told_of_deletions_and_expiry() -> None:
    async with clients(2) as (access, [one, two]):
        settings = one.map("settings")
        first = await settings.put("ui/color", b"blue")
        seen = []
        for key, more in (
            ("ui/color", {}),
            ("other", {}),
            ("ui/own", {"ephemeral": True}),
            ("ui/short", {"ttl_ms": 100}),
        ):
            await two.map("settings").put(key, b"2", **more)
        await settings.delete("ui/color")
        access.end_session((await two.session()).id)
        async with contextlib.aclosing(settings.watch(prefix="ui/", since=first)) as watch, asyncio.timeout(10):
            async for change in watch:
                assert isinstance(change, MapChange)
                seen.append((change.key, change.value))
                if len(seen) == 6:
                    break
        assert seen == [
            ("ui/color", b"2"),
            ("ui/own", b"2"),
            ("ui/short", b"2"),
            ("ui/color", None),
            ("ui/own", None),
            ("ui/short", None),
        ]
        async with contextlib.aclosing(settings.watch("ui/color", since=first)) as watch:
            assert [(await anext(watch)).offset for _ in range(2)] == [first + 1, first + 5]


async def test_where_history_is_gone_a_watch_begins_with_the_state() -> None:
    async with clients(1) as (_, [kraft]):
        settings = kraft.map("settings")
        first = await settings.put("k", b"0")
        for _ in range(CHANGES_MAX // 200):
            await settings.transaction([Put("k", b"%d" % n) for n in range(201)])
        async with contextlib.aclosing(settings.watch(since=first)) as watch:
            state = await anext(watch)
            assert isinstance(state, MapState)
            assert state.entries == {"k": Entry("k", b"200", state.offset)}


async def test_a_state_that_is_gone_comes_as_one_although_it_is_read_in_pages() -> None:
    """While a page is read, keys of pages that were read before are written and deleted."""

    class Meddler(Troubled):
        meddle = 0

        async def query(self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int):  # type: ignore[no-untyped-def]
            if self.meddle:
                self.meddle -= 1
                await settings.transaction([Put("k0000", b"new"), Delete("k0001"), Put("k2500", b"late")])
            return await super().query(question, consistency=consistency, timeout_ms=timeout_ms)

    access = Meddler()
    async with clients(1, access=access) as (_, [kraft]):
        settings = kraft.map("settings")
        for at in range(0, 2_500, 250):
            await settings.transaction([Put(f"k{n:04}", b"") for n in range(at, at + 250)])
        for _ in range(CHANGES_MAX // 200):
            await settings.transaction([Put("k0002", b"%d" % n) for n in range(201)])
        access.meddle = 2
        async with contextlib.aclosing(settings.watch(since=0)) as watch:
            state = await anext(watch)
            assert isinstance(state, MapState)
            assert len(state.entries) == 2_500
            assert [state.entries[key].value for key in ("k0000", "k0002", "k2500")] == [b"new", b"200", b"late"]
            assert "k0001" not in state.entries
            last = await settings.put("k", b"")
            assert (await anext(watch)).offset == last > state.offset


async def test_the_history_of_a_key_has_all_changes_that_are_kept() -> None:
    async with clients(1) as (_, [kraft]):
        for number in range(1_200):
            await kraft.map("settings").put("k", b"%d" % number)
        changes = await kraft.map("settings").history("k")
        assert [change.value for change in changes] == [b"%d" % number for number in range(1_200)]
