"""The writer keeps account of what was acknowledged, and sends the rest again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.cli.cluster import ClusterError, RefusedError
from kraftlib.cli.demo_writer import Writer


class Voter:
    """Acknowledges so many puts, then fails as it is told."""

    def __init__(self, number: int, *, limit: int = 10**9, error: Exception | None = None) -> None:
        self.number = number
        self.items: dict[str, str] = {}
        self._limit = limit
        self._error = error

    async def ask(self, name: str, item: dict[str, str]) -> Any:
        assert name == "put"
        await asyncio.sleep(0)
        if len(self.items) >= self._limit and self._error is not None:
            raise self._error
        self.items[item["key"]] = item["value"]
        return {"offset": len(self.items)}


class Cluster:
    """The first voter leads until somebody asks again."""

    def __init__(self, *voters: Voter) -> None:
        self.voters = list(voters)

    async def leader(self) -> tuple[Voter, int]:
        if not self.voters:
            raise ClusterError("nobody leads")
        return self.voters.pop(0), 1


def writer(*voters: Voter) -> Writer:
    return Writer(Cluster(*voters))  # type: ignore[arg-type]


async def test_everything_is_acknowledged_once() -> None:
    voter = Voter(1)
    writing = writer(voter)
    await writing.write(1_000)
    await writing.write(500)

    assert len(writing.acknowledged) == 1_500
    assert voter.items == {key: value for key, (value, _) in writing.acknowledged.items()}


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), RefusedError({"error": "NotLeaderError", "leader": 2})]
)
async def test_what_was_not_acknowledged_is_sent_to_the_next_leader(error: Exception) -> None:
    old, new = Voter(1, limit=300, error=error), Voter(2)
    writing = writer(old, new)
    async with asyncio.timeout(10):
        await writing.write(1_000)

    assert len(writing.acknowledged) == 1_000
    assert set(old.items) | set(new.items) == set(writing.acknowledged)
    assert writing.first_not_from(1, after=0.0) is not None
    assert writing.first_not_from(2, after=0.0) is not None
    assert writing.first_not_from(1, after=1e12) is None


async def test_a_stream_goes_on_until_it_is_stopped() -> None:
    writing = writer(Voter(1))
    async with asyncio.timeout(10):
        stream = asyncio.create_task(writing.write_until_stopped())
        await writing.reached(700)
        writing.stop()
        await stream

    assert len(writing.acknowledged) >= 700


async def test_without_a_leader_it_fails_as_a_whole() -> None:
    with pytest.raises(ClusterError):
        await writer().write(10)
