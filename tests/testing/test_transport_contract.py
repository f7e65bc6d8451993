"""The kit finds what it is for: each planted bug breaks a check, and each check is broken by one."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import attrs
import pytest

from kraftlib.errors import InvariantError
from kraftlib.runtime.net.answer_queue import Answer, AnswerQueue
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Destination, FrameReceiver, Reply
from kraftlib.testing import transport_contract as kit
from kraftlib.types import Endpoint


class Through:
    """A receiver in front of the engine, for bugs in what it is told."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self.receiver = receiver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.receiver, name)


class WrongBytes(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        super().send(destination, frame[::-1], reply)


class ShortFrames(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        super().send(destination, frame[:1_000_000], reply)


class CallsBackAtOnce(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        if self._hub.route(self._endpoint, destination.endpoint) is None:
            reply(None)
        super().send(destination, frame, reply)


class TellsNothing(MemoryTransport):
    async def start(self, receiver: FrameReceiver) -> Endpoint:
        class Deaf(Through):
            def connection_lost(self, destination: Destination, refused: bool) -> None:
                pass

        return await super().start(Deaf(receiver))


class TellsTheEngineFirst(MemoryTransport):
    def ended(self, connection: Any, replies: Any, refused: bool) -> None:
        super().ended(connection, (), refused)
        for reply in replies:
            reply(None)


class CallsEveryLossRefused(MemoryTransport):
    def ended(self, connection: Any, replies: Any, refused: bool) -> None:
        super().ended(connection, replies, True)


class TellsOfOurOwnDisconnect(MemoryTransport):
    def disconnect(self, destination: Destination) -> None:
        connection = self._made.get(destination.number)
        if connection is not None:
            self.post(connection.end, False)


class ForgetsWhoWaits(MemoryTransport):
    async def close(self) -> None:
        for connection in self._made.values():
            connection._replies.clear()
        await super().close()


class SharesConnections(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        super().send(Destination(0, destination.endpoint), frame, reply)

    def disconnect(self, destination: Destination) -> None:
        super().disconnect(Destination(0, destination.endpoint))


class StaysWhereItWas(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        made = self._made.get(destination.number)
        super().send(destination if made is None else made.destination, frame, reply)


class OnlyOnce(MemoryTransport):
    """Never connects anew."""

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        seen = self.__dict__.setdefault("seen", set())
        if destination in seen and destination.number not in self._made:
            self.post(reply, None)
            return
        seen.add(destination)
        super().send(destination, frame, reply)


class IgnoresNone(MemoryTransport):
    async def start(self, receiver: FrameReceiver) -> Endpoint:
        class Polite(Through):
            def request_received(self, frame: Any, reply: Reply, peer: Any) -> None:
                self.receiver.request_received(frame, lambda answer: reply(answer or b"sorry"), peer)

        return await super().start(Polite(receiver))


class OneAtATime(MemoryTransport):
    """Holds every request while one of anybody is unanswered."""

    def take(self, accepted: Any, frame: Any) -> None:
        if any(len(other.answers) for other in self._accepted):
            self.post(self.take, accepted, frame)
        else:
            super().take(accepted, frame)


class Overtaking(AnswerQueue):
    def given(self, answer: Answer) -> None:
        if self.unsent:
            self.unsent.remove(answer)
            self.unsent.appendleft(answer)
        super().given(answer)


class AnswersOutOfOrder(MemoryTransport):
    def take(self, accepted: Any, frame: Any) -> None:
        if not isinstance(accepted.answers, Overtaking):
            accepted.answers = Overtaking(accepted._send, accepted.hang_up)
        super().take(accepted, frame)


class AnswersTwice(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        def twice(answer: Any) -> None:
            reply(answer)
            reply(answer)

        super().send(destination, frame, twice)


class AsksTwice(MemoryTransport):
    async def start(self, receiver: FrameReceiver) -> Endpoint:
        class Eager(Through):
            def request_received(self, frame: Any, reply: Reply, peer: Any) -> None:
                self.receiver.request_received(frame, reply, peer)
                self.receiver.request_received(frame, lambda answer: None, peer)

        return await super().start(Eager(receiver))


class NamesNobody(MemoryTransport):
    async def start(self, receiver: FrameReceiver) -> Endpoint:
        class Nameless(Through):
            def request_received(self, frame: Any, reply: Reply, peer: Any) -> None:
                self.receiver.request_received(frame, reply, attrs.evolve(peer, address=""))

        return await super().start(Nameless(receiver))


class CallsFromAThread(MemoryTransport):
    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        def elsewhere(answer: Any) -> None:
            thread = threading.Thread(target=reply, args=(answer,))
            thread.start()
            thread.join()

        super().send(destination, frame, elsewhere)


class SwapsRequests(MemoryTransport):
    """Two that are sent in one turn arrive the other way round."""

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        self.post(super().send, destination, frame, reply) if len(frame) % 2 else super().send(
            destination, frame, reply
        )


class KeepsADescriptor(MemoryTransport):
    async def start(self, receiver: FrameReceiver) -> Endpoint:
        self.kept = os.dup(0)
        KEPT.append(self.kept)
        return await super().start(receiver)


KEPT: list[int] = []

BUGS = {
    WrongBytes: kit.a_request_is_answered,
    ShortFrames: kit.frames_of_any_size_pass,
    CallsBackAtOnce: kit.a_refused_connection_is_news,
    TellsNothing: kit.a_lost_idle_connection_is_news,
    TellsTheEngineFirst: kit.a_refused_connection_is_news,
    CallsEveryLossRefused: kit.a_lost_connection_is_news,
    TellsOfOurOwnDisconnect: kit.a_disconnect_of_our_own_is_no_news,
    ForgetsWhoWaits: kit.closing_leaves_nobody_waiting,
    SharesConnections: kit.destinations_of_different_numbers_share_nothing,
    StaysWhereItWas: kit.a_number_that_moves_is_followed,
    OnlyOnce: kit.a_peer_that_returns_is_reached_again,
    IgnoresNone: kit.none_instead_of_an_answer_closes_the_connection,
    OneAtATime: kit.a_held_answer_holds_back_no_other_connection,
    AnswersOutOfOrder: kit.answers_leave_in_the_order_of_their_requests,
    AnswersTwice: kit.answers_leave_in_the_order_of_their_requests,
    AsksTwice: kit.a_request_is_answered,
    NamesNobody: kit.a_request_is_answered,
    CallsFromAThread: kit.a_request_is_answered,
    SwapsRequests: kit.frames_of_any_size_pass,
    KeepsADescriptor: kit.closing_releases_every_descriptor,
}


@pytest.mark.parametrize(("bug", "check"), BUGS.items(), ids=lambda value: value.__name__)
async def test_a_planted_bug_is_found(
    bug: type[MemoryTransport], check: kit.TransportCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "PATIENCE_S", 0.2)  # some bugs show as an answer that never comes
    hub = MemoryHub()

    with pytest.raises((InvariantError, TimeoutError)):
        await check(lambda at: bug(hub, at or Endpoint("memory", 0)))
    await asyncio.sleep(0)
    while KEPT:
        os.close(KEPT.pop())


def test_every_check_is_broken_by_a_planted_bug() -> None:
    assert set(kit.TRANSPORT_CHECKS) == set(BUGS.values())
