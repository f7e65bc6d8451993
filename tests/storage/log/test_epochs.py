from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage.log.epochs import EpochTable, decode_epochs, encode_epochs
from kraftlib.types import EpochStart


def starts(*pairs: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(epoch=epoch, start_offset=offset) for epoch, offset in pairs)


def table(*pairs: tuple[int, int]) -> EpochTable:
    return EpochTable(starts(*pairs))


def test_the_latest_epoch_is_not_assigned_twice() -> None:
    epochs = table((1, 0), (3, 17))

    assert not epochs.assign(3, 17)
    assert not epochs.assign(3, 40)
    assert epochs.starts() == starts((1, 0), (3, 17))


def test_an_epoch_without_records_disappears_when_the_next_starts_at_its_offset() -> None:
    epochs = table((1, 0), (3, 17))

    assert epochs.assign(4, 17)
    assert epochs.starts() == starts((1, 0), (4, 17))
    assert epochs.latest_epoch == 4


def test_an_older_epoch_drops_the_newer_ones() -> None:
    epochs = table((1, 0), (3, 17), (5, 20))

    assert epochs.assign(3, 25)
    assert epochs.starts() == starts((1, 0), (3, 25))


def test_truncation_drops_epochs_that_start_at_or_beyond_the_end() -> None:
    epochs = table((1, 0), (3, 17), (5, 20))

    assert not epochs.truncate_to(21)
    assert epochs.truncate_to(17)
    assert epochs.starts() == starts((1, 0))
    assert epochs.truncate_to(0)
    assert epochs.latest_epoch == -1


def test_a_moved_start_keeps_the_epoch_it_lies_in() -> None:
    epochs = table((1, 0), (3, 17), (5, 20))

    assert epochs.start_at(18)
    assert epochs.starts() == starts((3, 18), (5, 20))
    assert epochs.start_at(20)
    assert epochs.starts() == starts((5, 20))
    assert not epochs.start_at(20)
    assert epochs.start_at(100)
    assert epochs.starts() == starts((5, 100))


def test_entries_that_do_not_ascend_are_a_bug() -> None:
    with pytest.raises(InvariantError):
        table((3, 0), (3, 17))
    with pytest.raises(InvariantError):
        table((3, 17), (4, 17))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_the_table_agrees_with_the_epochs_of_the_records(
    steps: list[tuple[int, int]], truncate_to: int, start_at: int
) -> None:
    """The slow twin keeps the epoch of every record."""
    epochs, records, epoch = EpochTable(), [], 0
    for rise, count in steps:
        epoch += rise
        epochs.assign(epoch, len(records))
        records += [epoch] * count
    truncate_to, start_at = sorted((min(truncate_to, len(records)), min(start_at, len(records))), reverse=True)
    epochs.truncate_to(truncate_to)
    if start_at < truncate_to:
        epochs.start_at(start_at)
    else:
        start_at = 0

    of_records = records[start_at:truncate_to]
    first = {e: start_at + of_records.index(e) for e in of_records}
    assert epochs.starts() == starts(*sorted(first.items()))


def test_the_file_is_that_of_kafka() -> None:
    text = b"0\n4\n1 0\n3 111\n4 141\n5 235\n"

    assert decode_epochs(text) == starts((1, 0), (3, 111), (4, 141), (5, 235))
    assert encode_epochs(starts((1, 0), (3, 111), (4, 141), (5, 235))) == text
    assert encode_epochs(()) == b"0\n0\n"


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=5))
def test_what_is_written_is_read(rises: list[tuple[int, int]]) -> None:
    entries, epoch, offset = [], 0, 0
    for epoch_rise, offset_rise in rises:
        epoch, offset = epoch + epoch_rise, offset + offset_rise
        entries.append((epoch, offset))

    assert decode_epochs(encode_epochs(starts(*entries))) == starts(*entries)


@pytest.mark.parametrize(
    "text",
    [b"", b"1\n0\n", b"0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\n1\n1 -1\n", b"0\n2\n2 0\n1 5\n", b"0\n1\n\xb2 0\n"],
)
def test_a_damaged_file_is_refused(text: bytes) -> None:
    with pytest.raises(StorageError):
        decode_epochs(text)
