"""What other answers than those to Fetch say of the high watermark, and when it may be believed."""

from __future__ import annotations

import pytest

from kraftlib.consensus.actions import AdvanceHighWatermark, PassReadBarrier, TruncateLog
from kraftlib.consensus.events import CommitLearned, LogTruncated, ReadBarrierRequested
from kraftlib.consensus.extensions.read_index import lane_to
from kraftlib.consensus.replica import Replica
from kraftlib.types import OffsetAndEpoch
from kraftlib.wire.messages.read_barrier import ReadBarrierResponse
from tests.consensus.build import batch, commits, fetch_response, flush, follower, leader, reply


def learn(core: Replica, offset: int, epoch: int) -> list[int]:
    """Tell a core how far the log is committed; return the high watermarks that it announces."""
    return commits(core.handle(CommitLearned(OffsetAndEpoch(epoch=epoch, offset=offset)), core.state.now_ms))


def test_a_follower_that_has_the_record_knows_that_it_is_committed() -> None:
    core = follower(1, 1, 1)
    assert learn(core, 2, 1) == [2]
    assert core.high_watermark == 2
    assert learn(core, 2, 1) == []
    assert learn(core, 1, 1) == []


def test_a_follower_that_has_it_not_yet_knows_it_with_the_fetch_that_brings_it() -> None:
    core = follower(1, 1)
    assert learn(core, 4, 1) == []
    flush(core)
    data = batch(2, 1, count=2).data
    assert commits(reply(core, 2, fetch_response(epoch=1, leader_id=2, records=bytes(data), high_watermark=2))) == [
        2,
        4,
    ]


@pytest.mark.parametrize(("offset", "epoch"), [(3, 2), (3, 1)])
def test_a_record_of_another_epoch_at_that_place_is_not_the_one_that_is_meant(offset: int, epoch: int) -> None:
    core = follower(1, 1, 3, epoch=4)
    assert learn(core, offset, epoch) == []
    assert core.high_watermark is None


def test_it_counts_for_the_record_that_takes_the_place_of_another() -> None:
    core = follower(1, 1, 2, epoch=3)
    assert learn(core, 3, 3) == []
    flush(core)
    cut = reply(core, 2, fetch_response(epoch=3, leader_id=2, diverging=(2, 1)))
    assert TruncateLog(2) in cut
    core.handle(LogTruncated(2), core.state.now_ms)
    records = bytes(batch(2, 3).data)
    assert commits(reply(core, 2, fetch_response(epoch=3, leader_id=2, records=records, high_watermark=2))) == [2, 3]


def test_a_leader_counts_for_itself() -> None:
    core = leader(1, 1)
    assert learn(core, 2, 1) == []
    assert core.high_watermark is None


def test_the_answer_to_a_read_says_it_as_well() -> None:
    core = follower(1, 1)
    core.handle(ReadBarrierRequested(5, 1_000), core.state.now_ms)
    actions = reply(core, lane_to(2), ReadBarrierResponse(error_code=0, leader_epoch=1, offset=2))
    assert actions[:2] == [AdvanceHighWatermark(2), PassReadBarrier(5, 2)]
