"""What only a controller answers: every such request of a real broker or controller is refused, and readably."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.runtime.api_versions import SERVED
from kraftlib.runtime.controller_apis import REFUSED
from kraftlib.runtime.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.transport import Destination
from kraftlib.testing.transport_contract import station
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response
from tests.captured import RELEASES, pairs
from tests.runtime.wired import ANYWHERE, engine


def captured(release: str) -> list[dict[str, Any]]:
    """One request of each API and version that a controller alone answers."""
    asked = [pair for pair in pairs(release, "wire") if pair["api_key"] in REFUSED]
    return list({(pair["api_key"], pair["api_version"]): pair for pair in asked}.values())


@pytest.mark.parametrize("release", RELEASES)
async def test_what_a_broker_or_controller_really_sends_is_refused(release: str) -> None:
    hub = MemoryHub()
    served = {**SERVED, **REFUSED}
    async with (
        engine(MemoryTransport(hub, ANYWHERE), served=served) as running,
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as stranger,
    ):
        there = Destination(1, running.endpoint)
        asked = captured(release)
        for number, pair in enumerate(asked):
            stranger.ask(there, pair["request"])
            await stranger.until_heard(number + 1)
            reply = stranger.heard[number]
            assert isinstance(reply, bytes)
            _, message = decode_response(reply, api_key=pair["api_key"], version=pair["api_version"])
            assert message.error_code == ErrorCode.NOT_CONTROLLER
    assert {pair["api_key"] for pair in asked} >= {ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT}


def test_what_we_answer_ourselves_is_not_refused() -> None:
    assert not set(REFUSED) & set(SERVED)
