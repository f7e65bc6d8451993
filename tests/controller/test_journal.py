"""Undo: against a twin that copies the whole table at every commit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlib.controller.journal import Journal, Table

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), st.integers()),
        st.tuples(st.just("remove"), st.integers(0, 4), st.none()),
        st.tuples(st.just("commit"), st.integers(0, 5), st.none()),
        st.tuples(st.just("undo"), st.none(), st.none()),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_not_committed_can_be_taken_back(steps: list[tuple[str, int, int]]) -> None:
    journal = Journal()
    table: Table[int, int] = Table(journal)
    states: list[dict[int, int]] = [{}]  # after each record
    committed = 0
    for name, key, value in steps:
        if name in ("put", "remove"):
            journal.begin(len(states) - 1)
            state = dict(states[-1])
            if name == "put":
                table.put(key, value)
                state[key] = value
            else:
                table.discard(key)
                state.pop(key, None)
            journal.end()
            states.append(state)
        elif name == "commit":
            committed = min(committed + key, len(states) - 1)
            journal.committed(committed)
        else:
            journal.undo()
            del states[committed + 1 :]
        assert dict(table.items()) == states[-1]
        assert journal.before(table) == states[committed]


def test_a_watcher_hears_of_changes_and_of_their_undoing() -> None:
    journal, heard = Journal(), []
    table: Table[str, int] = Table(journal, watch=lambda *change: heard.append(change))
    table.put("a", 1)
    journal.begin(0)
    table.put("a", 2)
    table.remove("a")
    journal.undo()

    assert heard == [("a", None, 1), ("a", 1, 2), ("a", 2, None), ("a", None, 2), ("a", 2, 1)]
    assert len(journal) == 0
