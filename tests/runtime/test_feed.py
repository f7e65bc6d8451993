from __future__ import annotations

import pytest

from kraftlib.runtime.committed import BatchReader
from kraftlib.runtime.feed import Feed
from kraftlib.runtime.listener import Listener
from kraftlib.types import LeaderAndEpoch, OffsetAndEpoch


@pytest.mark.parametrize(
    ("told", "leader", "is_news"),
    [
        (None, LeaderAndEpoch(None, 0), True),
        (LeaderAndEpoch(None, 3), LeaderAndEpoch(2, 3), True),
        (LeaderAndEpoch(2, 3), LeaderAndEpoch(None, 4), True),
        (LeaderAndEpoch(2, 3), LeaderAndEpoch(2, 3), False),
        (LeaderAndEpoch(2, 3), LeaderAndEpoch(None, 3), False),
        (LeaderAndEpoch(2, 4), LeaderAndEpoch(1, 3), False),
    ],
)
def test_a_newer_epoch_or_the_first_leader_of_this_one_is_news(
    told: LeaderAndEpoch | None, leader: LeaderAndEpoch, is_news: bool
) -> None:
    assert Feed(Listener(), told=told).is_news(leader) == is_news


def test_a_listener_that_could_not_load_a_snapshot_is_still_loading() -> None:
    feed = Feed(Listener())
    assert not feed.is_loading
    feed.reader = BatchReader([], on_close=lambda: None)
    assert not feed.is_loading
    feed.failed_to_load = OffsetAndEpoch(offset=3, epoch=1)
    assert feed.is_loading
