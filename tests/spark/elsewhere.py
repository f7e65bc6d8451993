"""Where executors are elsewhere, without kraftlib: a standalone cluster, spark-submit, Spark Connect, an object store.

    python3 dev.py elsewhere [--only cluster,submit,connect,store] [--segments 1000]

Not among the tests: it is mostly starts of JVMs, and a client of Spark Connect needs packages that nothing else does
(grpcio, pandas and more), which are installed into an environment of their own. CI runs it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.analysis.history import history
from kraftlib.analysis.metadata_state import metadata_state
from kraftlib.analysis.reading import read_table
from kraftlib.analysis.reports import report
from kraftlib.spark.shipping import archive
from tests.captured import DATA
from tests.spark.clusters import FRUGAL, ROOT, bare_python, output_of, running, said, standalone, submit
from tests.spark.store import expected_of_store, store

SEGMENTS: Final = 60
NODE: Final = DATA / "kafka-4.3.1" / "n1"
JOBS: Final = ROOT / "tests" / "spark"
CONNECT: Final = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "pandas>=2.2")


def cluster(home: Path) -> dict[str, Any]:
    """A driver with kraftlib, executors and planners without."""
    bare = bare_python(home / "bare")
    with standalone(home) as master:
        words = [sys.executable, str(JOBS / "cluster_job.py"), master, str(NODE), str(home / "written")]
        return last_line(output_of(words, home, PYSPARK_PYTHON=str(bare), PYSPARK_DRIVER_PYTHON=sys.executable))


def expected_of_cluster(home: Path) -> dict[str, Any]:
    """What one process says."""
    log = read_table(NODE, columns="epoch,control,value").to_pylist()
    epochs = [row["epoch"] for row in log]
    values = [row["value"] for row in log if not row["control"]]
    kinds = {value[1:2].hex() for value in values}
    return {
        "several_tasks": True,
        "epochs": {str(epoch): epochs.count(epoch) for epoch in set(epochs)},
        "one": [100],
        "sizes": {kind: sum(len(value) for value in values if value[1:2].hex() == kind) for kind in kinds},
        "findings": 0,
        "seeds": ["ok", "ok"],
        "checkpoint": checkpoint_of_twin(home),
    }


def submitted(home: Path) -> dict[str, Any]:
    """The example by spark-submit: driver, planners and executors have kraftlib from an archive only."""
    bare = bare_python(home / "bare")
    program, query = ROOT / "examples" / "kraft_job.py", "SELECT count(*) AS many FROM batches"
    with standalone(home) as master:
        shown = submit(master, program, "sql", query, str(NODE), python=bare, archive=archive(home), home=home)
        return {"shown": shown.split(), "ran": "Registering app kraft_job.py" in (home / "master.log").read_text()}


def expected_of_submitted(home: Path) -> dict[str, Any]:
    """What is shown, by whom."""
    return {"shown": ["many", str(read_table(NODE, view="batches").num_rows)], "ran": True}


def connect(home: Path) -> dict[str, Any]:
    """A client of Spark Connect that brings kraftlib to its server."""
    client, bare = client_python(home / "client"), bare_python(home / "server")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": FRUGAL,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    words = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    words += [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = home / "server.log"
    with running(words, home, log, PYSPARK_PYTHON=str(bare), SPARK_DAEMON_MEMORY="1g"):
        place = said(r"Spark Connect server started at: \S*?(127\.0\.0\.1:\d+)", log)
        command = [str(client), str(JOBS / "connect_job.py"), f"sc://{place}", str(NODE), str(home / "written")]
        return last_line(output_of(command, home))


def expected_of_connect(home: Path) -> dict[str, Any]:
    """What one process says."""
    return {
        "before": False,
        "after": True,
        "rows": read_table(NODE, columns="offset").num_rows,
        "lookup": [100],
        "findings": 0,
        "brokers": report(NODE, "brokers").num_rows,
        "history": history(NODE, "broker:10").num_rows,
        "checkpoint": checkpoint_of_twin(home),
        "seeds": ["ok", "ok"],
    }


def client_python(directory: Path) -> Path:
    """Return an interpreter that has what a client of Spark Connect needs, beside all that we have."""
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", *CONNECT], check=True, timeout=300)
    paths = {"base": str(directory), "platbase": str(directory)}
    outer = Path(sysconfig.get_path("purelib", vars=paths)) / "outer.pth"
    outer.write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return python


def checkpoint_of_twin(home: Path) -> str:
    """Return the bytes of the checkpoint that one process writes, in hexadecimal digits."""
    (home / "twin").mkdir()
    options = parse_checkpoint_options({"path": str(home / "twin"), "endOffset": "275", "epoch": "4"})
    return write_table(metadata_state(NODE), options).path.read_bytes().hex()


def last_line(output: str) -> dict[str, Any]:
    """Return what a job printed at its end."""
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


Part = tuple[Callable[[Path], dict[str, Any]], Callable[[Path], dict[str, Any]]]


def parts(segments: int) -> dict[str, Part]:
    """Return what is tried, and what one process says of the same."""
    return {
        "cluster": (cluster, expected_of_cluster),
        "submit": (submitted, expected_of_submitted),
        "connect": (connect, expected_of_connect),
        "store": (partial(store, segments=segments), partial(expected_of_store, segments=segments)),
    }


def main() -> int:
    """Return 1 if something is not as it is in one process."""
    parser = argparse.ArgumentParser(prog="dev.py elsewhere", description="Work on executors that have no kraftlib.")
    parser.add_argument("--only", default=",".join(parts(0)), metavar="A,B", help=f"of {', '.join(parts(0))}")
    parser.add_argument("--segments", type=int, default=SEGMENTS, help="of the log in the object store (%(default)s)")
    chosen = parser.parse_args()
    names, known = chosen.only.split(","), parts(chosen.segments)
    if unknown := set(names) - set(known):
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    wrong = 0
    for name in names:
        work, expectation = known[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kraftlib-elsewhere-") as directory:
            home = Path(directory)
            found, expected = work(home), expectation(home)
        different = [(key, found.get(key), value) for key, value in expected.items() if found.get(key) != value]
        print(
            f"{name}: {len(expected)} answers in {time.monotonic() - began:.0f} s, {len(different)} wrong", flush=True
        )
        for key, value, rather in different:
            print(f"  {key}: {str(value)[:500]}, where one process says {str(rather)[:500]}")
        wrong += len(different)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
