from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.versions import NO_VERSIONS, Versions, parse_versions

RANGES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: Versions(*ends))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-2", [0, 1, 2], [-1, 3]), ("12+", [12, 13, 999], [11]), ("none", [], [-1, 0, 1])],
)
def test_a_range_holds_what_its_text_says(text: str, inside: list[int], outside: list[int]) -> None:
    versions = parse_versions(text)
    assert str(versions) == text
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert "3" not in versions


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1..2", "1 - 2", "None", "٣"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of versions"):
        parse_versions(text)


@given(a=RANGES, b=RANGES)
def test_an_intersection_holds_what_both_hold(a: Versions, b: Versions) -> None:
    assert set(a.intersection(b)) == set(a) & set(b)
    assert list(NO_VERSIONS) == []
