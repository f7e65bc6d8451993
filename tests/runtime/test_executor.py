"""The executor keeps the order of the core's actions: that order is the durability argument."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.errors import (
    ClosedError,
    InvariantError,
    NotLeaderError,
    OutcomeUnknownError,
    ReplicaFailedError,
    StorageError,
)
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.runtime.alarm import ASK_EVERY_MS
from kraftlib.runtime.disk import InlineDisk
from kraftlib.runtime.waiters import APPENDED, APPLIED, COMMITTED, FLUSHED, Appended
from kraftlib.types import ElectionState, Endpoint, LeaderAndEpoch, OffsetAndEpoch, OffsetRange
from tests.runtime.fakes import Rig, TracingLog
from tests.runtime.test_waiters import Slot

SOMEWHERE = Endpoint("127.0.0.1", 9)
VOTE = act.PersistElection(ElectionState(epoch=3), 0)


def batch(base_offset: int, count: int = 1, epoch: int = 3) -> Batch:
    return encode_batch([b"value"] * count, timestamp_ms=1, base_offset=base_offset, epoch=epoch)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.executor.start()
    return rig


# What blocks, suspends ------------------------------------------------------------------------------------------------


def test_nothing_leaves_before_the_vote_is_durable(rig: Rig) -> None:
    rig.core.on(ev.RequestReceived, VOTE, act.SendResponse(7, "granted"))
    rig.executor.submit(ev.RequestReceived(7, "vote", 2))
    assert rig.trace == []
    assert rig.elections.read() is None

    rig.disk.finish()

    assert rig.elections.read() == ElectionState(epoch=3)
    assert rig.trace == ["disk done", "respond granted to 7"]


def test_the_next_event_waits_for_the_disk_too(rig: Rig) -> None:
    rig.core.on(ev.RequestReceived, VOTE, act.SendResponse(7, "granted"))
    rig.core.on(ev.RequestReceived, act.SendResponse(8, "refused"))
    rig.executor.submit(ev.RequestReceived(7, "vote", 2))
    rig.executor.submit(ev.RequestReceived(8, "vote", 2))
    assert len(rig.core.events) == 1

    rig.disk.finish()

    assert rig.trace == ["disk done", "respond granted to 7", "respond refused to 8"]


def test_the_truncated_log_is_news_before_anything_that_came_meanwhile(rig: Rig) -> None:
    rig.log.append([batch(0, 2), batch(2, 3)])
    rig.core.on(ev.ResponseReceived, act.TruncateLog(4))
    rig.executor.submit(ev.ResponseReceived(1, "diverging"))
    rig.executor.submit(ev.TimeoutReached())
    rig.disk.finish()

    assert rig.core.events[1:] == [ev.LogTruncated(2), ev.TimeoutReached()], "only whole batches go"


def test_the_core_hears_the_answers_of_the_disk_in_their_order(rig: Rig) -> None:
    """Each describes the log as it was then, so the last one must be heard last."""
    first, second = OffsetAndEpoch(offset=2, epoch=1), OffsetAndEpoch(offset=4, epoch=1)
    rig.core.on(ev.StateHashed, act.SetSnapshotAside(first, "wrong"), act.SetSnapshotAside(second, "wrong"))
    rig.executor.submit(ev.StateHashed(offset=4, snapshot_version=0, sha256=bytes(32)))
    rig.executor.submit(ev.TimeoutReached())
    rig.disk.finish()
    rig.disk.finish()

    lost = [event.snapshot_id for event in rig.core.events if isinstance(event, ev.SnapshotLost)]
    assert lost == [first, second]
    assert rig.core.events[-1] == ev.TimeoutReached()


def test_ten_thousand_inline_writes_do_not_grow_the_stack() -> None:
    rig = Rig(disk=InlineDisk())
    rig.core.first_actions = [VOTE] * 10_000
    rig.executor.start()

    assert rig.elections.read() == ElectionState(epoch=3)


def test_answers_that_come_while_sending_are_queued_not_nested(rig: Rig) -> None:
    """A transport within one process may answer before `send` returns."""
    rig.network.on_send = lambda correlation_id: rig.executor.submit(ev.ResponseReceived(correlation_id, "answer"))
    requests = [act.SendRequest(number, 2, SOMEWHERE, "hello") for number in range(3)]
    rig.core.on(ev.TimeoutReached, *requests)
    rig.executor.submit(ev.TimeoutReached())

    assert rig.trace == ["send hello to 2"] * 3
    assert rig.core.events == [ev.TimeoutReached(), *(ev.ResponseReceived(number, "answer") for number in range(3))]


# Records come last ----------------------------------------------------------------------------------------------------


def append(rig: Rig, *values: bytes, level: int = COMMITTED, epoch: int | None = None) -> Slot:
    slot = Slot()
    if len(values) == 1:
        rig.executor.appends.append_one(values[0], epoch, level, slot)
    else:
        rig.executor.appends.append(values, epoch, level, slot)
    return slot


def test_what_one_turn_appends_reaches_the_core_as_one_batch(rig: Rig) -> None:
    rig.lead(epoch=3, base_offset=10)
    for number in range(5):
        append(rig, b"value %d" % number)
    assert len(rig.soon) == 1, "one look per turn, however many append"
    rig.turn()

    submitted = rig.core.events[-1]
    assert isinstance(submitted, ev.RecordsSubmitted)
    assert submitted.epoch == 3
    assert [(b.base_offset, b.end_offset, b.epoch) for b in submitted.batches] == [(10, 15, 3)]


def test_the_accumulator_keeps_what_the_core_cannot_use_yet(rig: Rig) -> None:
    rig.lead()
    rig.core.wants_records = False
    append(rig, b"first")
    rig.turn()
    append(rig, b"second")
    rig.turn()
    assert not [event for event in rig.core.events if isinstance(event, ev.RecordsSubmitted)]

    rig.core.wants_records = True
    rig.executor.submit(ev.RequestReceived(1, "fetch", 17))

    submitted = rig.core.events[-1]
    assert isinstance(submitted, ev.RecordsSubmitted)
    assert submitted.batches[0].record_count == 2


def test_nothing_is_drained_while_the_disk_is_waited_for(rig: Rig) -> None:
    rig.lead()
    rig.core.on(ev.RequestReceived, VOTE, act.RefuseAppends(3))
    slot = append(rig, b"value")
    rig.executor.submit(ev.RequestReceived(1, "vote", 2))
    rig.turn()
    rig.disk.finish()
    rig.turn()

    assert not [event for event in rig.core.events if isinstance(event, ev.RecordsSubmitted)]
    assert isinstance(slot.error, NotLeaderError), "it was never written, and says so"


def test_after_a_pause_the_timers_come_before_new_records(rig: Rig) -> None:
    rig.core.deadline = 2_000
    rig.now_ms += ASK_EVERY_MS
    rig.lead()
    append(rig, b"value")
    rig.now_ms = 5_000
    rig.core.on(ev.TimeoutReached, act.RefuseAppends(3))
    rig.turn()

    assert rig.core.events[-1] == ev.TimeoutReached()


def test_a_linger_is_waited_for() -> None:
    rig = Rig(append_linger_ms=25)
    rig.executor.start()
    rig.lead()
    append(rig, b"value")
    rig.turn()
    rig.now_ms = 1_025
    rig.executor.timer_fired()

    assert isinstance(rig.core.events[-1], ev.RecordsSubmitted)


def test_callers_hear_of_every_level(rig: Rig) -> None:
    rig.lead(epoch=3, base_offset=0)
    slots = [append(rig, b"a", b"b", level=level) for level in (APPENDED, FLUSHED, COMMITTED)]
    stamped = batch(0, 6)
    rig.core.on(ev.RecordsSubmitted, act.AppendToLog((stamped,)), act.FlushLog(0))
    rig.core.on(ev.RequestReceived, act.AdvanceHighWatermark(6))

    rig.turn()
    assert [slot.done() for slot in slots] == [True, False, False]
    rig.disk.finish()
    assert [slot.done() for slot in slots] == [True, True, False]
    rig.executor.submit(ev.RequestReceived(1, "fetch", 17))
    assert [slot.result for slot in slots] == [Appended(0, 1, 3), Appended(2, 3, 3), Appended(4, 5, 3)]
    assert rig.trace[-1] == "committed 6"


def test_lost_leadership_is_told_to_every_waiter(rig: Rig) -> None:
    rig.lead(epoch=3, base_offset=0)
    written = append(rig, b"a")
    rig.turn()
    rig.core.wants_records = False
    unwritten = append(rig, b"b")
    applied = append(rig, b"c", level=APPLIED)
    rig.turn()
    rig.core.leader_and_epoch = LeaderAndEpoch(2, 4)
    rig.core.on(ev.RequestReceived, act.RefuseAppends(3))
    rig.executor.submit(ev.RequestReceived(1, "begin", 1))

    assert isinstance(written.error, OutcomeUnknownError)
    assert (written.error.base_offset, written.error.epoch) == (0, 3)
    for slot in (unwritten, applied):
        assert isinstance(slot.error, NotLeaderError)
        assert slot.error.leader == LeaderAndEpoch(2, 4)


# Time -----------------------------------------------------------------------------------------------------------------


def test_the_timer_is_asked_for_only_when_it_must_come_sooner(rig: Rig) -> None:
    for deadline in (2_000, 2_500, 3_000, 1_900):
        rig.now_ms += ASK_EVERY_MS
        rig.core.deadline = deadline
        rig.executor.submit(ev.TimeoutReached())

    assert rig.timers == [2_000, 1_900]


def test_a_timer_that_comes_too_early_is_asked_for_again(rig: Rig) -> None:
    rig.now_ms += ASK_EVERY_MS
    rig.core.deadline = 2_000
    rig.executor.submit(ev.TimeoutReached())
    rig.core.deadline = 3_000
    rig.now_ms = 2_000
    rig.executor.timer_fired()
    assert rig.core.events == [ev.TimeoutReached()]
    assert rig.timers == [2_000, 3_000]
    rig.now_ms = 3_000
    rig.executor.timer_fired()

    assert rig.core.events == [ev.TimeoutReached()] * 2


# The rest of the actions ----------------------------------------------------------------------------------------------


def test_records_are_answered_straight_from_the_log(rig: Rig) -> None:
    rig.log.append([batch(0, 2), batch(2, 2)])
    rig.core.on(ev.RequestReceived, act.SendRecords(5, "response", 2, 1_000_000))
    rig.executor.submit(ev.RequestReceived(5, "fetch", 17))

    assert rig.network.sent_batches == [[batch(2, 2)]] or list(rig.network.sent_batches[0]) == [batch(2, 2)]


@pytest.mark.parametrize(("start", "sent"), [(2, [(2, 4)]), (None, [])])
def test_observers_that_stand_at_one_offset_have_one_answer(
    rig: Rig, start: int | None, sent: list[tuple[int, int]]
) -> None:
    rig.log.append([batch(0, 2), batch(2, 2)])
    rig.core.on(ev.TimeoutReached, act.AnswerObservers((5, 6), "response", start, 1_000_000))
    rig.executor.submit(ev.TimeoutReached())

    assert rig.trace[-1] == f"records {sent} to 5, 6"


def test_snapshots_are_written_and_installed_on_the_disk(rig: Rig) -> None:
    snapshot = OffsetAndEpoch(epoch=2, offset=10)
    rig.core.on(ev.ResponseReceived, act.WriteSnapshotChunk(snapshot, 0, b"12345", 5))
    rig.core.on(ev.SnapshotChunkWritten, act.InstallSnapshot(snapshot))
    rig.core.on(ev.SnapshotInstalled, act.DropSnapshotDownload(), act.SendSnapshotChunk(1, "response", snapshot, 0, 9))
    rig.executor.submit(ev.ResponseReceived(1, "chunk"))
    for _ in range(3):
        rig.disk.finish()

    assert rig.core.events == [
        ev.ResponseReceived(1, "chunk"),
        ev.SnapshotChunkWritten(snapshot, 5),
        ev.SnapshotInstalled(snapshot, ()),
    ]
    assert [line for line in rig.trace if line != "disk done"] == [
        "write 5 at 0",
        "install 10@2",
        "drop download",
        "respond chunk of 10@2 to 1",
    ]


class LogWithHole(TracingLog):
    """Something of it is missing, or not."""

    missing: tuple[OffsetRange, ...] = ()

    def holes(self) -> Sequence[OffsetRange]:
        return self.missing

    def find_damage(self, offset: int) -> Sequence[OffsetRange]:
        raise NotImplementedError

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        raise NotImplementedError

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        self._trace.append(f"delete before {snapshot_id}")


@pytest.mark.parametrize("missing", [(), (OffsetRange(1, 3),)], ids=["whole", "damaged"])
def test_a_damaged_log_is_deleted_from_on_the_disk(missing: tuple[OffsetRange, ...]) -> None:
    """A segment is copied and synced to begin behind the damage; of a whole log nothing but names is forgotten."""
    rig = Rig(log=LogWithHole)
    rig.core.first_actions = [act.DeleteBefore(OffsetAndEpoch(offset=5, epoch=1)), act.AdvanceHighWatermark(6)]
    assert isinstance(rig.log, LogWithHole)
    rig.log.missing = missing
    rig.executor.start()
    rig.executor.submit(ev.TimeoutReached())
    waits = not rig.core.events
    rig.disk.finish_all()

    assert waits == bool(missing)
    assert [line for line in rig.trace if line != "disk done"] == ["delete before 5@1", "committed 6"]
    assert rig.core.events == [ev.TimeoutReached()]


def test_a_damaged_snapshot_is_set_aside_and_another_one_adopted_on_the_disk(rig: Rig) -> None:
    """Whoever waits to load it is told to look again, also that it is gone."""
    snapshot = OffsetAndEpoch(epoch=2, offset=10)
    rig.core.on(ev.SnapshotDamaged, act.AdvanceHighWatermark(7), act.SetSnapshotAside(snapshot, "torn"))
    rig.core.on(ev.SnapshotLost, act.AdoptSnapshot(snapshot))
    rig.executor.submit(ev.SnapshotDamaged(snapshot, "torn"))
    for _ in range(2):
        rig.disk.finish()

    kinds = [type(event) for event in rig.core.events]
    assert kinds == [ev.SnapshotDamaged, ev.SnapshotLost, ev.SnapshotAdopted]
    steps = [line for line in rig.trace if line != "disk done"]
    assert [line for line in steps if "10@2" in line] == ["set 10@2 aside", "adopt 10@2"]
    assert len([line for line in steps if "7" in line]) == 2, steps


def test_news_of_leaders_and_of_the_end_are_passed_on(rig: Rig) -> None:
    rig.core.on(ev.ResponseReceived, act.AnnounceLeader(LeaderAndEpoch(1, 4), 17), act.ShutdownComplete())
    rig.executor.submit(ev.ResponseReceived(1, "granted"))

    assert rig.trace == ["leader 1 of epoch 4 from 17"]
    assert rig.leaders == [LeaderAndEpoch(1, 4)]
    assert rig.shut_down == 1


def test_a_leadership_that_is_over_as_it_begins_is_over_for_the_application(rig: Rig) -> None:
    """The core has resigned when it is announced: otherwise an application would append here again and again."""
    rig.core.role, rig.core.leader_and_epoch = Role.RESIGNED, LeaderAndEpoch(None, 4)
    rig.core.on(ev.ResponseReceived, act.AnnounceLeader(LeaderAndEpoch(1, 4), 17), act.RefuseAppends(4))
    rig.executor.submit(ev.ResponseReceived(1, "granted"))

    assert rig.executor.leader == LeaderAndEpoch(None, 4)


# Fail-stop ------------------------------------------------------------------------------------------------------------


def failed(rig: Rig) -> ReplicaFailedError:
    assert len(rig.failures) == 1
    assert rig.executor.failure is rig.failures[0]
    handled = len(rig.core.events)
    rig.executor.submit(ev.TimeoutReached())
    rig.executor.timer_fired()
    rig.turn()
    assert len(rig.core.events) == handled, "no event after a failure"
    return rig.failures[0]


def test_a_failed_flush_stops_the_replica_and_is_not_tried_again(rig: Rig) -> None:
    rig.lead()
    slot = append(rig, b"value")
    rig.core.on(ev.RecordsSubmitted, act.AppendToLog((batch(0),)), act.FlushLog(0))
    rig.turn()
    rig.disk.finish(StorageError("fdatasync failed", path="log"))

    assert isinstance(failed(rig).__cause__, StorageError)
    assert rig.disk.jobs == type(rig.disk.jobs)()
    assert isinstance(slot.error, ReplicaFailedError)
    assert isinstance(slot.error.__cause__, StorageError)


def test_a_vote_that_cannot_be_written_is_never_spoken(rig: Rig) -> None:
    rig.core.on(ev.RequestReceived, VOTE, act.SendResponse(7, "granted"))
    rig.executor.submit(ev.RequestReceived(7, "vote", 2))
    rig.disk.finish(StorageError("no space left"))

    assert isinstance(failed(rig).__cause__, StorageError)
    assert rig.trace == ["disk done"]


def test_a_bug_of_the_core_stops_the_replica(rig: Rig) -> None:
    rig.core.error = InvariantError("epoch 3 is behind 4")
    rig.executor.submit(ev.TimeoutReached())

    failure = failed(rig)
    assert isinstance(failure.__cause__, InvariantError)
    assert "replica 1 stopped itself: InvariantError: epoch 3 is behind 4" in str(failure)
    with pytest.raises(ReplicaFailedError, match="stopped itself"):
        append(rig, b"value")


def test_an_error_of_the_log_stops_the_rest_of_the_list(rig: Rig) -> None:
    rig.core.on(ev.ResponseReceived, act.AppendToLog((batch(5),)), act.SendResponse(1, "never"))
    rig.executor.submit(ev.ResponseReceived(1, "records"))

    assert isinstance(failed(rig).__cause__, InvariantError)
    assert "respond never to 1" not in rig.trace


def test_a_failure_while_starting_is_a_failure() -> None:
    rig = Rig()
    rig.core.first_actions = [act.AppendToLog((batch(5),))]
    rig.executor.start()

    assert isinstance(failed(rig).__cause__, InvariantError)


def test_after_stop_nothing_happens_and_waiters_hear_what_became_of_their_records(rig: Rig) -> None:
    rig.lead()
    written = append(rig, b"a")
    rig.turn()
    rig.core.wants_records = False
    unwritten = append(rig, b"b")
    rig.executor.stop()
    rig.executor.submit(ev.TimeoutReached())

    assert isinstance(written.error, OutcomeUnknownError)
    assert isinstance(unwritten.error, ClosedError)
    assert rig.core.events[-1] != ev.TimeoutReached()
    with pytest.raises(ClosedError):
        append(rig, b"c")


def test_what_the_disk_finishes_after_stop_is_heard_by_nobody(rig: Rig) -> None:
    rig.core.on(ev.RequestReceived, VOTE, act.SendResponse(7, "granted"))
    rig.executor.submit(ev.RequestReceived(7, "vote", 2))
    rig.executor.stop()
    rig.disk.finish()

    assert rig.trace == ["disk done"]


def test_a_list_ends_where_it_stops_the_replica() -> None:
    class Ending(Rig):
        def _shut_down(self) -> None:
            self.executor.stop()

    rig = Ending()
    rig.executor.start()
    rig.core.on(ev.TimeoutReached, act.ShutdownComplete(), act.SendResponse(1, "never"))
    rig.executor.submit(ev.TimeoutReached())

    assert rig.trace == []
