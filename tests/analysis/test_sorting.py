"""The order of rows by numbers is the order of their keys, whatever the keys begin with and wherever they end."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.analysis.sorting import order_of

KEY = st.lists(st.sampled_from([b"\x00", b"\xff", b"a", b"prefix "]), max_size=12).map(b"".join)


@given(
    rows=st.lists(st.tuples(st.integers(0, 255), KEY | st.binary(max_size=20)), max_size=40),
    shared=st.sampled_from([b"", b"\x00\x00", b"all keys begin with this "]),
    cut=st.integers(0, 40),
)
def test_the_order_is_that_of_ranks_and_then_of_the_bytes_of_keys(
    rows: list[tuple[int, bytes]], shared: bytes, cut: int
) -> None:
    rows = [(rank, shared + key) for rank, key in rows]
    keys = [key for _, key in rows]
    # Parts of a larger array, which begin somewhere within its bytes.
    parts = [pa.array([b"before", *part, b"after"], pa.binary())[1:-1] for part in (keys[:cut], keys[cut:])]

    order = order_of(pa.chunked_array([pa.array([rank for rank, _ in rows], pa.int32())]), pa.chunked_array(parts))

    assert [rows[index] for index in order.tolist()] == sorted(rows)


@given(keys=st.lists(st.sampled_from([b"same start " + bytes([a, b]) * 9 for a in b"ab" for b in b"xyz"]), max_size=30))
def test_rows_that_are_equal_stay_in_their_order(keys: list[bytes]) -> None:
    column = pa.chunked_array([pa.array(keys, pa.binary())])

    order = order_of(pa.chunked_array([pa.repeat(pa.scalar(1, pa.int32()), len(keys))]), column).tolist()

    assert order == sorted(range(len(keys)), key=lambda index: keys[index])
