"""Seeds over executors: what a seed does is a row, whatever it does to its process."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.spark.jobs.sweep import sweep
from kraftlib.testing.campaign import run_seeds
from kraftlib.testing.simulation import Report

SHORT = 200


def test_seeds_give_what_they_give_without_spark(spark: Any) -> None:
    found = {row.seed: row for row in sweep(spark, range(6), until_ms=SHORT).collect()}
    assert sorted(found) == list(range(6))
    for report in run_seeds(range(6), profile="swarm", jobs=1, trouble_ms=SHORT):
        assert isinstance(report, Report)
        row = found[report.seed]
        assert (row.outcome, row.simulated_ms) == ("ok", report.simulated_ms)
        assert row.replay == f"kraftlib simulate --seed {row.seed} --profile swarm --until-ms {SHORT}"


def test_no_seeds_are_refused() -> None:
    with pytest.raises(ConfigError, match="are no seeds"):
        sweep(None, range(3, 3))
