"""Listeners get what is committed: in order, exactly once, and at nobody else's cost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError, KraftError, OutcomeUnknownError, ReplicaFailedError, StorageError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.records.serde import BytesSerde
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.runtime import applier as applier_module
from kraftlib.runtime import slices
from kraftlib.runtime.applier import Applier
from kraftlib.runtime.committed import BatchReader, CommittedRecord, LoadedSnapshot
from kraftlib.runtime.listener import Listener, StateMachine, StateMachineListener
from kraftlib.runtime.waiters import APPLIED, Appended, Waiters
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.log import chain as segments
from kraftlib.storage.log.chain import restart_at
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import LeaderAndEpoch, OffsetAndEpoch
from tests.runtime.fakes import ManualDisk
from tests.runtime.test_waiters import Slot

NODE_ID = 1


class Recorder(Listener):
    """Remembers what it is told, in order."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.records: list[tuple[int, bytes]] = []
        self.offsets: list[tuple[int, int]] = []

    def handle_commit(self, reader: BatchReader) -> None:
        for batch in reader:
            self.offsets.append((batch.base_offset, batch.last_offset))
            self.records += [(record.offset, record.value) for record in batch.records]
        self.heard.append(("commit", reader.base_offset, reader.last_offset))

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        self.heard.append(("snapshot", reader.snapshot_id, list(reader.values())))

    def handle_load_bootstrap(self, reader: LoadedSnapshot) -> None:
        self.heard.append(("bootstrap", reader.snapshot_id))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.heard.append(("leader", leader.leader_id, leader.epoch))

    def begin_shutdown(self) -> None:
        self.heard.append("shutdown")


class Holding(Recorder):
    """Keeps what it is given to read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[BatchReader] = []

    def handle_commit(self, reader: BatchReader) -> None:
        reader.hold()
        self.readers.append(reader)


class Broken(Listener):
    """Raises whatever it is told."""

    calls = 0

    def handle_commit(self, reader: BatchReader) -> None:
        self.calls += 1
        raise ValueError("not my day")

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.calls += 1
        raise ValueError("not my day")


class Summing(StateMachine):
    """Adds up numbers; each result is the sum so far."""

    def __init__(self) -> None:
        self.total = 0
        self.applied: list[int] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.total += int(record.value)
        self.applied.append(record.offset)
        return self.total

    def restore(self, values: Iterable[Any]) -> None:
        self.total = sum(map(int, values))


class NeverError(KraftError):
    """Of something that does not happen."""


class Rig:
    def __init__(self, *, log: Any = None, checks: Any = None) -> None:
        self.log = MemoryReplicatedLog() if log is None else log
        self.waiters = Waiters()
        self.soon: deque[Callable[[], None]] = deque()
        self.failures: list[BaseException] = []
        self.damage: list[int] = []
        self.applier = Applier(
            node_id=NODE_ID,
            log=self.log,
            serde=BytesSerde(),
            waiters=self.waiters,
            call_soon=self.soon.append,
            call_soon_threadsafe=self.soon.append,
            on_failure=self.failures.append,
            on_damage=lambda offset, error: self.damage.append(offset),
            checks=checks,
        )

    def append(self, *values: bytes, epoch: int = 1) -> int:
        batch = encode_batch(values, timestamp_ms=5, base_offset=self.log.end_offset, epoch=epoch)
        self.log.append([batch])
        return batch.end_offset

    def append_control(self, epoch: int = 1) -> int:
        records = [LeaderChangeMessage(leader_id=NODE_ID)]
        batch = encode_control_batch(records, timestamp_ms=5, base_offset=self.log.end_offset, epoch=epoch)
        self.log.append([batch])
        return batch.end_offset

    def snapshot(self, offset: int, epoch: int, *values: bytes) -> OffsetAndEpoch:
        snapshot_id = OffsetAndEpoch(epoch=epoch, offset=offset)
        sink = self.log.create_snapshot(snapshot_id)
        writer = SnapshotWriter(sink.write, epoch=epoch, last_contained_log_timestamp=9)
        writer.append(values)
        writer.freeze()
        sink.freeze()
        return snapshot_id

    def machine(self) -> Summing:
        machine = Summing()

        def deliver(end_offset: int, base_offset: int, results: Any) -> None:
            self.waiters.applied(end_offset, base_offset=base_offset, results=results)

        listener = StateMachineListener(machine, deliver=deliver, wants_results=lambda: self.waiters.wants_results)
        self.applier.register(listener, state_machine=True)
        return machine

    def proposal(self, base: int, *, last: int | None = None, epoch: int = 1) -> Slot:
        """Wait for the result of the records from `base` to `last`."""
        slot = Slot()
        self.waiters.queues[APPLIED].append((base if last is None else last, base, epoch, slot))
        return slot

    def barrier(self, offset: int) -> Slot:
        """Wait until that record is applied."""
        slot = Slot()
        self.applier.wait_for(offset, slot)
        return slot

    def run(self) -> None:
        while self.soon:
            self.soon.popleft()()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_only_what_is_committed_is_given_and_control_batches_count(rig: Rig) -> None:
    rig.append_control()
    rig.append(b"a", b"b")
    rig.append(b"uncommitted")
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.advance(3)
    rig.run()

    assert listener.records == [(1, b"a"), (2, b"b")]
    assert listener.offsets == [(0, 0), (1, 2)]
    assert rig.applier.applied_offset == 3


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=25))
def test_every_listener_gets_every_record_once_and_in_order(steps: list[tuple[int, bool]]) -> None:
    """Whenever it registers, however appends, commits and turns interleave."""
    rig = Rig()
    listeners: list[Recorder] = []
    written: list[tuple[int, bytes]] = []
    for number, (count, commit) in enumerate(steps):
        base = rig.log.end_offset
        values = [b"%d" % (base + index) for index in range(count)]
        rig.append(*values)
        written += [(base + index, value) for index, value in enumerate(values)]
        if number % 3 == 0:
            listeners.append(Recorder())
            rig.applier.register(listeners[-1])
        if commit:
            rig.applier.advance(rig.log.end_offset)
        if number % 2 and rig.soon:
            rig.soon.popleft()()
    rig.applier.advance(rig.log.end_offset)
    rig.run()

    for listener in listeners:
        assert listener.records == written


def test_without_listeners_everything_committed_counts_as_applied(rig: Rig) -> None:
    rig.append(b"5")
    slot = rig.proposal(0)
    rig.applier.advance(1)
    rig.run()

    assert slot.result == Appended(0, 0, 1)


# Snapshots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goes_on", [True, False])
def test_nobody_gets_a_result_for_a_record_that_a_snapshot_has_replaced(rig: Rig, goes_on: bool) -> None:
    """Its result is nowhere to be had, and that of another record must not stand in for it."""
    rig.machine()
    slots = [rig.proposal(rig.append(b"1") - 1) for _ in range(9)]
    rig.waiters.leadership_lost(written_end=9, high_watermark=9, refusal=NeverError, reason="another one leads")
    rig.log.install_snapshot(rig.snapshot(11, 2, b"100"))
    if goes_on:
        rig.append(*[b"7"] * 8, epoch=2)
    rig.applier.advance(rig.log.end_offset)
    rig.run()

    assert [slot.result for slot in slots] == [None] * 9
    for offset, slot in enumerate(slots):
        assert isinstance(slot.error, OutcomeUnknownError)
        assert (slot.error.base_offset, slot.error.epoch) == (offset, 1)
        assert "a snapshot took their place" in str(slot.error)


def test_a_proposal_behind_a_loaded_snapshot_gets_its_own_result(rig: Rig) -> None:
    rig.machine()
    rig.append(b"1")
    skipped = rig.proposal(0)
    rig.log.install_snapshot(rig.snapshot(11, 2, b"100"))
    rig.append(b"7", epoch=2)
    own = rig.proposal(11, epoch=2)
    rig.applier.advance(12)
    rig.run()

    assert isinstance(skipped.error, OutcomeUnknownError)
    assert own.result == Appended(11, 11, 2, (107,))


def test_other_leaders_are_news_at_once_and_only_the_latest(rig: Rig) -> None:
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.announce(LeaderAndEpoch(None, 2), epoch_start=0)
    rig.applier.announce(LeaderAndEpoch(3, 2), epoch_start=0)
    rig.run()
    rig.applier.announce(LeaderAndEpoch(None, 3), epoch_start=0)
    rig.run()

    assert listener.heard == [("leader", 3, 2), ("leader", None, 3)]


@given(st.lists(st.tuples(st.sampled_from((None, 2)), st.integers(0, 3), st.booleans()), max_size=25))
def test_no_news_is_told_twice_however_announcements_and_turns_interleave(
    steps: list[tuple[int | None, int, bool]],
) -> None:
    """Epochs only grow; here by 0 or 1 at a time, so that most announcements repeat an epoch."""
    rig, epoch = Rig(), 0
    listener = Recorder()
    rig.applier.register(listener)
    for leader_id, chance, turn in steps:
        epoch += chance == 0
        rig.applier.announce(LeaderAndEpoch(leader_id, epoch), epoch_start=0)
        if turn:
            rig.run()
    rig.run()

    told = [(epoch, leader_id is not None) for _, leader_id, epoch in listener.heard]
    assert told == sorted(set(told))
    assert not steps or told[-1][0] == epoch, "the latest epoch is never kept from anybody"


def test_a_late_listener_hears_of_the_leader_once_and_nobody_else_again(rig: Rig) -> None:
    early, late = Recorder(), Recorder()
    rig.applier.register(early)
    rig.applier.announce(LeaderAndEpoch(3, 2), epoch_start=0)
    rig.run()
    rig.applier.register(late)
    rig.run()
    rig.applier.announce(LeaderAndEpoch(3, 2), epoch_start=0)
    rig.run()

    assert (early.heard, late.heard) == ([("leader", 3, 2)], [("leader", 3, 2)])


def test_who_registers_again_is_new(rig: Rig) -> None:
    listener = Recorder()
    rig.applier.announce(LeaderAndEpoch(3, 2), epoch_start=0)
    rig.applier.register(listener)
    rig.run()
    rig.applier.unregister(listener)
    rig.applier.register(listener)
    rig.run()

    assert listener.heard == [("leader", 3, 2)] * 2


def test_news_that_waits_behind_a_held_reader_is_the_latest_when_it_comes(rig: Rig) -> None:
    listener = Holding()
    rig.applier.register(listener)
    rig.applier.advance(rig.append(b"1"))
    rig.run()
    for leader in (LeaderAndEpoch(2, 5), LeaderAndEpoch(None, 5), LeaderAndEpoch(2, 5), LeaderAndEpoch(2, 5)):
        rig.applier.announce(leader, epoch_start=0)
        rig.run()
    assert listener.heard == []
    listener.readers[0].close()
    rig.run()

    assert listener.heard == [("leader", 2, 5)]


def test_a_leader_that_resigned_hears_of_the_next_epoch_and_no_more_of_its_own(rig: Rig) -> None:
    """Whoever was told that this replica leads learns of the end of it with the next epoch (Kafka's Resigned)."""
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.advance(rig.append_control(epoch=2))
    rig.applier.announce(LeaderAndEpoch(None, 2), epoch_start=0)
    rig.run()
    rig.applier.announce(LeaderAndEpoch(NODE_ID, 2), epoch_start=0)
    rig.run()
    rig.applier.leadership_over()
    rig.applier.announce(LeaderAndEpoch(None, 2), epoch_start=0)
    rig.run()
    rig.applier.announce(LeaderAndEpoch(None, 3), epoch_start=0)
    rig.run()

    assert [heard for heard in listener.heard if heard[0] == "leader"] == [
        ("leader", None, 2),
        ("leader", NODE_ID, 2),
        ("leader", None, 3),
    ]


def test_a_leader_that_is_behind_hears_of_the_next_one_before_it_is_given_a_record_of_it(rig: Rig) -> None:
    """It may have answered for a record of its own that is cut off, and must not take the other one for it."""
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.announce(LeaderAndEpoch(NODE_ID, 1), epoch_start=0)
    rig.applier.advance(rig.append_control())
    rig.run()
    rig.append(b"committed and not given yet")
    rig.append(b"cut off")
    rig.applier.advance(2)
    rig.applier.announce(LeaderAndEpoch(2, 2), epoch_start=0)
    rig.log.truncate(2)
    rig.applier.advance(rig.append(b"of the next leader", epoch=2))
    rig.run()

    assert listener.heard.index(("leader", 2, 2)) < listener.heard.index(("commit", 1, 2))
    assert listener.records[-1] == (2, b"of the next leader")


def test_a_leader_that_leads_again_hears_of_it_behind_the_end_of_its_first_epoch(rig: Rig) -> None:
    """While it holds a reader, another replica leads and writes: those records are not of an epoch of its own."""
    listener = Holding()
    rig.applier.register(listener)
    rig.applier.announce(LeaderAndEpoch(NODE_ID, 1), epoch_start=0)
    rig.applier.advance(rig.append_control())
    rig.run()
    listener.readers[0].close()
    rig.run()
    rig.applier.advance(rig.append(b"of epoch 1"))
    rig.run()
    rig.applier.leadership_over()
    rig.applier.announce(LeaderAndEpoch(2, 2), epoch_start=0)
    rig.append(b"of epoch 2", epoch=2)
    rig.applier.announce(LeaderAndEpoch(NODE_ID, 3), epoch_start=rig.log.end_offset)
    rig.applier.advance(rig.append_control(epoch=3))
    listener.readers[1].close()
    rig.run()
    assert (listener.heard, len(listener.readers)) == ([("leader", NODE_ID, 1), ("leader", None, 3)], 3)
    listener.readers[2].close()
    rig.run()
    if len(listener.readers) > 3:
        listener.readers[3].close()
        rig.run()
    assert listener.heard[2:] == [("leader", NODE_ID, 3)]


def test_a_listener_stopped_by_a_notice_does_not_keep_it_from_the_others(rig: Rig) -> None:
    broken, other = Broken(), Recorder()
    rig.applier.register(broken)
    rig.applier.register(other)
    for epoch in (2, 3):
        rig.applier.announce(LeaderAndEpoch(3, epoch), epoch_start=0)
        rig.run()

    assert broken.calls == 1
    assert other.heard == [("leader", 3, 2), ("leader", 3, 3)]


# Slow, broken and leaving listeners -----------------------------------------------------------------------------------


def test_a_held_reader_is_the_only_one_until_it_is_closed(rig: Rig) -> None:
    holding, other = Holding(), Recorder()
    rig.applier.register(holding)
    rig.applier.register(other)
    for _ in range(3):
        rig.applier.advance(rig.append(b"1"))
        rig.run()
    assert [(reader.base_offset, reader.last_offset) for reader in holding.readers] == [(0, 0)]
    assert len(other.records) == 3, "nobody else waits for it"

    holding.readers[0].close()
    rig.run()
    assert [(reader.base_offset, reader.last_offset) for reader in holding.readers] == [(0, 0), (1, 2)]


def test_batches_of_a_held_reader_count_as_applied_once_it_is_closed(rig: Rig) -> None:
    """A read barrier waits for them, and a snapshot of the listener's state does not end behind them."""
    holding = Holding()
    rig.applier.register(holding)
    rig.applier.advance(rig.append(b"1"))
    rig.run()
    barrier, proposal = rig.barrier(0), rig.proposal(0)
    rig.run()
    assert (rig.applier.applied_offset, barrier.done(), proposal.done()) == (0, False, False)

    holding.readers[0].close()
    rig.run()
    assert (rig.applier.applied_offset, barrier.result, proposal.done()) == (1, 1, True)


def test_a_turn_ends_after_a_slice_of_time_and_goes_on_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applier_module, "TURN_NS", 0)
    monkeypatch.setattr(slices, "SLICE_BYTES", 1)
    listener = Recorder()
    rig.applier.register(listener)
    for _ in range(5):
        rig.append(b"1")
    rig.applier.advance(5)
    turns = 0
    while rig.soon:
        given = len(listener.records)
        rig.soon.popleft()()
        turns += 1
        assert len(listener.records) - given <= 1

    assert len(listener.records) == 5
    assert turns > 5


def test_a_listener_that_raises_is_stopped_and_the_others_go_on(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broken, other = Broken(), Recorder()
    rig.applier.register(broken)
    rig.applier.register(other)
    for _ in range(3):
        rig.applier.advance(rig.append(b"1"))
        rig.run()

    assert broken.calls == 1
    assert len(other.records) == 3
    assert rig.failures == []
    assert "Broken raised at offset 0 and is stopped" in caplog.text


def test_a_state_machine_that_raises_fails_its_waiters_and_not_the_replica(rig: Rig) -> None:
    machine = rig.machine()
    rig.append(b"1")
    rig.append(b"no number")
    applied, later, at_offset = rig.proposal(0), rig.proposal(1), rig.barrier(1)
    rig.applier.advance(2)
    rig.run()

    assert applied.result == Appended(0, 0, 1, (1,))
    assert isinstance(later.error, OutcomeUnknownError)
    assert "the state machine raised ValueError" in str(later.error)
    assert isinstance(at_offset.error, ReplicaFailedError)
    assert isinstance(rig.waiters.apply_failure, ReplicaFailedError)
    assert isinstance(rig.waiters.apply_failure.__cause__, ValueError)
    assert machine.applied == [0]
    assert rig.failures == []


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit()])
def test_whatever_a_state_machine_raises_its_waiters_are_told(rig: Rig, error: BaseException) -> None:
    """On an event loop such an error ends in silence, or ends the loop."""

    def apply(record: CommittedRecord) -> Any:
        raise error

    rig.machine().apply = apply  # type: ignore[method-assign]
    other = Recorder()
    rig.applier.register(other)
    rig.append(b"1")
    applied, at_offset = rig.proposal(0), rig.barrier(0)
    rig.applier.advance(1)
    rig.run()

    assert isinstance(applied.error, OutcomeUnknownError)
    assert isinstance(at_offset.error, ReplicaFailedError)
    assert at_offset.error.__cause__ is error
    assert other.records == [(0, b"1")]


def test_ctrl_c_in_a_callback_stops_the_state_machine_and_goes_on(rig: Rig) -> None:
    def apply(record: CommittedRecord) -> Any:
        raise KeyboardInterrupt

    rig.machine().apply = apply  # type: ignore[method-assign]
    rig.applier.advance(rig.append(b"1"))
    with pytest.raises(KeyboardInterrupt):
        rig.run()

    assert rig.waiters.apply_failure is not None


class Choosy(Recorder):
    """Raises at one value."""

    def handle_commit(self, reader: BatchReader) -> None:
        for batch in reader:
            if b"bad" in batch.values:
                raise ValueError("bad")
        super().handle_commit(reader)


def test_nothing_counts_as_applied_while_a_stopped_listener_is_registered(rig: Rig) -> None:
    """Without a state machine every listener counts: one that is dead has not taken what comes."""
    choosy, other = Choosy(), Recorder()
    rig.applier.register(choosy)
    rig.applier.register(other)
    rig.applier.advance(rig.append(b"good"))
    rig.run()
    rig.append(b"bad")
    applied, at_offset = rig.proposal(1), rig.barrier(1)
    rig.applier.advance(2)
    rig.run()

    assert rig.applier.applied_offset == 1
    assert isinstance(applied.error, OutcomeUnknownError)
    assert isinstance(at_offset.error, ReplicaFailedError)
    assert "the listener Choosy of replica 1 raised ValueError" in str(rig.waiters.apply_failure)
    assert "until that listener is unregistered" in str(rig.waiters.apply_failure)

    rig.applier.unregister(choosy)
    again = rig.barrier(1)
    rig.run()
    assert rig.waiters.apply_failure is None
    assert again.result == 2


def test_a_stopped_listener_that_registers_again_is_new(rig: Rig) -> None:
    choosy = Choosy()
    rig.applier.register(choosy)
    rig.applier.advance(rig.append(b"bad"))
    rig.run()
    choosy.handle_commit = Recorder.handle_commit.__get__(choosy)  # type: ignore[method-assign]
    rig.applier.register(choosy)
    rig.run()

    assert choosy.records == [(0, b"bad")]
    assert rig.waiters.apply_failure is None
    assert rig.applier.applied_offset == 1


def test_a_stopped_listener_beside_a_state_machine_is_no_matter_of_who_waits(rig: Rig) -> None:
    rig.machine()
    rig.applier.register(Choosy())
    rig.append(b"1")
    at_offset = rig.barrier(0)
    rig.append_control()
    rig.applier.advance(2)
    rig.run()
    assert (at_offset.result, rig.waiters.apply_failure) == (2, None)


def test_whoever_waits_for_an_offset_does_not_see_a_state_that_is_being_restored(rig: Rig) -> None:
    machine, background = Summing(), ManualDisk()
    rig.applier.register(
        StateMachineListener(machine, deliver=print, wants_results=lambda: False, background=background),
        state_machine=True,
    )
    for _ in range(5):
        rig.applier.advance(rig.append(b"1"))
    rig.run()
    rig.log.install_snapshot(rig.snapshot(9, 2, b"100"))
    rig.applier.advance(9)
    rig.run()

    slot = rig.barrier(4)
    rig.run()
    assert not slot.done(), "it would find neither the old state nor the new one"
    background.finish()
    rig.run()
    assert (slot.result, machine.total) == (9, 100)


def test_a_wrong_state_is_healed_by_the_snapshot_of_the_leader_and_not_by_a_newer_one_of_itself(rig: Rig) -> None:
    """One that is being written when the state is found to be wrong may be there for a moment."""
    machine = rig.machine()
    for number in range(4):
        rig.append(b"%d" % number)
    rig.applier.advance(4)
    rig.run()
    rig.applier.quarantine(ReplicaFailedError("wrong"), "wrong")
    right = rig.snapshot(2, 1, b"1")
    rig.log.delete_before(right)
    rig.snapshot(3, 1, b"700")
    rig.applier.reload(right)
    rig.run()

    assert machine.total == 0 + 1 + 2 + 3
    assert rig.applier.machine_failure is None


def test_a_listener_that_comes_while_a_wrong_state_is_healed_lets_nobody_read_it(rig: Rig) -> None:
    rig.machine()
    rig.append(b"1")
    rig.applier.advance(1)
    rig.run()
    rig.applier.quarantine(ReplicaFailedError("wrong"), "wrong")
    rig.applier.register(Recorder())
    right = rig.snapshot(1, 1, b"1")
    rig.applier.reload(right)
    rig.applier.register(Recorder())
    assert rig.waiters.apply_failure is not None
    rig.run()
    assert rig.waiters.apply_failure is None


def test_a_listener_before_a_damaged_place_keeps_nobody_else_from_what_is_sound(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = rig.machine()
    for _ in range(8):
        rig.append(b"1")
    rig.applier.advance(8)
    rig.run()
    read = rig.log.read

    def damaged(start: int, size: int) -> Any:
        if start < 5:
            raise CorruptBatchError("rotten")
        return read(start, size)

    monkeypatch.setattr(rig.log, "read", damaged)
    late, at_offset = Recorder(), Slot()
    rig.applier.register(late)
    rig.applier.wait_for(9, at_offset)
    rig.append(b"1", b"1")
    rig.applier.advance(10)
    rig.run()

    assert set(rig.damage) == {0}
    assert machine.total == 10
    assert at_offset.result == 10
    monkeypatch.setattr(rig.log, "read", read)
    rig.applier.wake()
    rig.run()
    assert len(late.records) == 10


def test_a_listener_beyond_a_log_that_has_lost_what_was_committed_waits_for_it(rig: Rig) -> None:
    """A committed hole was cut off with what diverged behind it, and is fetched again."""
    early, late = Recorder(), Recorder()
    rig.applier.register(early)
    rig.append(b"a")
    rig.append(b"b")
    rig.applier.advance(2)
    rig.run()
    rig.append(b"c")
    rig.log.truncate(1)
    rig.applier.register(late)
    rig.applier.advance(3)
    rig.run()
    assert (early.records, late.records, rig.failures) == ([(0, b"a"), (1, b"b")], [(0, b"a")], [])

    rig.append(b"b")
    rig.append(b"c")
    rig.applier.advance(3)
    rig.run()
    assert early.records == late.records == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_an_error_of_the_log_is_the_replicas(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(start: int, size: int) -> Any:
        raise StorageError("unreadable")

    rig.applier.register(Recorder())
    rig.append(b"1")
    monkeypatch.setattr(rig.log, "read", broken)
    rig.applier.advance(1)
    rig.run()

    assert [type(error) for error in rig.failures] == [StorageError]


def test_a_listener_may_unregister_itself_from_its_callback(rig: Rig) -> None:
    class Once(Recorder):
        def handle_commit(self, reader: BatchReader) -> None:
            super().handle_commit(reader)
            rig.applier.unregister(self)

    listener = Once()
    rig.applier.register(listener)
    for _ in range(2):
        rig.applier.advance(rig.append(b"1"))
        rig.run()

    assert len(listener.records) == 1


def test_the_shutdown_is_announced_and_then_nothing_is_given(rig: Rig) -> None:
    listener = Recorder()
    rig.applier.register(listener)
    rig.applier.begin_shutdown()
    rig.applier.close()
    rig.applier.advance(rig.append(b"1"))
    rig.run()

    assert listener.heard == ["shutdown"]


def test_a_listener_that_is_fed_while_a_snapshot_is_installed_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk thread removes the files, and needs some syncs for it. An older snapshot is not loaded again, either."""
    log, heard = FileReplicatedLog.open(tmp_path, tail_bytes=0), Recorder()
    rig = Rig(log=log)
    log.append([encode_batch([b"a", b"b"], timestamp_ms=5, base_offset=0, epoch=1)])
    log.flush()
    rig.snapshot(1, 1, b"old")
    newer = rig.snapshot(9, 3, b"new")
    rig.applier.advance(2)
    rig.applier.register(heard)
    turns: list[int] = []

    def paused(*args: Any, **kwargs: Any) -> Any:
        segment = restart_at(*args, **kwargs)
        rig.run()
        turns.append(len(heard.heard))
        return segment

    monkeypatch.setattr(segments, "restart_at", paused)
    log.install_snapshot(newer)

    assert (turns, rig.failures) == ([0], [])
    rig.applier.advance(9)
    rig.run()
    assert heard.heard == [("snapshot", newer, [b"new"])]
    log.close()
