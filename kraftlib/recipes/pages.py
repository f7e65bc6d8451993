"""Answers in pages, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from kraftlib.coordination.access import AtLeast, Consistency
from kraftlib.coordination.messages import Answer, Ask, Event, Question, Selector
from kraftlib.coordination.questions import question_of
from kraftlib.types import Offset

Row = Answer.Row
PAGE: Final = 1_000
Asks = Callable[[Question, Consistency], Awaitable[tuple[Offset, Answer]]]
"""The `ask` of a session: it returns the answer, and the offset of the last record that is in it."""


def question_after(question: Question, last: Row) -> Question:
    """Return the question for the page after the one that ends with `last`."""
    if question.ask == Ask.KEYS:
        return attrs.evolve(question, after=last.name)
    return attrs.evolve(question, number=last.revision)


async def all_rows(
    ask: Asks, question: Question, consistency: Consistency, *, until: Callable[[Row], bool] = lambda row: False
) -> tuple[Offset, Offset, list[Row]]:
    """Return the rows of all pages, or up to the one that has a row which `until` accepts; before them the offsets of
    the first page and of the last.

    The later pages may hold later changes: a reader that needs them all watches from the first offset.
    """
    first, answer = await ask(question, consistency)
    rows, latest = list(answer.rows), first
    while answer.more and not any(map(until, answer.rows)):
        question = question_after(question, rows[-1])
        latest, answer = await ask(question, AtLeast(latest))
        rows += answer.rows
    return first, latest, rows


async def whole_state(
    ask: Asks, selector: Selector, offset: Offset, page: Sequence[Row]
) -> tuple[Offset, Sequence[Row]]:
    """Return all that is watched, of which `page` is the first page, as of `offset`; and the offset that it is of.

    Pages of keys are of different offsets: the changes since the first one, on top of them, make them one state. Bids
    are not brought to one offset: the facts about each are of the returned one, or later.
    """
    question = question_of(selector)
    while True:
        after = question_after(question, page[-1])
        _, latest, rest = await all_rows(ask, after, AtLeast(offset))
        if question.ask == Ask.LOCK:
            return offset, [*page, *rest]
        found = {row.name: row for row in (*page, *rest)}
        changes = Question(ask=Ask.HISTORY, name=selector.name, prefix=question.prefix, number=offset)
        latest, gone = await _bring_up(ask, found, changes, latest)
        if not gone:
            return latest, [found[name] for name in sorted(found)]
        offset, answer = await ask(question, AtLeast(latest))
        page = answer.rows
        if not answer.more:
            return offset, page


async def _bring_up(ask: Asks, found: dict[str, Row], changes: Question, latest: Offset) -> tuple[Offset, bool]:
    """Apply the changes to the found keys; return their offset, and whether some of them are not kept any more."""
    while True:
        latest, answer = await ask(changes, AtLeast(latest))
        for row in answer.rows:
            found.pop(row.name, None)
            if row.event == Event.PUT:
                found[row.name] = row
        if answer.gone or not answer.more:
            return latest, answer.gone
        changes = question_after(changes, answer.rows[-1])
