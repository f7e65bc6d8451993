"""Executors in processes of their own, which have kraftlib only because it was sent to them as a zip file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.captured import DATA
from tests.snippets import ROOT

TIMEOUT_S = 170
PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
spark.sparkContext.addPyFile(sys.argv[1])
from kraftlib import spark as kraft


def origin(number):
    import kraftlib

    return kraftlib.__file__


rows = kraft.read(spark, sys.argv[2])
(place,) = set(spark.sparkContext.parallelize(range(2), 2).map(origin).collect())
print("answer", rows.count(), "kraftlib.zip" in place, flush=True)
"""


@pytest.mark.slow
def test_a_zip_of_the_package_is_enough_for_executors_of_their_own(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer, and none is on the PATH")
    package = tmp_path / "kraftlib.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in sorted((ROOT / "kraftlib").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    (tmp_path / "job.py").write_text(PROGRAM)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "job.py", str(package), str(DATA / "kafka-4.3.1" / "n1")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert "answer 275 True" in done.stdout, done.stderr[-3000:]
