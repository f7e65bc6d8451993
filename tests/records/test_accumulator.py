"""The accumulator: batches as full as they can be, offsets that hold, linger, holding back, back-pressure.

Its behaviours are those of Kafka's BatchAccumulatorTest; a slow twin that encodes everything at once says where
batches end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import BacklogFullError, ConfigError, InvariantError, NotLeaderError, RecordTooLargeError
from kraftlib.records.accumulator import BatchAccumulator
from kraftlib.records.batch import HEADER_SIZE, Batch, encode_batch, read_batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, SnapshotFooterRecord
from kraftlib.types import LeaderAndEpoch

EPOCH = 5
BASE = 100
CONTROL_RECORD = KRaftVersionRecord(kraft_version=1)


def accumulator(**settings: Any) -> BatchAccumulator:
    return BatchAccumulator(epoch=EPOCH, base_offset=BASE, leader_id=3, **settings)


def drain(taker: BatchAccumulator, now_ms: int = 0, **limit: int) -> list[Batch]:
    return taker.drain(now_ms, timestamp_ms=1_700_000_000_000, **limit)


def drained_values(taker: BatchAccumulator, now_ms: int = 0) -> list[list[bytes]]:
    return [batch.values() for batch in drain(taker, now_ms)]


# Batches and offsets ------------------------------------------------------------------------------


def test_appends_get_contiguous_offsets_and_leave_as_one_batch() -> None:
    taker = accumulator()

    assert taker.append([b"a", b"b"], epoch=EPOCH) == 101
    assert taker.append_one(b"c", epoch=EPOCH) == 102
    assert taker.append([b"d"], epoch=EPOCH) == 103
    assert taker.undrained_count == 4
    [batch] = drain(taker)

    assert batch == encode_batch([b"a", b"b", b"c", b"d"], timestamp_ms=1_700_000_000_000, base_offset=100, epoch=5)
    assert read_batch(batch.data) == batch
    assert (taker.next_offset, taker.undrained_count, drain(taker)) == (104, 0, [])


def test_nothing_is_ready_before_the_first_append() -> None:
    taker = accumulator()

    assert (taker.ready(10**9), taker.next_deadline_ms, drain(taker, 10**9)) == (False, None, [])
    assert taker.next_offset == BASE


@attrs.define
class Twin:
    """Encodes everything again at every append, to see whether it still fits."""

    batch_max_bytes: int
    max_undrained_batches: int
    completed: list[list[bytes]] = attrs.Factory(list)
    open: list[bytes] = attrs.Factory(list)

    def append(self, values: Sequence[bytes]) -> str:
        if not self._fits([*self.open, *values]):
            if not self._fits(values):
                return "too large"
            if len(self.completed) == self.max_undrained_batches:
                return "full"
            self.completed.append(self.open)
            self.open = []
        self.open += values
        return "taken"

    def drain(self) -> list[list[bytes]]:
        out = [*self.completed, *([self.open] if self.open else [])]
        self.completed, self.open = [], []
        return out

    def _fits(self, values: Sequence[bytes]) -> bool:
        return encode_batch(values, timestamp_ms=0).size <= self.batch_max_bytes


STEPS = st.lists(
    st.lists(st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 900, 2_000])), max_size=80), max_size=40
)


@given(STEPS, st.integers(80, 1_500), st.integers(1, 3))
def test_batches_end_where_the_twin_ends_them(steps: list[list[int]], limit: int, undrained: int) -> None:
    """An empty step is a drain; others are appends of values of these sizes."""
    taker = accumulator(batch_max_bytes=limit, max_undrained_batches=undrained)
    twin = Twin(batch_max_bytes=limit, max_undrained_batches=undrained)
    offset = BASE
    for sizes in steps:
        values = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
        if not values:
            batches = drain(taker)
            assert [batch.values() for batch in batches] == twin.drain()
            assert all(batch.size <= limit for batch in batches)
            continue
        expected = twin.append(values)
        try:
            last_offset = taker.append(values, epoch=EPOCH)
        except RecordTooLargeError:
            assert expected == "too large"
        except BacklogFullError:
            assert expected == "full"
        else:
            offset += len(values)
            assert (expected, last_offset) == ("taken", offset - 1)
        assert taker.next_offset == offset
    batches = drain(taker)
    assert [batch.values() for batch in batches] == twin.drain()
    if batches:
        assert batches[-1].end_offset == offset


def test_the_limit_holds_to_the_byte() -> None:
    """61 bytes of header, and 8 bytes around a short value."""
    taker = accumulator(batch_max_bytes=HEADER_SIZE + 3 * (8 + 7 - 1))
    for _ in range(4):
        taker.append([b"1234567"], epoch=EPOCH)

    assert [batch.size for batch in drain(taker)] == [103, 75]


def test_a_call_is_one_batch_or_nothing() -> None:
    taker = accumulator(batch_max_bytes=1_000)
    taker.append([b"x" * 500], epoch=EPOCH)
    taker.append([b"y" * 300, b"z" * 300], epoch=EPOCH)

    assert [len(values) for values in drained_values(taker)] == [1, 2]


def test_what_fits_into_no_batch_is_refused_with_size_and_limit() -> None:
    taker = accumulator(batch_max_bytes=1_000)
    with pytest.raises(RecordTooLargeError, match="a batch of 1070 bytes, the limit is 1000"):
        taker.append([b"x" * 1_000], epoch=EPOCH)
    with pytest.raises(RecordTooLargeError, match="the limit is 1000"):
        taker.append([b"x" * 300] * 4, epoch=EPOCH)

    assert (taker.next_offset, taker.undrained_count, taker.backlog_bytes) == (BASE, 0, 0)


def test_a_list_that_the_caller_goes_on_using_is_copied() -> None:
    taker, values = accumulator(), [b"a", b"b"]
    taker.append(values, epoch=EPOCH)
    values.clear()

    assert drained_values(taker) == [[b"a", b"b"]]


# Control records ----------------------------------------------------------------------------------


def test_control_records_have_a_batch_of_their_own_behind_what_is_there() -> None:
    taker = accumulator(linger_ms=50)
    taker.append([b"before"], epoch=EPOCH, now_ms=10)
    assert taker.append_control([CONTROL_RECORD, SnapshotFooterRecord()], epoch=EPOCH, now_ms=20) == 102
    assert taker.append([b"behind"], epoch=EPOCH, now_ms=20) == 103
    before, control, behind = drain(taker, 20)

    assert (before.values(), behind.values(), behind.base_offset) == ([b"before"], [b"behind"], 103)
    assert (control.is_control, control.epoch) == (True, EPOCH)
    assert list(decode_control_batch(control)) == [(101, CONTROL_RECORD), (102, SnapshotFooterRecord())]


def test_control_records_are_due_at_once() -> None:
    taker = accumulator(linger_ms=50)
    taker.append_control([CONTROL_RECORD], epoch=EPOCH, now_ms=20)

    assert (taker.next_deadline_ms, taker.ready(20)) == (20, True)


def test_control_records_of_another_epoch_or_none_are_refused() -> None:
    taker = accumulator()
    with pytest.raises(ConfigError, match="at least one record"):
        taker.append_control([], epoch=EPOCH)
    with pytest.raises(NotLeaderError):
        taker.append_control([CONTROL_RECORD], epoch=EPOCH - 1)
    with pytest.raises(ConfigError, match="epoch 6 is newer than 5"):
        taker.append_control([CONTROL_RECORD], epoch=EPOCH + 1)

    assert taker.next_offset == BASE


# Linger -------------------------------------------------------------------------------------------


def test_linger_begins_with_the_first_value_after_a_drain() -> None:
    taker = accumulator(linger_ms=25)
    taker.append([b"a"], epoch=EPOCH, now_ms=1_000)
    taker.append_one(b"b", epoch=EPOCH, now_ms=1_020)

    assert (taker.next_deadline_ms, taker.ready(1_024), drain(taker, 1_024)) == (1_025, False, [])
    assert taker.ready(1_025)
    assert drained_values(taker, 1_025) == [[b"a", b"b"]]
    taker.append_one(b"c", epoch=EPOCH, now_ms=2_000)
    assert taker.next_deadline_ms == 2_025


def test_a_full_batch_does_not_linger() -> None:
    taker = accumulator(linger_ms=25, batch_max_bytes=200)
    taker.append([b"a" * 100], epoch=EPOCH, now_ms=1_000)
    taker.append([b"b" * 100], epoch=EPOCH, now_ms=1_001)

    assert taker.next_deadline_ms == 1_001
    assert [len(values) for values in drained_values(taker, 1_001)] == [1, 1]


# Prepared appends ---------------------------------------------------------------------------------


def test_a_prepared_append_waits_and_so_does_what_comes_behind_it() -> None:
    taker = accumulator()
    taker.append([b"before"], epoch=EPOCH)
    assert taker.prepare_append([b"p", b"q"], epoch=EPOCH) == 102
    assert taker.append([b"behind"], epoch=EPOCH) == 103

    assert drained_values(taker) == [[b"before"]]
    assert (taker.ready(10**9), taker.next_deadline_ms) == (False, None)
    taker.schedule_prepared_append()
    assert taker.ready(0)
    assert drained_values(taker) == [[b"p", b"q", b"behind"]]
    assert not taker.ready(0)


def test_several_prepared_appends_are_scheduled_together() -> None:
    taker = accumulator(batch_max_bytes=200)
    for letter in (b"a", b"b", b"c"):
        taker.prepare_append([letter * 100], epoch=EPOCH)

    assert drain(taker) == []
    taker.schedule_prepared_append()
    assert [(batch.base_offset, batch.end_offset) for batch in drain(taker)] == [(100, 101), (101, 102), (102, 103)]


def test_a_prepared_append_that_is_refused_holds_nothing_back() -> None:
    taker = accumulator(batch_max_bytes=200)
    taker.append([b"before"], epoch=EPOCH)
    with pytest.raises(RecordTooLargeError):
        taker.prepare_append([b"x" * 300], epoch=EPOCH)
    with pytest.raises(ConfigError, match="nothing to append"):
        taker.prepare_append([], epoch=EPOCH)

    taker.append([b"behind"], epoch=EPOCH)
    assert drained_values(taker) == [[b"before"], [b"behind"]]


def test_a_prepared_append_lingers_once_it_is_scheduled() -> None:
    taker = accumulator(linger_ms=25)
    taker.prepare_append([b"p"], epoch=EPOCH, now_ms=100)
    assert taker.next_deadline_ms is None
    taker.schedule_prepared_append()

    assert (taker.next_deadline_ms, taker.ready(124)) == (125, False)


# Back-pressure ------------------------------------------------------------------------------------


def test_only_so_many_full_batches_wait() -> None:
    taker = accumulator(batch_max_bytes=200)
    for _ in range(11):  # ten completed ones and an open one
        taker.append([b"x" * 100], epoch=EPOCH)
    with pytest.raises(BacklogFullError, match="10 full batches wait"):
        taker.append([b"x" * 100], epoch=EPOCH)
    with pytest.raises(BacklogFullError):
        taker.prepare_append([b"p"], epoch=EPOCH)
    assert taker.next_offset == BASE + 11
    taker.append([b"small"], epoch=EPOCH)

    assert len(drain(taker)) == 11
    assert taker.append([b"x" * 100], epoch=EPOCH) == BASE + 12


def test_control_records_find_room_in_a_full_backlog() -> None:
    """Refused, they would stop the leader: nobody asks for them twice (found by simulation)."""
    taker = accumulator(batch_max_bytes=200, max_bytes=300)
    taker.append([b"x" * 100], epoch=EPOCH)
    with pytest.raises(BacklogFullError):
        taker.append([b"x" * 100], epoch=EPOCH)
    many = [CONTROL_RECORD] * 30  # more than a batch of data may hold

    assert taker.append_control(many, epoch=EPOCH) == BASE + 30
    with pytest.raises(BacklogFullError):
        taker.append([b"x"], epoch=EPOCH)
    assert [batch.record_count for batch in drain(taker)] == [1, 30]


def test_bytes_that_are_not_committed_count_until_they_are_released() -> None:
    taker = accumulator(max_bytes=1_000)
    taker.append([b"x" * 400], epoch=EPOCH)
    [first] = drain(taker)
    assert taker.backlog_bytes == first.size == 470
    with pytest.raises(BacklogFullError, match=r"470 bytes wait .* 570 more exceed 1000"):
        taker.append([b"x" * 500], epoch=EPOCH)
    taker.append([b"y" * 400], epoch=EPOCH)
    with pytest.raises(BacklogFullError):
        taker.append_one(b"z" * 100, epoch=EPOCH)
    taker.release(first.size)

    assert taker.append_one(b"z" * 100, epoch=EPOCH) == BASE + 2
    assert len(drain(taker)) == 1


def fill(taker: BatchAccumulator) -> None:
    for _ in range(10_000):
        taker.append_one(b"x", epoch=EPOCH)


def test_a_backlog_of_small_values_is_measured_to_the_byte() -> None:
    """Upper bounds will do while there is room; at the limit it is the exact size that counts."""
    taker = accumulator(max_bytes=10_000)
    with pytest.raises(BacklogFullError):
        fill(taker)
    exact = taker.backlog_bytes
    [batch] = drain(taker)

    # One more would have been 9 bytes.
    assert 10_000 - 9 < batch.size == exact == taker.backlog_bytes <= 10_000


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), min_size=1, max_size=12),
    st.integers(1, 800),
)
def test_a_drain_of_so_many_bytes_leaves_the_rest_in_order_and_due(appends: list[list[bytes]], limit: int) -> None:
    whole, pieces = accumulator(batch_max_bytes=350), accumulator(batch_max_bytes=350)
    for values in appends:
        for taker in (whole, pieces):
            taker.append(values, epoch=EPOCH)
    expected, found = drain(whole), []
    while pieces.ready(0):
        waited = pieces.undrained_bytes
        batches = drain(pieces, max_bytes=limit)
        assert len(batches) == 1 or sum(batch.size for batch in batches) <= limit
        assert pieces.undrained_bytes < waited
        found += batches

    assert [batch.data for batch in found] == [batch.data for batch in expected]
    assert (pieces.undrained_count, pieces.undrained_bytes) == (0, 0)


def test_a_batch_that_has_grown_enough_takes_no_further_call_but_a_large_call_is_one_batch() -> None:
    taker = accumulator(batch_max_bytes=1_000, grow_max_bytes=200)
    for size in (60, 60, 60, 500, 10):
        taker.append([b"x" * size], epoch=EPOCH)

    assert [[len(value) for value in values] for values in drained_values(taker)] == [[60, 60], [60], [500], [10]]


def test_nothing_larger_than_the_backlog_is_ever_taken() -> None:
    with pytest.raises(RecordTooLargeError, match="the limit is 500"):
        accumulator(max_bytes=500).append([b"x" * 600], epoch=EPOCH)


def test_more_than_was_drained_cannot_be_released() -> None:
    taker = accumulator()
    taker.append([b"a"], epoch=EPOCH)
    size = drain(taker)[0].size

    with pytest.raises(InvariantError):
        taker.release(size + 1)
    taker.release(size)
    assert taker.backlog_bytes == 0


# What is refused ----------------------------------------------------------------------------------

APPENDS = [
    lambda taker, epoch: taker.append([b"a", b"b"], epoch=epoch),
    lambda taker, epoch: taker.append_one(b"a", epoch=epoch),
    lambda taker, epoch: taker.prepare_append([b"a"], epoch=epoch),
]


@pytest.mark.parametrize("append", APPENDS)
def test_an_older_epoch_has_no_leader_any_more(append: Any) -> None:
    taker = accumulator()
    taker.append([b"a"], epoch=EPOCH)
    with pytest.raises(NotLeaderError, match="the leadership of epoch 4 is over") as caught:
        append(taker, EPOCH - 1)

    assert caught.value.leader == LeaderAndEpoch(3, EPOCH)
    assert taker.next_offset == BASE + 1


@pytest.mark.parametrize("append", APPENDS)
def test_a_newer_epoch_is_a_mistake_of_the_caller(append: Any) -> None:
    with pytest.raises(ConfigError, match="epoch 6 is newer than 5"):
        append(accumulator(), EPOCH + 1)


@pytest.mark.parametrize("append", APPENDS)
def test_after_close_nothing_is_taken_and_nothing_is_left(append: Any) -> None:
    taker = accumulator()
    append(taker, EPOCH)
    taker.append_control([CONTROL_RECORD], epoch=EPOCH)
    append(taker, EPOCH)
    taker.close()

    assert (drain(taker), taker.ready(10**9), taker.undrained_count, taker.backlog_bytes) == ([], False, 0, 0)
    with pytest.raises(NotLeaderError) as caught:
        append(taker, EPOCH)
    assert caught.value.leader == LeaderAndEpoch(None, EPOCH)


@pytest.mark.parametrize("values", [["text"], [b"a", "text"], [None], [bytearray(b"a")], [b"a", 7]])
def test_a_value_that_is_not_bytes_is_refused(values: list[Any]) -> None:
    taker = accumulator()
    with pytest.raises(TypeError, match="a value is bytes, not"):
        taker.append(values, epoch=EPOCH)
    with pytest.raises(TypeError, match="a value is bytes, not"):
        taker.append_one(values[-1], epoch=EPOCH)

    assert taker.next_offset == BASE


@pytest.mark.parametrize("values", [[b""], [b"a", b""]])
def test_an_empty_value_is_refused(values: list[bytes]) -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        accumulator().append(values, epoch=EPOCH)


def test_no_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to append"):
        accumulator().append([], epoch=EPOCH)
