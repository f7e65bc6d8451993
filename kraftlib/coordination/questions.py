"""Answers from the applied state."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.coordination.history import row_size
from kraftlib.coordination.keys import ANSWER_BYTES_MAX
from kraftlib.coordination.messages import Answer, Ask, Question, Selector, Watched
from kraftlib.coordination.state import State

Row = Answer.Row


def answer(state: State, question: Question) -> Answer:
    """Answer a question."""
    match question.ask:
        case Ask.SESSION:
            session = state.sessions.live.get(question.session)
            return Answer() if session is None else Answer(ttl_ms=session.ttl_ms)
        case Ask.LOCK:
            rows = [bid.row(bid.state) for bid in state.locks.bids(question.name)]
            return Answer(rows=tuple(rows[: question.most]), more=len(rows) > question.most)
        case Ask.HISTORY:
            return _history(state, question)
    return _keys(state, question)


def _keys(state: State, question: Question) -> Answer:
    if not question.prefix:
        found = state.keys.values.get(question.name)
        return Answer() if found is None else Answer(rows=(found.row(question.name),))
    rows: list[Row] = []
    size = 0
    for key in state.keys.with_prefix(question.name, after=question.after):
        rows.append(state.keys.values[key].row(key))
        size += row_size(rows[-1])
        if len(rows) >= question.most or size > ANSWER_BYTES_MAX:
            more = next(state.keys.with_prefix(question.name, after=key), "") != ""
            return Answer(rows=tuple(rows), more=more)
    return Answer(rows=tuple(rows))


def _history(state: State, question: Question) -> Answer:
    selector = Selector(watched=Watched.PREFIX if question.prefix else Watched.KEY, name=question.name)
    found = state.history.after(question.number, selector, most=question.most)
    rows = [row for _, changes in found for row in changes]
    return Answer(rows=tuple(rows[: question.most]), more=question.number < state.history.start)


def full_state(state: State, selector: Selector) -> Answer:
    """Return all that a selector takes, as it is now."""
    rows: Iterable[Row]
    if selector.watched == Watched.LOCK:
        rows = [bid.row(bid.state) for bid in state.locks.bids(selector.name)]
    elif selector.watched == Watched.PREFIX:
        rows = [state.keys.values[key].row(key) for key in state.keys.with_prefix(selector.name)]
    else:
        found = state.keys.values.get(selector.name)
        rows = [] if found is None else [found.row(selector.name)]
    return Answer(rows=tuple(rows))
