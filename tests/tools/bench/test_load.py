"""The closed loop: so many callers, each with one record under way, and honest statistics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kraftlib.errors import NotLeaderError
from kraftlib.types import LeaderAndEpoch
from tools.bench import load as load_module
from tools.bench.load import run_load


class Client:
    """Commits everything on the next turn of the loop."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.under_way = self.most_under_way = 0
        self.sizes: set[int] = set()
        self.appended = 0
        self._error = error

    async def wait_for_leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(1, 5)

    async def append_one(self, value: bytes) -> None:
        self.sizes.add(len(value))
        self.appended += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self._error is not None:
            raise self._error

    @asynccontextmanager
    async def appender(self, *, max_in_flight: int) -> AsyncIterator[Client]:
        self.max_in_flight, self.put = max_in_flight, 0
        yield self

    async def put_many(self, values: list[bytes]) -> None:
        await asyncio.sleep(0)
        self.put += len(values)

    @property
    def settled(self) -> int:
        return self.put


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "WARM_UP_S", 0.0)


def load(**wanted: Any) -> dict[str, Any]:
    return {"callers": 5, "seconds": 0.02, "size": 100, **wanted}


async def test_every_caller_has_one_record_under_way() -> None:
    client = Client()
    result = await run_load(client, load())  # type: ignore[arg-type]

    assert client.most_under_way == 5
    assert client.sizes == {100}
    assert result["commits"] >= 5
    assert 0 <= result["p50_us"] <= result["p99_us"]
    assert "profile" not in result


async def test_without_a_warm_up_all_that_is_committed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processor time, as seen from outside, would else be that of more commits than are told."""
    monkeypatch.setattr(load_module, "WARM_UP_S", 0.02)
    client = Client()
    result = await run_load(client, load(warm_up_s=0))  # type: ignore[arg-type]
    assert result["commits"] == client.appended

    warmed_up = await run_load(client, load())  # type: ignore[arg-type]
    assert result["commits"] + warmed_up["commits"] < client.appended


async def test_an_appender_has_so_many_records_under_way() -> None:
    client = Client()
    result = await run_load(client, load(appender=True))  # type: ignore[arg-type]

    assert client.max_in_flight == 5
    assert result["commits"] == client.put > 0
    assert result["commits_per_s"] > 0


async def test_a_profile_says_where_the_time_goes() -> None:
    result = await run_load(Client(), load(profile=True))  # type: ignore[arg-type]

    assert "append_one" in result["profile"]
    said = re.match(r"calls a commit: ([\d.]+) of Python functions, ([\d.]+) of built-in ones\n", result["profile"])
    assert said is not None
    assert float(said[1]) >= 1, "append_one is one"


async def test_who_does_not_lead_says_so_and_leaves_no_caller_behind() -> None:
    client = Client(error=NotLeaderError("not me", leader=LeaderAndEpoch(2, 5)))
    before = asyncio.all_tasks()
    with pytest.raises(NotLeaderError):
        await run_load(client, load())  # type: ignore[arg-type]
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before


def test_a_share_of_nothing_is_nothing() -> None:
    assert load_module._at([], 0.5) == 0.0
    assert load_module._at([7], 0.99) == 7
    assert load_module._at(list(range(100)), 0.5) == 50
    assert load_module._at(list(range(100)), 0.99) == 99
