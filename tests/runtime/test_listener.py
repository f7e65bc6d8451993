"""A listener needs no method of its own, and a state machine gives its results per batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.records.serde import TextSerde
from kraftlib.runtime.committed import BatchReader, CommittedBatch, CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine, StateMachineListener
from kraftlib.types import LeaderAndEpoch
from tests.runtime.fakes import committed, loaded, snapshot_bytes


class Machine(StateMachine):
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.leaders: list[LeaderAndEpoch] = []

    def apply(self, record: CommittedRecord) -> Any:
        self.values.append(record.value)
        return len(self.values)

    def restore(self, values: Iterable[Any]) -> None:
        self.values = list(values)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


@pytest.mark.parametrize("wanted", [True, False])
def test_results_are_delivered_per_batch_and_only_when_somebody_wants_them(wanted: bool) -> None:
    machine, delivered = Machine(), []
    listener = StateMachineListener(
        machine,
        deliver=lambda end, base, results: delivered.append((end, base, list(results))),
        wants_results=lambda: wanted,
    )
    control = encode_control_batch([LeaderChangeMessage(leader_id=4)], timestamp_ms=1, base_offset=7, epoch=3)
    batches = [committed(b"a", b"b"), CommittedBatch(control, TextSerde()), committed(b"c", base_offset=8)]
    listener.handle_commit(BatchReader(batches, on_close=lambda: None))
    listener.handle_leader_change(LeaderAndEpoch(1, 3))

    assert machine.values == ["a", "b", "c"]
    assert delivered == ([(7, 5, [1, 2]), (9, 8, [3])] if wanted else [])
    assert machine.leaders == [LeaderAndEpoch(1, 3)]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_bare_next_in_apply_is_an_error_and_skips_no_record(wanted: bool) -> None:
    class Careless(Machine):
        def apply(self, record: CommittedRecord) -> Any:
            return next(iter(())) if record.value == "b" else super().apply(record)

    machine, delivered = Careless(), []
    listener = StateMachineListener(
        machine, deliver=lambda *results: delivered.append(results), wants_results=lambda: wanted
    )
    with pytest.raises(StopIteration):
        listener.handle_commit(BatchReader([committed(b"a", b"b", b"c")], on_close=lambda: None))

    assert (machine.values, delivered) == (["a"], [])


def test_a_state_machine_is_restored_from_a_snapshot() -> None:
    machine = Machine()
    machine.values = ["old"]
    listener = StateMachineListener(machine, deliver=lambda *_: None, wants_results=lambda: False)
    listener.handle_load_snapshot(loaded(snapshot_bytes(b"a", b"b")))

    assert machine.values == ["a", "b"]


def test_a_bare_listener_may_be_told_everything() -> None:
    listener = Listener()
    listener.handle_commit(BatchReader([committed(b"a")], on_close=lambda: None))
    listener.handle_load_snapshot(loaded(snapshot_bytes(b"a")))
    listener.handle_load_bootstrap(loaded(snapshot_bytes()))
    listener.handle_leader_change(LeaderAndEpoch(1, 1))
    listener.begin_shutdown()
