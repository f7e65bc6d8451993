"""Compaction keeps the latest of each key, whatever memory it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError, StorageError
from kraftlib.storage import compaction
from kraftlib.storage.compaction import compact, typed_key

CHANGES = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(min_size=1, max_size=300)), max_size=60)


@given(CHANGES, st.sampled_from([1, 500, 3_000, 1 << 20]), st.booleans())
def test_it_agrees_with_a_dict(changes: list[tuple[bytes, bytes | None]], memory: int, tombstones: bool) -> None:
    latest = dict(changes)
    expected = sorted((key, value) for key, value in latest.items() if value is not None or tombstones)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MERGED_AT_ONCE", 3)
        assert list(compact(iter(changes), memory_bytes=memory, keep_tombstones=tombstones)) == sorted(
            expected, key=lambda item: item[0]
        )


@given(CHANGES)
def test_types_sort_before_keys(changes: list[tuple[bytes, bytes | None]]) -> None:
    def type_of(key: bytes) -> int:
        return 1_000 - len(key)

    latest = {key: value for key, value in dict(changes).items() if value is not None}
    expected = sorted(latest.items(), key=lambda item: (type_of(item[0]), item[0]))
    assert list(compact(changes, type_of=type_of, memory_bytes=300)) == expected


def test_runs_go_where_they_are_told_and_leave_nothing(tmp_path: Path) -> None:
    changes = [(str(number % 100).encode(), b"x" * 100) for number in range(1_000)]
    compacted = compact(changes, memory_bytes=5_000, directory=tmp_path)
    assert next(compacted)[0] == b"0"
    assert list(tmp_path.iterdir()) == [], "they have no names"
    assert len(list(compacted)) == 99
    with pytest.raises(StorageError, match="put a sorted run aside"):
        list(compact(changes, memory_bytes=5_000, directory=tmp_path / "missing"))


def test_a_key_with_its_type_sorts_by_number() -> None:
    keys = [typed_key(type_, key) for type_ in (0, 2, 10, 300) for key in (b"", b"a", b"b")]
    assert keys == sorted(keys)
    with pytest.raises(ConfigError, match="type_=-1"):
        typed_key(-1, b"")
    with pytest.raises(ConfigError, match="memory_bytes=0"):
        list(compact([], memory_bytes=0))
