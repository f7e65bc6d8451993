"""Somebody on the network with an eye for particular messages."""

from __future__ import annotations

from typing import Any

from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tests.testing.worlds import world
from tools.scenarios.meddling import Meddling


def test_messages_are_dropped_delayed_repeated_and_rewritten() -> None:
    with world() as made:
        meddling = Meddling(made.network)
        meddling.drop(FetchRequest, source=1, times=1)
        meddling.delay(FetchRequest, 3, source=1)
        meddling.repeat(FetchRequest, source=2, after_ms=(1, 2))
        meddling.alter(FetchResponse, lambda _: None)
        request, response = FetchRequest(), FetchResponse()

        assert meddling(1, 3, request) == ()
        assert meddling(1, 3, request) == ((3_000, request),)
        assert meddling(2, 3, request) == ((0, request), (1_000, request), (2_000, request))
        assert meddling(3, 1, response) == ((0, None),)
        assert meddling(3, 1, request) is None
        assert [rule.count for rule in meddling.rules] == [1, 1, 1, 1]


def test_a_rule_looks_at_kind_source_target_and_message_and_ends() -> None:
    with world() as made:
        meddling = Meddling(made.network)
        rule = meddling.drop(FetchRequest, source=1, target=2, where=lambda message: message.max_wait_ms > 5)
        fitting = FetchRequest(max_wait_ms=6)
        others: list[tuple[int, int, Any]] = [
            (2, 1, fitting),
            (1, 3, fitting),
            (1, 2, FetchRequest()),
            (1, 2, FetchResponse()),
        ]

        assert [meddling(*other) for other in others] == [None] * 4
        assert meddling(1, 2, fitting) == ()
        rule.stop()
        assert meddling(1, 2, fitting) is None
        assert rule.count == 1


def test_what_is_rewritten_arrives_rewritten() -> None:
    with world() as made:
        made.checker.alarms_expected = True
        leader = made.leader()
        assert leader is not None
        meddling = Meddling(made.network)
        rule = meddling.alter(FetchResponse, lambda answer: FetchResponse(error_code=104), source=leader.key.id)
        made.run_for(1_000)

        assert rule.count > 0
        assert all(node.chain.end_offset <= made.committed_end for node in made.nodes.values())
