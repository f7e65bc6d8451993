"""The picture of a run: one file that needs nothing else, with everything in it that happened."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kraftlib.testing import timeline_page
from kraftlib.testing.campaign import quiet
from kraftlib.testing.simulation import simulate
from kraftlib.testing.timeline_page import TimelinePage
from kraftlib.testing.trace import Entry, Step
from kraftlib.testing.violation import InvariantViolation


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_run_with_all_its_steps_stands_in_the_page() -> None:
    page, told = TimelinePage("seed 3"), []

    def both(entry: Entry) -> None:
        page.add(entry)
        told.append(entry)

    with quiet():
        simulate(3, "crashes", trouble_ms=300, on_entry=both)
    data = data_of(page.render(outcome="fine"))

    assert len(data["entries"]) == len(told)
    assert data["violation"] is None
    assert data["nodes"] == sorted({entry.node for entry in told if entry.step is Step.STARTED})
    assert {row[1] for row in data["entries"]} >= {Step.STARTED, Step.ROLE, Step.COMMITTED, Step.VOTED, Step.PHASE}
    assert [row[0] for row in data["entries"]] == sorted(row[0] for row in data["entries"])


def test_a_page_loads_nothing_from_elsewhere() -> None:
    page = TimelinePage("t").render(outcome="o")

    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|https?://""", page)
    assert "default-src 'none'" in page
    assert "@DATA@" not in page


def test_texts_cannot_break_out_of_the_page() -> None:
    page = TimelinePage("<title> & more")
    page.add(Entry(1, Step.FAULT, -1, 0, 5, "</script><script>alert(1)</script> @TITLE@"))
    written = page.render(outcome="<b>bold</b>")

    assert written.count("</script>") == 2
    assert "&lt;title&gt; &amp; more" in written
    assert "&lt;b&gt;bold" in written
    assert data_of(written)["entries"] == [[1, Step.FAULT, -1, 0, 5, "</script><script>alert(1)</script> @TITLE@"]]


def test_a_violation_is_the_last_thing_in_the_picture() -> None:
    page = TimelinePage("t")
    page.add(Entry(7_300, Step.STARTED, 1, 1, 0, ""))
    violation = InvariantViolation("I1", "two leaders", seed=1, time_ms=7, replay="r")
    data = data_of(page.render(outcome=str(violation), violation=violation))

    assert data["violation"] == {"us": 7_300, "what": "two leaders"}


def test_of_what_is_frequent_the_latest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_page, "FREQUENT_MAX", 3)
    page = TimelinePage("t")
    page.add(Entry(0, Step.STARTED, 1, 1, 0, ""))
    for number in range(5):
        page.add(Entry(number, Step.REQUEST, 1, 2, 1, ""))
    data = data_of(page.render(outcome="o"))

    assert [row[0] for row in data["entries"]] == [0, 2, 3, 4]
    assert data["leftOut"] == 2
