"""Spark's own standalone cluster, a master and workers as processes on loopback, and executors without kraftlib."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark

SPARK_HOME: Final = Path(pyspark.__file__).parent
ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 400.0
FRUGAL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def bare_python(directory: Path) -> Path:
    """Return an interpreter that has all packages of ours but kraftlib itself.

    Packages are found where we have them; kraftlib, which is installed in place, by a file that is not read from there.
    """
    venv.create(directory, with_pip=False, symlinks=True)
    paths = {"base": str(directory), "platbase": str(directory)}
    own = Path(sysconfig.get_path("purelib", vars=paths))
    (own / "outer.pth").write_text(sysconfig.get_path("purelib"))
    python = directory / "bin" / "python"
    found = subprocess.run([python, "-I", "-c", "import numpy, pyarrow, kraftlib"], capture_output=True, check=False)
    if b"No module named 'kraftlib'" not in found.stderr:
        raise RuntimeError(f"{python} was to lack kraftlib and nothing else: {found.stderr.decode()}")
    return python


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process of Spark: on loopback, with nothing of ours on its path."""
    here = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MASTER")}
    spark = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FRUGAL,
        "SPARK_NO_DAEMONIZE": "1",
    }
    return {**here, **spark, **more}


@contextlib.contextmanager
def standalone(home: Path, *, workers: int = 1, **more: str) -> Iterator[str]:
    """Run a master and workers, of two processors together; yield the URL of the master.

    `more` are variables of the environment for the executors.
    """
    with contextlib.ExitStack() as stack:
        kind = "org.apache.spark.deploy"
        common = ["--port", "0", "--webui-port", "0"]
        log = home / "master.log"
        stack.enter_context(running([f"{kind}.master.Master", "--host", "127.0.0.1", *common], home, log))
        url = said(r"Starting Spark master at (spark://\S+)", log)
        logs = [home / f"worker-{number}.log" for number in range(workers)]
        for number, log in enumerate(logs):
            # Hosts of their own, as Spark sees it: it runs no second attempt where the first one is.
            here = {"SPARK_LOCAL_IP": f"127.0.0.{1 + number}", **more}
            place = ["--host", here["SPARK_LOCAL_IP"], "--work-dir", str(home / "work" / log.stem)]
            limits = ["--cores", str(2 // workers), "--memory", "1g", *place]
            stack.enter_context(running([f"{kind}.worker.Worker", *common, *limits, url], home, log, **here))
        for log in logs:
            said(r"(Successfully registered with master)", log)
        yield url


@contextlib.contextmanager
def running(words: list[str], home: Path, log: Path, **more: str) -> Iterator[None]:
    """Run a class of Spark as a process."""
    (home / "log4j2.properties").write_text(
        "rootLogger.level=info\nrootLogger.appenderRef.err.ref=err\nappender.err.type=Console\nappender.err.name=err\n"
        "appender.err.target=SYSTEM_ERR\nappender.err.layout.type=PatternLayout\nappender.err.layout.pattern=%m%n\n"
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *words],
            env=environment(SPARK_CONF_DIR=str(home), **more),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield
    finally:
        process.terminate()  # a worker ends its executors when it is told to end
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(pattern: str, log: Path) -> str:
    """Return what the pattern captures, as soon as a log says it."""
    until = time.monotonic() + PATIENCE_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{log} says: {log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.05)
    return found[1]


def submit(master: str, program: Path, *words: str, python: Path, archive: Path, home: Path) -> str:
    """Run a program with spark-submit, by an interpreter that has kraftlib from the archive; return its output."""
    settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.ui.enabled": "false",
                "spark.driver.host": "127.0.0.1", "spark.driver.extraJavaOptions": FRUGAL,
                "spark.executor.extraJavaOptions": FRUGAL, "spark.sql.shuffle.partitions": "2"}  # fmt: skip
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, "--py-files", str(archive)]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return output_of([*command, str(program), *words], home, PYSPARK_PYTHON=str(python))


def output_of(command: list[str], home: Path, **more: str) -> str:
    """Run a program of Spark elsewhere than here; return what it printed. Raises: RuntimeError with what went wrong."""
    ran = subprocess.run(
        command, cwd=home, env=environment(**more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if ran.returncode:
        errors = "\n".join(line for line in ran.stderr.splitlines() if " INFO " not in line)
        raise RuntimeError(
            f"{' '.join(command[:3])} … ended with {ran.returncode}: {ran.stdout[-2_000:]}{errors[-4_000:]}"
        )
    return ran.stdout
