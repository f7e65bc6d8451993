"""The trace: the same steps, the same hash, in every process."""

from __future__ import annotations

from kraftlib.testing.trace import KEPT, Entry, Step, Trace


def filled(*nodes: int) -> Trace:
    trace = Trace()
    for number, node in enumerate(nodes):
        trace.add(number, Step.STARTED, node, 7, 8, "a note")
    return trace


def test_equal_steps_have_equal_hashes_and_a_note_is_no_step() -> None:
    with_other_notes = Trace()
    for number, node in enumerate((1, 2)):
        with_other_notes.add(number, Step.STARTED, node, 7, 8)

    assert filled(1, 2).hash == with_other_notes.hash
    assert len({filled(1, 2).hash, filled(2, 1).hash, filled(1).hash, Trace().hash}) == 4


def test_the_hash_is_of_numbers_only_so_it_is_the_same_for_ever() -> None:
    """A text in it would change with PYTHONHASHSEED; see also tests/simulation/test_determinism.py."""
    assert filled(1, 2, 3).hash == filled(1, 2, 3).hash
    assert len(filled(1).hash) == 16


def test_the_latest_steps_are_kept_and_all_are_counted() -> None:
    trace = filled(*range(KEPT + 10))
    latest = list(trace.latest())

    assert len(latest) == KEPT
    assert latest[-1] == Entry(KEPT + 9, Step.STARTED, KEPT + 9, 7, 8, "a note")
    assert trace.counts == {Step.STARTED: KEPT + 10}


def test_whoever_listens_is_told_each_step_in_words() -> None:
    told: list[str] = []
    trace = Trace(listener=lambda entry: told.append(str(entry)))
    trace.add(1_500_000, Step.FAULT, -1, 3, 200, "pause")

    assert told == ["    1.500000  world    fault             3    200  pause"]
