"""The listener that holds KRaft to its contract."""

from __future__ import annotations

import pytest

from kraftlib.records.serde import BytesSerde
from kraftlib.runtime.committed import BatchReader, CommittedBatch
from kraftlib.testing.listener_watch import ListenerWatch
from kraftlib.types import LeaderAndEpoch
from tests.testing.logs import batch
from tests.testing.worlds import world


def test_a_gap_is_seen_and_so_is_what_is_not_committed() -> None:
    for offset in (1, 0):
        with world() as made:
            process = made.nodes[1].process
            assert process is not None
            watch = ListenerWatch(made.checker, process)
            reader = BatchReader([CommittedBatch(batch(offset, 99), BytesSerde())], on_close=lambda: None)
            watch.handle_commit(reader)

            assert made.violation is not None
            assert made.violation.invariant == "I15"
            assert watch.next_offset == offset + 1


def test_a_leader_that_hears_of_itself_too_early_is_seen() -> None:
    with world() as made:
        made.workload.start()
        made.run_for(300)
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        process, epoch = leader.process, leader.process.replica.epoch
        ListenerWatch(made.checker, process).handle_leader_change(LeaderAndEpoch(leader.key.id, epoch - 1))
        assert made.violation is None
        process.replica.state.role_state.epoch_start_offset = 3  # type: ignore[union-attr]
        ListenerWatch(made.checker, process).handle_leader_change(LeaderAndEpoch(leader.key.id, epoch))

        assert made.violation is not None
        assert made.violation.invariant == "I15"


@pytest.mark.parametrize(
    ("told", "again"),
    [
        (LeaderAndEpoch(None, 5), LeaderAndEpoch(None, 5)),
        (LeaderAndEpoch(2, 5), LeaderAndEpoch(2, 5)),
        (LeaderAndEpoch(2, 5), LeaderAndEpoch(None, 5)),
        (LeaderAndEpoch(2, 5), LeaderAndEpoch(3, 5)),
        (LeaderAndEpoch(None, 5), LeaderAndEpoch(2, 4)),
    ],
    ids=["unknown twice", "known twice", "known and then unknown", "another leader", "an older epoch"],
)
def test_what_is_no_news_of_a_leader_is_seen(told: LeaderAndEpoch, again: LeaderAndEpoch) -> None:
    with world() as made:
        process = made.nodes[1].process
        assert process is not None
        watch = ListenerWatch(made.checker, process)
        for leader in (LeaderAndEpoch(None, 3), LeaderAndEpoch(2, 3), LeaderAndEpoch(3, 4), told):
            watch.handle_leader_change(leader)
        assert made.violation is None
        watch.handle_leader_change(again)

        assert made.violation is not None
        assert made.violation.invariant == "I15"
        assert str(again) in str(made.violation)
