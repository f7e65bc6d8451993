"""The checker of histories: against a slow twin, and on planted violations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.errors import ConfigError
from kraftlib.testing.linearizability import Call, LogCall, Model, check_each, check_history, contradiction_in_log

REGISTER = Model(initial=0, step=lambda value, action: (value, value) if action is None else (action, "done"))
"""None reads, a number writes."""

LOG = Model(initial=(), step=lambda log, action: (log, log) if action is None else ((*log, action), len(log)))
"""None reads everything, anything else is appended and answered with its offset."""

ADDER = Model(initial=0, step=lambda value, action: (value + action, value + action))


def slow_twin(calls: Sequence[Call], model: Model) -> bool:
    """Try every order of every choice of the calls that may not have happened."""
    certain = [call for call in calls if call.ended is not None]
    open_ended = [call for call in calls if call.ended is None]
    for count in range(len(open_ended) + 1):
        for happened in itertools.combinations(open_ended, count):
            if any(explains(order, model) for order in itertools.permutations([*certain, *happened])):
                return True
    return False


def explains(order: Sequence[Call], model: Model) -> bool:
    state = model.initial
    for place, call in enumerate(order):
        if any(later.ended is not None and later.ended < call.began for later in order[place + 1 :]):
            return False
        state, result = model.step(state, call.action)
        if call.ended is not None and result != call.result:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn, model: Model, actions: st.SearchStrategy[Any]) -> list[Call]:
    """A history that really happened, in which some answers were forged afterwards."""
    calls: list[Call] = []
    state = model.initial
    for moment in range(0, 10 * draw(st.integers(1, 5)), 10):
        action = draw(actions)
        happens = draw(st.integers(0, 5)) > 0
        after, result = model.step(state, action)
        if happens:
            state = after
        began, ended = moment - draw(st.integers(0, 25)), moment + draw(st.integers(0, 25))
        answered = happens and draw(st.booleans())
        calls.append(Call(action=action, result=result, began=began, ended=ended if answered else None))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(calls) - 1))
        other = draw(st.sampled_from(calls))
        calls[place] = attrs.evolve(calls[place], result=other.result, ended=calls[place].began + 5)
    return draw(st.permutations(calls))


@pytest.mark.parametrize(
    ("model", "actions"),
    [(REGISTER, st.one_of(st.none(), st.integers(1, 3))), (LOG, st.sampled_from([None, "a", "b"])),
     (ADDER, st.integers(1, 3))],
    ids=["register", "log", "adder"],
)  # fmt: skip
def test_the_search_agrees_with_trying_everything(model: Model, actions: st.SearchStrategy[Any]) -> None:
    @settings(max_examples=250, deadline=None)
    @given(histories(model, actions))
    def agrees(calls: list[Call]) -> None:
        verdict = check_history(calls, model)
        assert verdict.linearizable is slow_twin(calls, model)
        if verdict.linearizable:
            assert explains(verdict.order, model)
            assert {id(call) for call in calls if call.ended is not None} <= {id(call) for call in verdict.order}
        else:
            assert verdict.unexplained in calls

    agrees()


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Call], list[LogCall]]:
    """A history of a log, as a search and as the fast check see it: each call knows its place."""
    count = draw(st.integers(1, 6))
    calls, placed = [], []
    log: tuple[int, ...] = tuple(range(count))
    for offset in range(count):
        began, ended = sorted((draw(st.integers(0, 9)), draw(st.integers(0, 9))))
        end = ended if draw(st.integers(0, 3)) else None
        calls.append(Call(action=offset, result=offset, began=began, ended=end))
        placed.append(LogCall(reads=False, end_offset=offset + 1, began=began, ended=end))
    for end_offset in draw(st.lists(st.integers(0, count), max_size=3)):
        began, ended = sorted((draw(st.integers(0, 9)), draw(st.integers(0, 9))))
        calls.append(Call(action=None, result=log[:end_offset], began=began, ended=ended))
        placed.append(LogCall(reads=True, end_offset=end_offset, began=began, ended=ended))
    # One who looks at the end, so that even calls without an answer have a place.
    calls.append(Call(action=None, result=log, began=20, ended=21))
    placed.append(LogCall(reads=True, end_offset=count, began=20, ended=21))
    return calls, placed


@settings(max_examples=300, deadline=None)
@given(logs())
def test_the_fast_check_of_a_log_agrees_with_the_search(history: tuple[list[Call], list[LogCall]]) -> None:
    calls, placed = history

    assert (contradiction_in_log(placed) is None) is check_history(calls, LOG).linearizable


def test_a_stale_read_is_found_and_named() -> None:
    calls = [
        Call(action=1, result="done", began=0, ended=10, caller="writer"),
        Call(action=None, result=0, began=11, ended=12, caller="reader"),
    ]
    verdict = check_history(calls, REGISTER)

    assert verdict.linearizable is False
    assert verdict.unexplained is calls[1]
    assert "not linearizable" in str(verdict)
    assert "reader: None -> 0" in str(verdict)


def test_what_overlaps_may_take_effect_in_any_order() -> None:
    for seen in (0, 1):
        calls = [Call(action=1, result="done", began=0, ended=10), Call(action=None, result=seen, began=5, ended=12)]
        assert check_history(calls, REGISTER).linearizable


def test_a_call_without_an_answer_may_take_effect_late_or_never_but_once() -> None:
    lost = Call(action=1, began=0)
    before, after = Call(action=None, result=0, began=5, ended=6), Call(action=None, result=1, began=90, ended=91)
    again = Call(action=None, result=0, began=95, ended=96)

    assert check_history([lost, before], REGISTER).linearizable
    assert check_history([lost, before, after], REGISTER).linearizable
    assert check_history([lost, before, after, again], REGISTER).linearizable is False


def test_an_acknowledged_append_that_is_lost_is_found() -> None:
    calls = [Call(action="a", result=0, began=0, ended=1), Call(action="b", result=0, began=2, ended=3)]
    assert check_history(calls, LOG).linearizable is False


def test_keys_are_judged_apart() -> None:
    calls = [
        Call(action=1, result="done", began=0, ended=1, caller="x"),
        Call(action=None, result=0, began=2, ended=3, caller="y"),
    ]
    assert check_history(calls, REGISTER).linearizable is False
    assert check_each(calls, REGISTER, key=lambda call: call.caller).linearizable
    assert check_each([*calls, attrs.evolve(calls[1], caller="x")], REGISTER, lambda call: call.caller) \
        .linearizable is False  # fmt: skip


def test_a_search_that_takes_too_long_is_given_up_and_says_so() -> None:
    calls = [Call(action=number, began=0) for number in range(12)]
    calls.append(Call(action=None, result=(99,), began=1, ended=2))
    verdict = check_history(calls, LOG, steps_max=5_000)

    assert verdict.linearizable is None
    assert "given up" in str(verdict)


def test_a_history_of_hundreds_of_calls_is_no_trouble() -> None:
    calls = [Call(action=1, result=number + 1, began=10 * number, ended=10 * number + 25) for number in range(500)]

    assert check_history(calls, ADDER).linearizable


def test_a_call_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="ends before it begins"):
        check_history([Call(action=1, began=5, ended=4)], ADDER)


def test_the_fast_check_names_both_calls() -> None:
    append = LogCall(reads=False, end_offset=8, began=0, ended=10, what="append 3")
    read = LogCall(reads=True, end_offset=7, began=11, ended=12, what="a read on node 2")

    assert contradiction_in_log([read, append]) == (append, read)
    assert contradiction_in_log([attrs.evolve(read, began=10), append]) is None
    assert contradiction_in_log([attrs.evolve(append, ended=None), read]) is None
    assert str(append) == "append 3 (asked at 0, answered at 10) stands up to 8"
