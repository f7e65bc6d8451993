"""A Spark session with the settings that make Python data sources fast, each of them measured.

A data source that is written in Python costs a fixed time per task. By default that is 37 ms of processor time and
a stall of 40 ms on a reused TCP connection. With Unix sockets, and a garbage collector that does not scan imported
modules again and again (`prepare_worker`), it costs about as much as a task of the JVM.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraftlib.errors import KraftError
from kraftlib.spark.needs import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

LOCAL_MEMORY: Final = "1g"
"""Heap of a session in local mode. One is enough for a log of any size: rows stream."""

START_TIMEOUT_S: Final = 180.0
"""A JVM starts in five seconds; on a machine that is busy with other things it may take a minute."""

KEPT_BYTES: Final = 128 << 20
"""Freed memory that a worker keeps for its next chunk, several times what one of the usual size needs."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_MAX: Final = 32 << 20
"""Parameters of glibc's mallopt (malloc.h), and the largest threshold that it takes."""

_prepared = False


def session(
    master: str | None = None,
    *,
    app_name: str = "kraftlib",
    memory: str = LOCAL_MEMORY,
    config: Mapping[str, str] | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> SparkSession:
    """Return a Spark session, a new one in local mode unless `master`, spark-submit or an active session is there.

    `memory` is the heap of local mode; `config` overrides every other setting, and spark-submit the defaults.
    Raises: ConfigError, if there is no Java; KraftError, if a JVM of local mode has not started in time.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and config is None:
        return active
    said = submitted()
    master = master or said.get("spark.master") or os.environ.get("MASTER") or f"local[{os.cpu_count() or 1}]"
    settings = {**settings_for(master, memory=memory), **said, **(config or {})}
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        check_java()
        # Otherwise workers would take the first python3 of the PATH, which may lack all dependencies.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Of the context only: a session is active in the thread that makes it.
        conf = SparkConf().setMaster(master).setAppName(app_name).setAll(list(settings.items()))
        started(lambda: SparkContext.getOrCreate(conf), start_timeout_s, give_up=_end_jvm)
    return builder.getOrCreate()


def submitted() -> dict[str, str]:
    """Return the settings that spark-submit was given, by options and configuration; none in any other program."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to the JVM that started us, which knows them
    return dict(SparkConf().getAll())


def started(start: Callable[[], object], timeout_s: float, *, give_up: Callable[[], object]) -> None:
    """Call `start`, which starts a JVM, and wait for it no longer than `timeout_s`. Its errors are raised here.

    Raises: KraftError, if the time is over; `give_up` was called then, so that another try begins anew.
    """
    failed: list[BaseException] = []

    def work() -> None:
        try:
            start()
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            failed.append(error)

    thread = threading.Thread(target=work, name="kraftlib-spark-start", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        give_up()
        raise KraftError(
            f"Spark has not started in {timeout_s:.0f} s, on {os.cpu_count()} processors with a load of"
            f" {os.getloadavg()[0]:.1f}: try again, or with a larger start_timeout_s"
        )
    if failed:
        raise failed[0]


def _end_jvm() -> None:
    """End the JVM of this process, if there is one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


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


def prepare_worker() -> None:
    """Exempt the modules imported so far from garbage collection, and keep freed memory, once per worker process.

    The worker collects garbage after every task, and scanning numpy and pyarrow alone takes 25 ms each time. The arrays
    of one chunk are freed before those of the next are made: returning their pages, and taking new ones that the kernel
    has to clear, would take a tenth of the processor time of a scan.
    """
    global _prepared
    if not _prepared:
        gc.collect()
        gc.freeze()
        _keep_freed_memory()
        _prepared = True


def _keep_freed_memory() -> None:
    """Have glibc keep up to KEPT_BYTES of freed memory. Other C libraries have no such setting, or another one."""
    try:
        setting = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function; or Windows, where None is no library
        return
    setting(_TRIM_THRESHOLD, KEPT_BYTES)
    setting(_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
