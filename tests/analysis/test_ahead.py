"""What is made ahead comes in order, and nothing of it is left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kraftlib.analysis.ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "kraftlib-ahead"]


def test_all_items_come_in_their_order() -> None:
    assert list(ahead(iter(range(1_000)))) == list(range(1_000))
    assert list(ahead(ahead(iter(range(50)), depth=1))) == list(range(50))
    assert list(ahead([])) == []
    assert threads() == []


def test_an_error_is_raised_where_the_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("no second one")

    made = ahead(items())
    assert next(made) == 1
    with pytest.raises(LookupError, match="no second one"):
        next(made)
    assert threads() == []


def test_who_stops_early_ends_the_thread_and_the_items() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            number = 0
            while True:
                number += 1
                yield number
        finally:
            closed.set()

    made = ahead(items())
    assert next(made) == 1
    made.close()

    assert closed.is_set()
    assert threads() == []
