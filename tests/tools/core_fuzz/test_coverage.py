"""Pairs of a situation and of what came of an event in it."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.types import Endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashResponse
from tools.core_fuzz.coverage import Coverage, answer_of, kind_of, shares


def fetched(**fields: Any) -> FetchResponse:
    partition = FetchResponse.PartitionData(**fields)
    return FetchResponse(responses=(FetchResponse.FetchableTopicResponse(partitions=(partition,)),))


def test_an_answer_is_told_by_what_it_says() -> None:
    diverging = fetched(diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=5))
    refused = fetched(error_code=ErrorCode.FENCED_LEADER_EPOCH)
    told = [answer_of(ev.ResponseReceived(1, answer), ()) for answer in (diverging, refused, fetched(records=b"r"))]

    assert told == ["diverging", "FENCED_LEADER_EPOCH", "records"]
    assert kind_of(ev.ResponseReceived(1, diverging)) == "FetchResponse"


def test_a_request_is_told_by_its_answer() -> None:
    event = ev.RequestReceived(7, FetchRequest(), 18)
    answer = SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)

    assert answer_of(event, []) == "later"
    assert answer_of(event, [act.SendResponse(8, answer), act.SendResponse(7, None)]) == "closed"
    assert answer_of(event, [act.SendResponse(7, answer)]) == "SNAPSHOT_NOT_FOUND"
    assert answer_of(ev.ConnectionLost(1, refused=True), []) == "refused"
    assert kind_of(ev.PeerIdentified(Endpoint("a", 1), is_controller=True)) == "PeerIdentified"


def test_pairs_have_names() -> None:
    coverage = Coverage()
    coverage.count((Role.FOLLOWER, True, False), "FetchResponse", "diverging")
    coverage.count((Role.LEADER, False, True), "Flushed", "")
    coverage.count((Role.LEADER, False, True), "Flushed", "")

    assert coverage.named() == {"follower? FetchResponse diverging": 1, "leader! Flushed": 2}


def test_themes_that_reach_rare_pairs_get_more() -> None:
    reached = {"wide": {"common": 900, "rare": 1, "rarer": 1}, "narrow": {"common": 1_000}, "idle": {}}
    drawn = shares(reached, {"wide": 10, "narrow": 10, "idle": 10})

    assert sum(drawn.values()) == pytest.approx(1.0)
    assert drawn["wide"] > 4 * drawn["narrow"] > drawn["idle"] > 0.03
    assert shares(reached, {"wide": 1_000, "narrow": 10, "idle": 10})["wide"] < drawn["wide"]
