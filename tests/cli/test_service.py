"""Errors are answers; what nobody offers is refused."""

from __future__ import annotations

from typing import Any

import attrs

from kraftlib.cli.service import Service
from kraftlib.errors import BacklogFullError, NotLeaderError
from kraftlib.types import LeaderAndEpoch


@attrs.frozen
class Status:
    def to_dict(self) -> dict[str, Any]:
        return {"role": "leader"}


class Client:
    def status(self) -> Status:
        return Status()


def service() -> Service:
    return Service(Client())  # type: ignore[arg-type]


async def test_status_is_always_there() -> None:
    assert await service().answer({"status": True}) == {"status": {"role": "leader"}}


async def test_an_unknown_method_is_refused_with_those_that_there_are() -> None:
    assert await service().answer({"drop": "everything"}) == {
        "error": "ConfigError",
        "message": "a request has one of status",
    }


async def test_an_error_of_the_library_is_an_answer_and_names_the_leader() -> None:
    async def refuse(error: Any) -> Any:
        raise error

    offering = service()
    offering.offer("fail", refuse)

    assert await offering.answer({"fail": BacklogFullError("later")}) == {
        "error": "BacklogFullError",
        "message": "later",
    }
    assert await offering.answer({"fail": TimeoutError("no leader in time")}) == {
        "error": "TimeoutError",
        "message": "no leader in time",
    }
    assert await offering.answer({"fail": NotLeaderError("not me", leader=LeaderAndEpoch(2, 5))}) == {
        "error": "NotLeaderError",
        "message": "not me",
        "leader": 2,
    }
