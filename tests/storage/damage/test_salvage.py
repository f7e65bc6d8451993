from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.storage.damage import salvage
from kraftlib.storage.damage.salvage import find_whole_batch
from tests.storage.builders import TIMESTAMP, a_batch, some_batches


def written(tmp_path: Path, *parts: bytes | memoryview) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(bytes(part) for part in parts))
    return path


def test_a_whole_batch_behind_rubbish_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, a_batch(0).data, b"rubbish" * 9, a_batch(2).data)
    found = find_whole_batch(path, a_batch(0).size, expected_offset=1)

    assert found is not None
    assert (found[0], found[1].base_offset) == (a_batch(0).size + 63, 2)


def with_a_bad_end(batch: Batch) -> bytes:
    return bytes(batch.data[:-1]) + b"?"


@pytest.mark.parametrize(
    ("parts", "expected_offset", "is_found"),
    [
        pytest.param([b"rubbish", a_batch(2).data[:-1]], 1, False, id="half a batch"),
        pytest.param([bytes(10_000)], 0, False, id="zeros"),
        pytest.param([], 0, False, id="an empty file"),
        # What stands behind the bad bytes of offset 5 has a higher offset, or was there before.
        pytest.param([b"rubbish", a_batch(5).data], 5, False, id="the same offset"),
        pytest.param([b"rubbish", a_batch(4).data], 5, False, id="an older batch"),
        pytest.param([a_batch(7).data], 6, True, id="from the first byte"),
        pytest.param([b"?", a_batch(7).data], 6, True, id="from the second byte"),
        pytest.param([with_a_bad_end(a_batch(0)), with_a_bad_end(a_batch(1)), a_batch(2).data], 0, True, id="two bad"),
    ],
)
def test_only_a_whole_batch_of_a_later_offset_counts(
    parts: list[bytes | memoryview], expected_offset: int, is_found: bool, tmp_path: Path
) -> None:
    assert (find_whole_batch(written(tmp_path, *parts), 0, expected_offset=expected_offset) is not None) == is_found


def test_a_value_that_looks_like_a_batch_is_no_batch(tmp_path: Path) -> None:
    """An application may store batches of another log: the tail that holds them is torn, not damaged."""
    outer = encode_batch([bytes(a_batch(900).data)] * 3, timestamp_ms=TIMESTAMP, base_offset=10, epoch=1)
    torn = written(tmp_path, bytes(outer.data)[:-1])

    assert not find_whole_batch(torn, 0, expected_offset=10)


@settings(max_examples=60)
@given(distance=st.integers(0, 400))
def test_a_batch_is_found_wherever_a_read_ends(distance: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Read in chunks, and a header may stand across two of them."""
    path = written(tmp_path_factory.mktemp("segment"), b"?" * (1 + distance), a_batch(1).data, b"?" * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage, "_CHUNK", 100)
        assert find_whole_batch(path, 0, expected_offset=0)


def test_every_flipped_bit_of_a_batch_leaves_those_behind_it(tmp_path: Path) -> None:
    batches = some_batches(1, 1, 1)
    whole = b"".join(bytes(batch.data) for batch in batches)
    for bit in range(batches[0].size * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        assert find_whole_batch(written(tmp_path, data), 0, expected_offset=0), bit
