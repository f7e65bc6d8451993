"""The leader's side of an append: offsets are promised at once, and refusals leave nothing behind."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    ReplicaFailedError,
    StorageError,
)
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.runtime.appends import Appends
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.waiters import APPENDED, APPLIED, COMMITTED, Appended, Waiters
from kraftlib.types import LeaderAndEpoch
from tests.runtime.fakes import ScriptedCore
from tests.runtime.test_waiters import Slot

CONFIG = RaftConfig(node_id=1, batch_max_bytes=2_000, backlog_max_bytes=3_000)


class Rig:
    def __init__(self, config: RaftConfig = CONFIG) -> None:
        self.core = ScriptedCore()
        self.waiters = Waiters()
        self.woken = 0
        self.now_ms = 1_000
        self.appends = Appends(
            self.core,
            config=config,
            waiters=self.waiters,
            metrics=RaftMetrics(),
            clock=lambda: self.now_ms,
            wall_clock=lambda: 1_700_000_000_000,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def lead(self, epoch: int = 3, base_offset: int = 10) -> None:
        self.core.leader_and_epoch = LeaderAndEpoch(1, epoch)
        self.appends.accept(epoch, base_offset)

    def append(self, *values: bytes, epoch: int | None = None, level: int = COMMITTED) -> Slot:
        slot = Slot()
        if len(values) == 1:
            self.appends.append_one(values[0], epoch, level, slot)
        else:
            self.appends.append(values, epoch, level, slot)
        return slot


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def test_offsets_are_promised_in_order_and_kept(rig: Rig) -> None:
    one, two = rig.append(b"a", level=APPENDED), rig.append(b"b", b"c", level=APPENDED)
    (batch,) = rig.appends.drain(rig.now_ms)
    rig.appends.written(batch.end_offset)

    assert (batch.base_offset, batch.end_offset, batch.epoch, batch.values()) == (10, 13, 3, [b"a", b"b", b"c"])
    assert batch.max_timestamp == 1_700_000_000_000
    assert (one.result, two.result) == (Appended(10, 10, 3), Appended(11, 12, 3))
    assert rig.appends.written_end == 13


def test_many_appends_wake_once_and_again_after_the_drain(rig: Rig) -> None:
    for _ in range(5):
        rig.append(b"a")
    assert rig.woken == 1
    assert rig.appends.pending
    rig.appends.drain(rig.now_ms)
    assert not rig.appends.pending
    rig.append(b"a")
    assert rig.woken == 2


def test_commits_make_room(rig: Rig) -> None:
    rig.append(b"x" * 1_500)
    rig.appends.drain(rig.now_ms)
    with pytest.raises(BacklogFullError):
        rig.append(b"x" * 1_500)
    rig.appends.committed(11)
    rig.append(b"x" * 1_500)


def test_who_does_not_lead_says_who_does() -> None:
    rig = Rig()
    with pytest.raises(NotLeaderError, match="no leader is known yet"):
        rig.append(b"a")
    rig.core.leader_and_epoch = LeaderAndEpoch(2, 4)
    with pytest.raises(
        NotLeaderError, match="replica 1 does not lead epoch 4, nothing was appended; append to 2"
    ) as error:
        rig.append(b"a")
    assert error.value.leader == LeaderAndEpoch(2, 4)
    rig.core.leader_and_epoch = LeaderAndEpoch(1, 5)
    with pytest.raises(NotLeaderError, match="it was elected and is about to"):
        rig.append(b"a")


def test_an_epoch_is_the_one_that_is_led_or_an_error(rig: Rig) -> None:
    rig.append(b"a", epoch=3)
    rig.append(b"a", b"b", epoch=3)
    for values in ([b"a"], [b"a", b"b"]):
        with pytest.raises(NotLeaderError, match="epoch=2 is over: replica 1 leads epoch 3 now"):
            rig.append(*values, epoch=2)
        with pytest.raises(ConfigError, match="epoch=4 is newer than 3"):
            rig.append(*values, epoch=4)


def test_what_is_refused_leaves_no_waiter_and_no_hole(rig: Rig) -> None:
    for values, error in (([b"x" * 2_001], RecordTooLargeError), ([], ConfigError), ([b"a", b""], ConfigError)):
        with pytest.raises(error):
            rig.append(*values)
    assert len(rig.waiters) == 0
    rig.append(b"a")
    (batch,) = rig.appends.drain(rig.now_ms)
    assert batch.base_offset == 10


def test_prepared_values_wait_for_their_schedule(rig: Rig) -> None:
    assert rig.appends.prepare([b"a", b"b"], epoch=3) == 11
    assert rig.appends.drain(rig.now_ms) == ()
    rig.appends.schedule_prepared()
    assert rig.appends.pending
    (batch,) = rig.appends.drain(rig.now_ms)
    assert batch.values() == [b"a", b"b"]
    rig.appends.refuse(3, 0)
    rig.appends.schedule_prepared()  # the leadership is over: they never are
    assert rig.appends.drain(rig.now_ms) == ()


def test_control_records_are_a_batch_of_their_own(rig: Rig) -> None:
    rig.append(b"a")
    rig.appends.append_control([LeaderChangeMessage(leader_id=1)])
    rig.append(b"b")
    batches = rig.appends.drain(rig.now_ms)
    assert [(batch.is_control, batch.base_offset) for batch in batches] == [(False, 10), (True, 11), (False, 12)]
    rig.appends.refuse(3, 0)
    rig.appends.append_control([LeaderChangeMessage(leader_id=1)])
    assert not rig.appends.pending


def test_a_linger_holds_back_until_it_ends() -> None:
    rig = Rig(attrs.evolve(CONFIG, append_linger_ms=25))
    assert rig.appends.next_deadline_ms() is None
    rig.lead()
    rig.append(b"a")
    assert rig.appends.next_deadline_ms() == 1_025
    assert rig.appends.drain(1_024) == ()
    assert rig.appends.pending
    assert len(rig.appends.drain(1_025)) == 1


def test_the_end_of_a_leadership_tells_written_from_unwritten(rig: Rig) -> None:
    written = rig.append(b"a")
    rig.appends.drain(rig.now_ms)
    unwritten = rig.append(b"b")
    rig.core.leader_and_epoch = LeaderAndEpoch(None, 4)
    rig.appends.refuse(3, 10)

    assert isinstance(written.error, OutcomeUnknownError)
    assert "replica 1 lost the leadership of epoch 3" in str(written.error)
    assert isinstance(unwritten.error, NotLeaderError)
    assert not rig.appends.leads
    rig.lead(epoch=5, base_offset=20)
    late = rig.append(b"c", level=APPENDED)
    rig.appends.drain(rig.now_ms)
    rig.appends.written(21)
    assert late.result == Appended(20, 20, 5)


def test_a_closing_replica_takes_nothing_new_and_finishes_the_old(rig: Rig) -> None:
    old = rig.append(b"a")
    rig.appends.begin_close()
    for values in ([b"b"], [b"b", b"c"]):
        with pytest.raises(ClosedError):
            rig.append(*values)
    rig.appends.drain(rig.now_ms)
    rig.appends.committed(11)
    assert old.result == Appended(10, 10, 3)


def test_a_failed_replica_says_why_to_everybody(rig: Rig) -> None:
    waiting = rig.append(b"a")
    cause = StorageError("the disk is gone")

    def failure() -> ReplicaFailedError:
        error = ReplicaFailedError("it stopped itself")
        error.__cause__ = cause
        return error

    rig.appends.fail(failure)
    assert isinstance(waiting.error, ReplicaFailedError)
    with pytest.raises(ReplicaFailedError, match="it stopped itself") as raised:
        rig.append(b"b")
    assert raised.value.__cause__ is cause


def test_nobody_waits_for_a_state_machine_that_failed(rig: Rig) -> None:
    rig.waiters.fail_applied(ReplicaFailedError("the state machine raised"), "it raised")
    with pytest.raises(ReplicaFailedError, match="the state machine raised"):
        rig.append(b"a", level=APPLIED)
    rig.append(b"a", level=COMMITTED)
