from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlib.storage.log.tail import Tail
from tests.storage.builders import a_batch, offsets, some_batches

BATCHES = some_batches(*([1] * 40))
SIZE = BATCHES[0].size


def a_tail(count: int, *, room_for: int) -> Tail:
    tail = Tail(room_for * SIZE)
    for batch in BATCHES[:count]:
        tail.append(batch)
    return tail


def test_a_batch_larger_than_the_room_is_not_kept() -> None:
    tail = a_tail(3, room_for=3)
    tail.append(a_batch(3, size=3 * SIZE))

    assert tail.read(3, 1_000) is None


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40))
def test_whatever_the_room_the_newest_batches_are_kept(count: int, room_for: int, end_offset: int) -> None:
    """As many as fit; after a truncation, those of them that remain."""
    tail = a_tail(count, room_for=room_for)
    end_offset = min(end_offset, count)
    tail = tail.up_to(end_offset)
    kept = [n for n in range(count) if tail.read(n, 1) and (tail.read(n, 1) or ())[0].base_offset == n]

    # The room is kept with a little air, of which a truncation leaves nothing to see.
    first = kept[0] if kept else end_offset
    assert kept == list(range(first, end_offset))
    assert first <= max(0, count - room_for) + 2


def test_a_tail_that_was_cut_goes_on_and_the_one_before_stays_as_it_is() -> None:
    """A read on the loop may have begun in it."""
    before = a_tail(10, room_for=5)
    tail = before.up_to(8)
    tail.append(a_batch(8, 2))

    assert offsets(tail.read(7, 1_000) or ()) == [(7, 1), (8, 2)]
    assert offsets(before.read(7, 1_000) or ()) == [(7, 1), (8, 1), (9, 1)]
