"""A bar for people, and silence for programs."""

from __future__ import annotations

import io

from kraftlib.cli.progress import Bar


def test_a_bar_says_how_much_is_done_and_is_gone_at_the_end() -> None:
    out = io.StringIO()
    with Bar("reading", 10 << 20, stream=out, shown=True) as bar:
        bar.advance(5 << 20)
        assert bar.text() == f"reading [{'#' * 15}{'.' * 15}] 5 of 10 MiB"
    assert "5 of 10 MiB" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_more_than_all_is_all() -> None:
    bar = Bar("counting", 0, unit="records", shown=False)
    bar.advance(7)
    assert bar.text() == f"counting [{'#' * 30}] 7 of 1 records"


def test_where_nobody_looks_it_says_nothing() -> None:
    out = io.StringIO()
    with Bar("reading", 10, stream=out) as bar:
        bar.advance(10)
    assert out.getvalue() == ""
