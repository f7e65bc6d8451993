"""One Spark session for the run, with a heap of 1 GB. Without Java or pyspark these tests skip; in CI they fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras import module_unless_missing


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_unless_missing(("numpy", "pyarrow", "pyspark"), "spark", path=module_path, parent=parent)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on two cores, made by `kraftlib.spark.session`, and stopped at the end."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer, and none is on the PATH")
    from kraftlib.spark import session

    # Of many small queries each runs once: what the best compiler and a parallel collector cost never comes back.
    frugal = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    made = session("local[2]", app_name="kraftlib-tests", config=frugal, start_timeout_s=170.0)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()
