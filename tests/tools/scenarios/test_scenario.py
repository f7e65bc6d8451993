"""What a scenario is."""

from __future__ import annotations

import random

from tools.scenarios.scenario import Chapter, ScenarioReport
from tools.scenarios.story import Story


def test_a_chapter_collects_its_stories_in_order_and_draws_their_worlds() -> None:
    chapter = Chapter()

    @chapter("X1", "one", expected="nothing", voters=5)
    def first(story: Story) -> None: ...

    @chapter("X2", "two", expected="nothing", draw=lambda chance: {"voters": chance.choice((3, 4))}, observers=1)
    def second(story: Story) -> None: ...

    assert [(scenario.id, scenario.title) for scenario in chapter.scenarios] == [("X1", "one"), ("X2", "two")]
    assert chapter.scenarios[0].world(random.Random(1)) == {"voters": 5}
    drawn = [chapter.scenarios[1].world(random.Random(seed)) for seed in range(20)]
    assert {fields["voters"] for fields in drawn} == {3, 4}
    assert all(fields["observers"] == 1 for fields in drawn)


def test_a_report_is_plain_values() -> None:
    report = ScenarioReport(
        id="X1", seed=1, provoked={"trouble": 2}, simulated_ms=3, events=4, elections=5, committed=6, acknowledged=7,
        trace_hash="8",
    )  # fmt: skip

    assert report.to_dict()["provoked"] == {"trouble": 2}
