"""Exactly once, of Spark itself: killed with -9, while a commit vanishes, a leader goes and the log is compacted.

The long form, with 20 kills: `python3 dev.py bench-spark --only kills`.
"""

from __future__ import annotations

import faulthandler
import shutil
from pathlib import Path

import pytest

from tests.spark.kills import drill


@pytest.mark.slow
def test_each_committed_record_arrives_exactly_once_through_kills_of_spark(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer, and none is on the PATH")
    faulthandler.cancel_dump_traceback_later()  # two JVMs start here; each wait is bounded
    outcome = drill(tmp_path, kills=1, seed=2)

    assert (outcome.missing, outcome.doubled, outcome.differs) == ((), (), False)
    assert outcome.batches >= 2
