"""What only a controller answers: every such request of a real broker or controller is refused, and readably."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.consensus.events import PeerIdentified
from kraftlib.runtime.net.api_versions import SERVED
from kraftlib.runtime.net.controller_apis import REFUSED, Controllers, refusal
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.testing.transport_contract import station
from kraftlib.types import Endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_response
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
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


@pytest.mark.parametrize("version", [2, 5, 7])
def test_each_topic_is_refused_where_the_whole_cannot_be(version: int) -> None:
    wanted = tuple(CreateTopicsRequest.CreatableTopic(name=name) for name in ("__consumer_offsets", "b"))
    answer = refusal(CreateTopicsRequest(topics=wanted))
    _, read = decode_response(
        encode_response(answer, version=version, correlation_id=1), api_key=ApiKey.CREATE_TOPICS, version=version
    )

    assert [(row.name, row.error_code) for row in read.topics] == [
        ("__consumer_offsets", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]


def test_what_we_answer_ourselves_is_not_refused() -> None:
    assert not set(REFUSED) & set(SERVED)


@pytest.mark.parametrize(
    ("yield_to", "met", "refuses"), [(None, False, False), (None, True, True), ((), True, False), ((2,), False, True)]
)
def test_a_controllers_requests_are_refused_by_name_once_there_are_controllers(
    yield_to: tuple[int, ...] | None, met: bool, refuses: bool
) -> None:
    told: list[Any] = []
    controllers = Controllers(RaftConfig(node_id=1, yield_to=yield_to), submit=told.append)
    place = Endpoint("127.0.0.1", 9)
    controllers.identified(place, met)

    assert (set(REFUSED) <= set(controllers.served)) == refuses
    assert told == [PeerIdentified(place, met)]


def test_what_the_application_answers_is_never_refused() -> None:
    controllers = Controllers(RaftConfig(node_id=1), submit=lambda event: None)
    controllers.serve({ApiKey.BROKER_HEARTBEAT: Versions(0, 1)})
    controllers.identified(Endpoint("127.0.0.1", 9), True)

    assert controllers.served[ApiKey.BROKER_HEARTBEAT] == Versions(0, 1)
    assert set(REFUSED) <= set(controllers.served)
