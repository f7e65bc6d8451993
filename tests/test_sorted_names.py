"""Names in order, in chunks."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.sorted_names import SortedNames


@settings(max_examples=50, deadline=None)
@given(st.sets(st.text("ab", max_size=4)), st.lists(st.tuples(st.booleans(), st.text("ab", max_size=4))), st.text("ab"))
def test_names_stay_in_order_in_whatever_chunks(model: set[str], steps: list[tuple[bool, str]], start: str) -> None:
    with mock.patch("kraftlib.sorted_names.CHUNK", 2):
        names = SortedNames(model)
        for add, name in steps:
            if add and name not in model:
                names.add(name)
                model.add(name)
            elif not add and name in model:
                names.remove(name)
                model.discard(name)
        assert list(names.since("")) == sorted(model)
        assert list(names.since(start)) == sorted(name for name in model if name >= start)
