"""Reports on Spark are those of the twin, as of any offset."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.analysis import reports as twin
from kraftlib.analysis.schemas import REPORTS
from kraftlib.errors import ConfigError
from kraftlib.spark.jobs.reports import report
from tests.captured import DATA
from tests.spark.rows import table_of

NODE = DATA / "kafka-4.3.1" / "n1"


@pytest.mark.parametrize(
    ("what", "moment"),
    [
        ("partitions", {}),
        ("topics", {"at_offset": 60}),
        ("partitions", {"at_offset": 100}),
        ("brokers", {"at_timestamp": "2026-11-21T10:09:20Z"}),
    ],
)
def test_it_is_that_of_the_twin(spark: Any, what: str, moment: dict[str, Any]) -> None:
    assert table_of(report(spark, NODE, what, **moment), REPORTS[what]) == twin.report(NODE, what, **moment)


def test_a_report_that_there_is_not_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match="__consumer_offsets"):
        report(spark, NODE, "consumer-groups")
