"""The history of a thing on Spark is that of the twin."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.analysis import history as twin
from kraftlib.errors import ConfigError
from kraftlib.spark.jobs.history import history
from tests.captured import DATA
from tests.spark.rows import table_of

NODE = DATA / "kafka-4.3.1" / "n1"


@pytest.mark.parametrize("what", ["topic:events-0", "broker:10"])
def test_it_is_that_of_the_twin(spark: Any, what: str) -> None:
    assert table_of(history(spark, NODE, what), twin.HISTORY) == twin.history(NODE, what)


def test_a_kind_that_is_none_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match="'table:x' names nothing"):
        history(spark, NODE, "table:x")


def test_what_the_log_does_not_know_is_an_error_as_that_of_the_twin(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"no record at .* is about topic:nobody"):
        history(spark, NODE, "topic:nobody")
