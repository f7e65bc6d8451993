"""What no way in to a machine takes: refused by its name, its value and a remedy, before anything happens."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.coordination.access import AtLeast
from kraftlib.coordination.memory_access import MemoryAccess
from kraftlib.errors import ConfigError
from kraftlib.machines.access import MachineAccess

WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda access: access.call("text", timeout_ms=500), "command='text' must be bytes"),
    (lambda access: access.call(None, timeout_ms=500), "command=None"),
    (lambda access: access.call(b"x", timeout_ms="5"), "timeout_ms='5'"),
    (lambda access: access.query(5, timeout_ms=500), "question=5 must be bytes"),
    (lambda access: access.query(b"x", timeout_ms=0), "timeout_ms=0"),
    (lambda access: access.query(b"x", timeout_ms=True), "timeout_ms=True"),
    (lambda access: access.query(b"x", consistency="stale", timeout_ms=500), r"consistency='stale' must be LINEAR"),
    (lambda access: access.query(b"x", consistency=None, timeout_ms=500), "consistency=None"),
    (lambda access: access.query(b"x", consistency=0, timeout_ms=500), "consistency=0"),
    (lambda access: access.query(b"x", consistency=object(), timeout_ms=500), "consistency=<object"),
    (lambda access: access.query(b"x", consistency=AtLeast(None), timeout_ms=500), "AtLeast.offset=None"),  # type: ignore[arg-type]
    (lambda access: access.query(b"x", consistency=AtLeast(-2), timeout_ms=500), "AtLeast.offset=-2"),
    (lambda access: access.watch("text", None), "selector='text' must be bytes"),
    (lambda access: access.watch(b"x", "5"), "since='5'"),
    (lambda access: access.watch(b"x", -2), "since=-2"),
    (lambda access: access.watch(b"x", 1.5), "since=1.5"),
]
"""What no access takes, whichever it is."""


async def _done(ask: Callable[[Any], Any], access: Any) -> object:
    asked = ask(access)
    return await (asked if inspect.isawaitable(asked) else anext(asked))


async def refuses(access: Any) -> None:
    """Check that an access for tasks refuses all of `WRONG`."""
    for ask, said in WRONG:
        with pytest.raises(ConfigError, match=said):
            await _done(ask, access)


def refuses_threads(access: Any) -> None:
    """Check that an access for threads refuses all of `WRONG`."""
    for ask, said in WRONG:
        with pytest.raises(ConfigError, match=said):
            next(ask(access))


async def test_an_access_in_memory_refuses_what_no_access_takes() -> None:
    async with MemoryAccess() as access:
        await refuses(access)
        assert access.machine.applied == -1


@pytest.mark.parametrize("version", ["1", None, True, 0])
async def test_the_way_in_to_one_of_several_machines_refuses_it_too(version: Any) -> None:
    async with MemoryAccess() as access:
        await refuses(MachineAccess(access, "locks"))
        with pytest.raises(ConfigError, match=f"version={version!r}"):
            MachineAccess(access, "locks", version=version)
        assert access.machine.applied == -1
