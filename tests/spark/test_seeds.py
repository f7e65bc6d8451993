"""The source behind a sweep."""

from __future__ import annotations

from kraftlib.spark.seed_runs import RESULTS
from kraftlib.spark.seeds import SeedSource


def test_each_task_has_its_seeds_and_all_have_the_options() -> None:
    options = {"first": "0", "end": "5", "tasks": "2", "profile": "crashes", "seed_timeout_s": "3.5", "until_ms": "7"}
    reader = SeedSource(options).reader(None)
    assert [part.value for part in reader.partitions()] == [range(2), range(2, 5)]
    chosen = reader.sweep_options
    assert (chosen.profile, chosen.subject, chosen.until_ms, chosen.seed_timeout_s) == ("crashes", None, 7, 3.5)
    assert SeedSource(options).schema().count("`") == 2 * len(RESULTS)
