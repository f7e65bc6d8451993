"""The keys of an etcd become those of a map, compared key by key; nothing of others is touched unasked."""

from __future__ import annotations

import random

import pytest

from kraftlib.compat.etcd.importing import Differences, Importer
from kraftlib.compat.etcd.snapshot import Source
from kraftlib.coordination.commands import NAME_BYTES_MAX
from kraftlib.errors import ConfigError
from kraftlib.recipes.face import Recipes
from tests.compat.etcd.captured import lasting
from tests.recipes.world import Troubled


async def test_what_is_missing_is_copied_and_a_second_step_finds_both_equal() -> None:
    source = Source(entries=lasting(b"app/"))
    async with Troubled() as access, Recipes(access) as kraft:
        settings = kraft.map("settings")
        await settings.put("elsewhere", b"stays")
        found = await Importer(settings, "app/").step(source)
        assert found == Differences(missing=tuple(sorted(source.entries)))
        assert not await Importer(settings, "app/").step(source), (
            "nothing is left to do, and nobody's keys are in the way"
        )
        has = {key: entry.value for key, entry in (await settings.state()).entries.items()}
        assert has == {**source.entries, "elsewhere": b"stays"}


async def test_much_goes_in_more_than_one_transaction() -> None:
    dice = random.Random(1)
    large = {f"large/{number}": dice.randbytes(300_000) for number in range(7)}
    source = Source(entries={f"{number}": b"%d" % number for number in range(600)} | large)
    async with Troubled() as access, Recipes(access) as kraft:
        importer = Importer(kraft.map("settings"))
        assert len((await importer.step(source)).missing) == 607
        assert not await importer.step(source)


async def test_keys_of_others_are_only_replaced_if_that_is_asked_for() -> None:
    source = Source(entries={"a": b"1", "b": b"2", "c": b"3"})
    async with Troubled() as access, Recipes(access) as kraft:
        settings = kraft.map("settings")
        await settings.put("a", b"other")
        await settings.put("b", b"2", ttl_ms=60_000)
        await settings.put("d", b"4")
        with pytest.raises(ConfigError, match=r"the map 'settings' has 3 keys already .* such as 'a'.*--replace"):
            await Importer(settings).step(source)
        assert (await settings.state()).entries.keys() == {"a", "b", "d"}, "nothing was written"

        importer = Importer(settings, replace=True)
        assert await importer.step(source) == Differences(missing=("c",), changed=("a", "b"), surplus=("d",))
        assert not await importer.step(source)


async def test_a_key_that_does_not_fit_is_named_before_anything_is_written() -> None:
    async with Troubled() as access, Recipes(access) as kraft:
        settings = kraft.map("settings")
        for entries, words in (
            ({"ok": b"", "k" * NAME_BYTES_MAX: b""}, r"of 1024 bytes: 1011 are the most"),
            ({"ok": b"", "large": bytes(1_000_000)}, "'large' has a value of 1000000 bytes, and .* divide it"),
        ):
            with pytest.raises(ConfigError, match=words):
                await Importer(settings).step(Source(entries=entries))
        assert not (await settings.state()).entries
