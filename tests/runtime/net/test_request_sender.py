"""Questions: versions first, each answer to its question, every failure told once."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib import __version__
from kraftlib.config import RaftConfig
from kraftlib.consensus.events import Failure
from kraftlib.runtime.net.api_versions import PRIVATE, SERVED
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.request_sender import HELD_MAX
from kraftlib.runtime.net.transport import Destination, FrameReceiver, Reply
from kraftlib.types import Endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import Request, decode_request, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from tests.captured import pairs
from tests.runtime.wired import (
    ANYWHERE,
    Engine,
    ScriptedPeer,
    engine,
    fetch,
    fetch_answer,
    scripted,
    versions_answer,
    vote,
    vote_answer,
)


@pytest.fixture
async def meeting():
    """An engine and a peer that is written out by the test."""
    hub = MemoryHub()
    async with scripted(hub) as peer, engine(MemoryTransport(hub, ANYWHERE)) as running:
        yield running, peer


Meeting = tuple[Engine, ScriptedPeer]


async def test_the_first_request_on_a_connection_asks_for_versions(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(41, 1, peer.endpoint, vote())
    running.network.send(42, 1, peer.endpoint, fetch())

    first = await peer.tell_versions()
    assert (first.api_key, first.api_version, first.client_id) == (ApiKey.API_VERSIONS, 4, "raft-client-7")
    assert first.message.client_software_name == "kraftlib"
    assert first.message.client_software_version == __version__

    second, third = await peer.answer(1, vote_answer()), await peer.answer(2, fetch_answer(b"records"))
    assert (second.api_key, second.api_version, third.api_key, third.api_version) == (52, 2, 1, 18)
    assert first.correlation_id < second.correlation_id < third.correlation_id
    await running.until(2)
    assert running.heard == [("response", 41, vote_answer()), ("response", 42, fetch_answer(b"records"))]


async def test_versions_are_asked_once_per_connection(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, fetch())
    await peer.tell_versions()
    for number in range(1, 5):
        await peer.answer(number, fetch_answer())
        await running.until(number)
        running.network.send(number + 1, 1, peer.endpoint, fetch())
    assert [(await peer.asked(number)).api_key for number in range(6)] == [18, 1, 1, 1, 1, 1]

    running.network.send(100, -2, peer.endpoint, fetch())
    assert (await peer.asked(6)).api_key == ApiKey.API_VERSIONS  # another number is another connection


@pytest.mark.parametrize("is_ours", [True, False])
async def test_tagged_fields_of_ours_are_for_replicas_of_ours(meeting: Meeting, is_ours: bool) -> None:
    """Kafka would skip them. It names no private API, and is not sent them."""
    running, peer = meeting
    said = ((10_000, b"\0\0\0\1"),)
    for number, request in enumerate((vote(), fetch()), start=1):
        running.network.send(number, 1, peer.endpoint, attrs.evolve(request, unknown_tagged_fields=said))
    served = {key: (range_.first, range_.last) for key, range_ in {**SERVED, **(PRIVATE if is_ours else {})}.items()}
    await peer.tell_versions(0, served)

    for number in (1, 2):
        assert (await peer.asked(number)).message.unknown_tagged_fields == (said if is_ours else ())


async def test_a_new_connection_asks_anew(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, fetch())
    await peer.tell_versions()
    await peer.asked(1)
    peer.reply(1, None)
    await running.until(2)
    assert running.heard == [("failed", 1, Failure.DISCONNECTED), ("lost", 1, False)]

    running.network.send(2, 1, peer.endpoint, fetch())
    assert (await peer.tell_versions(2, {1: (13, 17)})).api_key == ApiKey.API_VERSIONS
    assert (await peer.asked(3)).api_version == 17


async def test_a_connection_after_a_silent_loss_asks_anew(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, fetch())
    await peer.tell_versions()
    await peer.answer(1, fetch_answer())
    await running.until(1)
    hub = peer.station.transport._hub
    hub.cut(running.endpoint, peer.endpoint)
    await running.until(2)
    hub.heal(running.endpoint, peer.endpoint)

    running.network.send(2, 1, peer.endpoint, fetch())
    assert (await peer.asked(2)).api_key == ApiKey.API_VERSIONS


class Post:
    """A transport that keeps what it is given: the test replies when it likes, also when no transport should."""

    def __init__(self) -> None:
        self.sent: list[tuple[Destination, Request, Reply]] = []

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        return ANYWHERE

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        self.sent.append((destination, decode_request(frame), reply))

    def disconnect(self, destination: Destination) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_a_transport_that_fails_a_request_without_a_word_is_asked_anew() -> None:
    post = Post()
    async with engine(post) as running:
        running.network.send(1, 1, ANYWHERE, vote())
        (_, request, reply) = post.sent[0]
        reply(encode_response(versions_answer({52: (0, 2)}), version=4, correlation_id=request.correlation_id))
        post.sent[1][2](None)
        await running.until(1)
        assert running.heard == [("failed", 1, Failure.DISCONNECTED)]

        running.network.send(2, 1, ANYWHERE, vote())
        assert [request.api_key for _, request, _ in post.sent] == [18, 52, 18]


async def test_an_answer_from_where_a_peer_was_before_is_passed_over() -> None:
    post, before, now = Post(), Endpoint("before", 1), Endpoint("now", 1)
    async with engine(post) as running:
        running.network.send(1, 1, before, vote())
        running.network.send(2, 1, now, vote())
        await running.until(1)
        assert running.heard == [("failed", 1, Failure.UNSENT)]

        (_, request, reply) = post.sent[0]
        refusal = versions_answer({18: (0, 2)}, error_code=ErrorCode.UNSUPPORTED_VERSION)
        reply(encode_response(refusal, version=0, correlation_id=request.correlation_id))
        assert [destination.endpoint for destination, _, _ in post.sent] == [before, now]


async def test_a_number_that_moves_is_asked_anew(meeting: Meeting) -> None:
    running, peer = meeting
    hub = peer.station.transport._hub
    running.network.send(1, 1, peer.endpoint, fetch())
    await peer.tell_versions()
    await peer.asked(1)
    async with scripted(hub) as moved:
        running.network.send(2, 1, moved.endpoint, fetch())
        await moved.tell_versions()
        await moved.answer(1, fetch_answer())
        await running.until(2)
        assert sorted(running.heard[:2]) == [("failed", 1, Failure.DISCONNECTED), ("response", 2, fetch_answer())]


@pytest.mark.parametrize(("release", "fetched", "voted"), [("kafka-4.3.1", 18, 2), ("kafka-3.9.2", 17, 1)])
async def test_real_controllers_are_spoken_to_in_their_versions(
    meeting: Meeting, release: str, fetched: int, voted: int
) -> None:
    running, peer = meeting
    (pair, *_) = [pair for pair in pairs(release, "wire") if pair["api_key"] == ApiKey.API_VERSIONS]
    running.network.send(1, 1, peer.endpoint, fetch())
    running.network.send(2, 1, peer.endpoint, vote())
    asked = await peer.asked(0)
    peer.reply(0, asked.correlation_id.to_bytes(4, "big") + pair["response"][4:])
    assert (await peer.asked(1)).api_version == fetched
    assert (await peer.asked(2)).api_version == voted


@pytest.mark.parametrize("release", ["kafka-4.3.1", "kafka-3.9.2", None])
async def test_whoever_supports_metadata_version_is_a_controller(release: str | None) -> None:
    """Real controllers say so; we do not."""
    hub, heard = MemoryHub(), []
    async with (
        scripted(hub) as peer,
        engine(MemoryTransport(hub, ANYWHERE), identified=lambda *what: heard.append(what)) as running,
    ):
        running.network.send(1, 1, peer.endpoint, fetch())
        if release is None:
            await peer.tell_versions()
        else:
            (pair, *_) = [pair for pair in pairs(release, "wire") if pair["api_key"] == ApiKey.API_VERSIONS]
            asked = await peer.asked(0)
            peer.reply(0, asked.correlation_id.to_bytes(4, "big") + pair["response"][4:])
        await peer.asked(1)

        assert heard == [(peer.endpoint, release is not None)]


async def test_a_pre_vote_needs_version_2(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote(pre_vote=True))
    running.network.send(2, 1, peer.endpoint, vote())
    await peer.tell_versions(0, {52: (0, 1)})
    await running.until(1)
    assert running.heard == [("failed", 1, Failure.UNSUPPORTED_VERSION)]
    assert (await peer.asked(1)).api_version == 1  # a binding vote goes through


async def test_what_a_peer_does_not_serve_is_not_sent(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, fetch())
    running.network.send(2, 1, peer.endpoint, vote())
    await peer.tell_versions(0, {1: (0, 12), 52: (3, 9)})
    await running.until(1)
    running.network.send(3, 1, peer.endpoint, vote())
    await running.until(2)
    assert running.heard == [("failed", 2, Failure.UNSUPPORTED_VERSION), ("failed", 3, Failure.UNSUPPORTED_VERSION)]


async def test_a_peer_that_knows_only_older_questions_is_asked_in_an_older_one(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    asked = await peer.asked(0)
    refusal = versions_answer({18: (0, 2)}, error_code=ErrorCode.UNSUPPORTED_VERSION)
    peer.reply(0, encode_response(refusal, version=0, correlation_id=asked.correlation_id))
    again = await peer.tell_versions(1)
    assert (again.api_key, again.api_version) == (ApiKey.API_VERSIONS, 2)
    assert (await peer.asked(2)).api_key == ApiKey.VOTE


@pytest.mark.parametrize("named", [{18: (7, 9)}, {18: (0, 4)}, {1: (0, 1)}])
async def test_a_peer_that_knows_none_of_our_questions_cannot_be_asked(
    meeting: Meeting, named: dict[int, tuple[int, int]]
) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    asked = await peer.asked(0)
    refusal = versions_answer(named, error_code=ErrorCode.UNSUPPORTED_VERSION)
    peer.reply(0, encode_response(refusal, version=0, correlation_id=asked.correlation_id))
    await running.until(1)
    assert running.heard == [("failed", 1, Failure.UNSUPPORTED_VERSION)]


async def test_refusing_every_question_does_not_become_a_loop(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    refusal = versions_answer({18: (0, 3)}, error_code=ErrorCode.UNSUPPORTED_VERSION)
    for number in range(2):
        asked = await peer.asked(number)
        peer.reply(number, encode_response(refusal, version=0, correlation_id=asked.correlation_id))
    await running.until(1)
    assert running.heard == [("failed", 1, Failure.UNSUPPORTED_VERSION)]
    assert len(peer.station.requests) == 2


Bad = [
    pytest.param(lambda request: b"", id="empty"),
    pytest.param(lambda request: b"\0\0", id="short"),
    pytest.param(lambda request: request.correlation_id.to_bytes(4, "big"), id="no body"),
    pytest.param(lambda request: request.correlation_id.to_bytes(4, "big") + b"\xff" * 50, id="garbage"),
    pytest.param(lambda request: good(request, request.correlation_id + 1), id="another's correlation id"),
    pytest.param(lambda request: good(request, request.correlation_id)[:-1], id="cut"),
]


def good(request: Any, correlation_id: int) -> bytes:
    message = vote_answer() if request.api_key == ApiKey.VOTE else versions_answer({52: (0, 2)})
    return encode_response(message, version=request.api_version, correlation_id=correlation_id)


@pytest.mark.parametrize("bad", Bad)
async def test_an_answer_that_cannot_be_read_fails_its_question_and_drops_the_connection(
    meeting: Meeting, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    running.network.send(2, 1, peer.endpoint, vote())
    await peer.tell_versions()
    peer.reply(1, bad(await peer.asked(1)) or b"\0")
    await running.until(2)
    assert running.heard == [("failed", 1, Failure.MALFORMED), ("failed", 2, Failure.DISCONNECTED)]
    assert running.network.trouble == {"answer": 1}
    assert "VOTE v2" in caplog.text

    running.network.send(3, 1, peer.endpoint, vote())
    assert (await peer.asked(3)).api_key == ApiKey.API_VERSIONS


@pytest.mark.parametrize("bad", Bad)
async def test_versions_that_cannot_be_read_fail_what_is_held(meeting: Meeting, bad: Any) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    peer.reply(0, bad(await peer.asked(0)) or b"\0")
    await running.until(1)
    assert running.heard == [("failed", 1, Failure.MALFORMED)]


async def test_a_refused_connection_fails_what_is_held_and_is_news() -> None:
    async with engine(MemoryTransport(MemoryHub(), ANYWHERE)) as running:
        running.network.send(1, 3, Endpoint("memory", 99), vote())
        running.network.send(2, 3, Endpoint("memory", 99), vote())
        assert running.heard == []
        await running.until(3)
        assert running.heard == [("failed", 1, Failure.UNSENT), ("failed", 2, Failure.UNSENT), ("lost", 3, True)]


async def test_who_asks_again_while_it_is_told_of_a_loss_gets_a_new_connection(meeting: Meeting) -> None:
    """The core sends its next Fetch as soon as it hears that the last one failed, before it hears of the loss."""
    running, peer = meeting
    inner = running.request_failed

    class Eager(Engine):
        def request_failed(self, correlation_id: int, failure: Failure) -> None:
            inner(correlation_id, failure)
            if correlation_id < 10:
                self.network.send(correlation_id + 10, 1, peer.endpoint, fetch())

    hub = peer.station.transport._hub
    eager = Eager()
    async with engine(MemoryTransport(hub, ANYWHERE)) as other:
        eager.network, other.network._sender._receiver = other.network, eager
        other.network.send(1, 1, peer.endpoint, fetch())
        await peer.tell_versions()
        await peer.asked(1)
        peer.reply(1, None)
        await peer.tell_versions(2)
        await peer.answer(3, fetch_answer())
        await eager.until(2)
        assert eager.heard == [("lost", 1, False), ("response", 11, fetch_answer())]


async def test_a_peer_that_answers_nothing_is_dropped() -> None:
    hub, config = MemoryHub(), RaftConfig(node_id=7, request_timeout_ms=30, fetch_max_wait_ms=10)
    async with scripted(hub) as peer, engine(MemoryTransport(hub, ANYWHERE), config=config) as running:
        running.network.send(1, 1, peer.endpoint, vote())
        await running.until(1)
        running.network.send(2, 1, peer.endpoint, vote())
        await peer.tell_versions(1)
        await running.until(2)
        assert running.heard == [("failed", 1, Failure.UNSENT), ("failed", 2, Failure.DISCONNECTED)]
        assert running.network.trouble == {"answer": 2}


async def test_a_peer_that_goes_on_answering_is_not_dropped(meeting: Meeting) -> None:
    running, peer = meeting
    asking = running.network._sender
    assert asking is not None
    running.network.send(0, 1, peer.endpoint, vote())
    await peer.tell_versions()
    for number in range(1, 10):
        running.network.send(number, 1, peer.endpoint, vote())  # one is always in flight
        await peer.answer(number, vote_answer())
        await running.until(number)
        asking.look()
    await peer.answer(10, vote_answer())
    await running.until(10)
    for _ in range(10):
        asking.look()  # nothing is in flight: an idle peer may be silent
    assert {what for what, *_ in running.heard} == {"response"}
    assert running.network.trouble == {}


async def test_what_is_held_is_bounded(meeting: Meeting) -> None:
    running, peer = meeting
    for number in range(HELD_MAX + 2):
        running.network.send(number, 1, peer.endpoint, vote())
    await running.until(2)
    assert running.heard == [("failed", HELD_MAX + more, Failure.UNSENT) for more in range(2)]


async def test_after_the_end_nothing_is_sent_or_told(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    await peer.asked(0)
    await running.network.close()
    running.network.send(2, 1, peer.endpoint, vote())
    running.network.respond(1, None)
    assert running.heard == []


async def test_an_unknown_error_in_the_answer_is_no_common_version(meeting: Meeting) -> None:
    running, peer = meeting
    running.network.send(1, 1, peer.endpoint, vote())
    await peer.answer(0, ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
    await running.until(1)
    assert running.heard == [("failed", 1, Failure.UNSUPPORTED_VERSION)]


async def test_a_peer_is_met_once_a_connection() -> None:
    """Nothing is asked but who it is, and that not again before the connection is lost."""
    hub, heard = MemoryHub(), []
    async with (
        scripted(hub) as peer,
        engine(MemoryTransport(hub, ANYWHERE), identified=lambda *what: heard.append(what)) as running,
    ):
        running.network.meet(1, peer.endpoint)
        running.network.meet(1, peer.endpoint)
        await peer.tell_versions()
        running.network.send(1, 1, peer.endpoint, fetch())

        assert (await peer.asked(1)).api_key == ApiKey.FETCH
        running.network.meet(1, peer.endpoint)
        assert heard == [(peer.endpoint, False)]
        await peer.answer(1, fetch_answer())
        await running.until(1)
        assert len(peer.station.requests) == 2
