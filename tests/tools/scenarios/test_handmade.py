"""Hand-made messages: they are what replicas send, in every version, and say what they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.codec.declared import read, write
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotResponse
from kraftlib.wire.messages.vote import VoteResponse
from tools.scenarios import handmade as msg

KEY = ReplicaKey(2)
END = OffsetAndEpoch(epoch=3, offset=70)
REQUESTS = [
    msg.vote(KEY, 4, cluster_id="c", end=END),
    msg.vote(KEY, 4, cluster_id="c", end=END, pre_vote=True, voter_id=1),
    msg.begin(2, 4, cluster_id="c"),
    msg.end(2, 4, cluster_id="c"),
    msg.fetch(KEY, 4, cluster_id="c", offset=7, last_epoch=3),
    msg.fetch_snapshot(KEY, 4, cluster_id="c", snapshot=END, position=9),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_what_is_made_by_hand_can_be_sent(request_: Any) -> None:
    version = type(request_).valid_versions.last

    assert read(type(request_), write(request_, version), version, expect_end=True) == request_


def test_a_vote_in_earnest_is_told_from_one_in_advance() -> None:
    assert [msg.is_real_vote(request) for request in REQUESTS[:2]] == [True, False]


def fetch_answer(**fields: Any) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(partitions=(FetchResponse.PartitionData(**fields),))
    return FetchResponse(responses=(topic,))


def test_answers_are_read() -> None:
    empty, records = fetch_answer(), fetch_answer(records=b"12345678")
    granted = VoteResponse.PartitionData(vote_granted=True)

    assert [msg.has_records(answer) for answer in (FetchResponse(), empty, records)] == [False, False, True]
    assert [msg.diverges(answer) for answer in (FetchResponse(), empty)] == [False, False]
    assert msg.diverges(msg.diverging(records, epoch=1, end_offset=4))
    assert not msg.has_records(msg.diverging(records, epoch=1, end_offset=4))
    assert [msg.grants(answer) for answer in (None, VoteResponse())] == [False, False]
    assert msg.grants(VoteResponse(topics=(VoteResponse.TopicData(partitions=(granted,)),)))
    assert not msg.names_snapshot(empty)
    assert not msg.has_chunk(FetchSnapshotResponse())


def test_one_bit_is_flipped() -> None:
    before = b"12345678"
    after = msg.flipped(fetch_answer(records=before), place=3)

    assert sum(bin(a ^ b).count("1") for a, b in zip(before, after, strict=True)) == 1
