"""A Spark session with the settings under which Python data sources are fast, each of them measured.

A data source that is written in Python costs a fixed time per task. By default that is 37 ms of processor and a stall
of 40 ms on a reused TCP connection; with Unix sockets and a collector that does not look at imported modules again and
again (`prepare_worker`) it is about what a task of the JVM costs.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.errors import ConfigError

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

LOCAL_MEMORY: Final = "1g"
"""Heap of a session in local mode. One is enough for a log of any size: rows stream."""

_frozen = False


def session(
    master: str | None = None,
    *,
    app_name: str = "kraftlib",
    memory: str = LOCAL_MEMORY,
    config: Mapping[str, str] | None = None,
) -> Any:
    """Return a Spark session, a new one in local mode unless `master` or an active session says otherwise.

    `memory` is the heap of local mode; `config` has the last word on every setting.
    Raises: ConfigError, if there is no Java.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and config is None:
        return active
    master = master or os.environ.get("MASTER") or f"local[{os.cpu_count() or 1}]"
    settings = {**settings_for(master, memory=memory), **(config or {})}
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        check_java()
        # Workers would else take the first python3 of the PATH, which may lack everything.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.getOrCreate()


def settings_for(master: str, *, memory: str = LOCAL_MEMORY) -> dict[str, str]:
    """Return the settings of a session: the fast ones everywhere, loopback and a small heap in local mode."""
    settings = {UNIX_SOCKETS: "true", PUSHDOWN: "true", "spark.sql.session.timeZone": "UTC"}
    if master.startswith("local"):
        settings |= {
            "spark.driver.memory": memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    return settings


def check_java() -> None:
    """Check that a Java is found. Raises: ConfigError that says where one was looked for."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if shutil.which("java") is None:
        raise ConfigError(
            f"Spark needs Java 17 or newer: none is on the PATH and JAVA_HOME is {home!r}; on Debian and Ubuntu:"
            " apt install openjdk-17-jre-headless"
        )


def prepare_worker() -> None:
    """Take what is imported by now out of the collector's sight, once per worker process.

    The worker collects after every task, and numpy and pyarrow alone cost it 25 ms each time.
    """
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
