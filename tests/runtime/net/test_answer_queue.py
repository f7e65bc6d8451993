"""Answers leave in order, whoever gives them when."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import InvariantError
from kraftlib.runtime.net.answer_queue import AnswerQueue


class Line:
    """A connection that takes notes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.hung_up = 0
        self.answers = AnswerQueue(self.sent.extend, self.hang_up)

    def hang_up(self) -> None:
        self.hung_up += 1


@given(st.integers(0, 30), st.randoms(use_true_random=False))
def test_answers_leave_in_the_order_of_their_requests(count: int, chance: random.Random) -> None:
    line = Line()
    places = [(line.answers.expect(), b"%d" % number) for number in range(count)]
    for answer, frame in chance.sample(places, count):
        answer(frame)

    assert line.sent == [frame for _, frame in places]
    assert len(line.answers) == 0


@given(st.integers(1, 10), st.integers(0, 9), st.randoms(use_true_random=False))
def test_none_ends_the_connection_when_its_turn_comes(count: int, which: int, chance: random.Random) -> None:
    line, which = Line(), which % count
    places = [(line.answers.expect(), b"%d" % number if number != which else None) for number in range(count)]
    for answer, frame in chance.sample(places, count):
        answer(frame)

    assert line.sent == [frame for _, frame in places[:which]]
    assert line.hung_up == 1


def test_an_answer_is_given_once() -> None:
    answer = Line().answers.expect()
    answer(b"one")

    with pytest.raises(InvariantError):
        answer(b"two")


def test_answers_of_a_lost_connection_go_nowhere() -> None:
    line = Line()
    early, late = line.answers.expect(), line.answers.expect()
    line.answers.drop()
    after = line.answers.expect()
    for answer in (early, late, after):
        answer(b"too late")

    assert (line.sent, line.hung_up, len(line.answers)) == ([], 0, 0)
