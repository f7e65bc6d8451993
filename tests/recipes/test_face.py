"""The face of the recipes: its names, and what it refuses."""

from __future__ import annotations

import pytest

from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.errors import ConfigError
from kraftlib.recipes.face import Recipes
from tests.recipes.world import clients


@pytest.mark.parametrize("name", ["", None, 7, b"x"])
async def test_a_name_is_text(name: object) -> None:
    async with clients(1) as (access, [kraft]):
        calls = access.calls
        for method in (kraft.lock, kraft.map, kraft.election, kraft.queue):
            with pytest.raises(ConfigError, match="must be text"):
                method(name)  # type: ignore[operator]
        assert access.calls == calls


def test_times_are_whole_numbers_of_ms() -> None:
    for wrong in ("5", 0, -1, 1.5, None):
        with pytest.raises(ConfigError, match="timeout_ms"):
            Recipes(MemoryAccess(), timeout_ms=wrong)  # type: ignore[arg-type]


async def test_when_it_is_closed_nothing_is_held_any_more() -> None:
    async with MemoryAccess() as access:
        async with Recipes(access) as kraft:
            await kraft.lock("x").acquire()
            await kraft.map("m").put("own", b"", ephemeral=True)
            await kraft.map("m").put("stays", b"")
        assert not access.machine._state.sessions.live
        async with Recipes(access) as kraft:
            assert await kraft.lock("x").contenders() == []
            assert [entry.key for entry in await kraft.map("m").range()] == ["stays"]
