from __future__ import annotations

import pytest

from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage.log.batches import ensure_continues, ensure_readable, up_to
from tests.storage.builders import a_batch, offsets, some_batches


@pytest.mark.parametrize(("offset", "epoch"), [(4, 2), (6, 2), (5, 1)])
def test_a_gap_an_overlap_and_an_older_epoch_are_bugs(offset: int, epoch: int) -> None:
    with pytest.raises(InvariantError, match="ends at 5 in epoch 2"):
        ensure_continues(a_batch(offset, epoch), 5, 2)


def test_reads_begin_inside_the_log_or_at_its_end() -> None:
    ensure_readable(3, 3, 3)
    with pytest.raises(StorageError, match="below the start of the log, 3"):
        ensure_readable(2, 3, 7)
    with pytest.raises(InvariantError, match="beyond the end of the log, 7"):
        ensure_readable(8, 3, 7)


def test_a_read_takes_what_fits_but_always_one_batch() -> None:
    batches = some_batches(1, 1, 1, 1)
    size = batches[0].size

    assert offsets(up_to(batches, 1, 1)) == [(1, 1)]
    assert offsets(up_to(batches, 1, 2 * size - 1)) == [(1, 1)]
    assert offsets(up_to(batches, 1, 2 * size)) == [(1, 1), (2, 1)]
    assert offsets(up_to(batches, 1, 100 * size)) == [(1, 1), (2, 1), (3, 1)]
