"""Answers from the applied state."""

from __future__ import annotations

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
            return _bids(state, question)
        case Ask.HISTORY:
            return _history(state, question)
    return _keys(state, question)


def _bids(state: State, question: Question) -> Answer:
    bids = [bid for bid in state.locks.bids(question.name) if bid.ticket > question.number]
    rows = tuple([bid.row(bid.state) for bid in bids[: question.most]])
    return Answer(rows=rows, more=len(bids) > question.most)


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
    rows: list[Row] = []
    size = taken = 0
    for _, changes in found:  # a record as a whole: those after its offset are asked for next
        if len(rows) >= question.most or size > ANSWER_BYTES_MAX:
            break
        rows += changes
        size += sum(map(row_size, changes))
        taken += 1
    more = taken < len(found) or len(found) == question.most
    return Answer(rows=tuple(rows), more=more, gone=question.number < state.history.start)


def question_of(selector: Selector) -> Question:
    """Return the question for the keys of a selector."""
    ask = Ask.LOCK if selector.watched == Watched.LOCK else Ask.KEYS
    return Question(ask=ask, name=selector.name, prefix=selector.watched == Watched.PREFIX)
