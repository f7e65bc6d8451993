"""The session has the settings that were measured to matter."""

from __future__ import annotations

import gc
import os
import platform
import resource
import subprocess
import sys
import threading
from typing import Any

import pytest

from kraftlib.errors import ConfigError, KraftError
from kraftlib.spark import session, sessions

PATIENCE_S = 60.0


def test_a_local_session_has_the_fast_settings_and_listens_on_loopback(spark: Any) -> None:
    conf = spark.conf
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert conf.get("spark.driver.memory") == "1g"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_an_active_session_is_used(spark: Any) -> None:
    assert session() is spark


def test_a_session_on_a_cluster_gets_no_local_addresses() -> None:
    settings = sessions.settings_for("spark://somewhere:7077")
    assert "spark.driver.host" not in settings
    assert settings[sessions.UNIX_SOCKETS] == settings[sessions.PUSHDOWN] == "true"


def test_what_spark_submit_was_given_is_heeded(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.submitted() == {}
    properties = spark._jvm.java.lang.System
    properties.setProperty("spark.kraftlib.told", "by spark-submit")
    try:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        assert sessions.submitted()["spark.kraftlib.told"] == "by spark-submit"
    finally:
        properties.clearProperty("spark.kraftlib.told")


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match=r"JAVA_HOME=/nowhere has no bin/java: name the directory of a Java 17"):
        sessions.check_java()


def test_a_worker_freezes_its_collector_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_prepared", False)
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    sessions.prepare_worker()
    sessions.prepare_worker()
    assert len(frozen) == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_a_worker_takes_its_memory_from_the_kernel_once() -> None:
    """In a process of its own, since what the C library is told holds for good."""
    program = """
import resource
from kraftlib.spark.sessions import prepare_worker

prepare_worker()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    [bytearray(b"1") * (24 << 20) for _ in range(3)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    pages = 3 * (24 << 20) // resource.getpagesize()
    assert int(done.stdout) < 2 * pages


def test_a_jvm_that_does_not_start_is_an_error_that_says_so_and_is_not_waited_for_for_ever() -> None:
    never, gone = threading.Event(), threading.Event()
    with pytest.raises(KraftError, match=r"has not started in 0 s, on \d+ processors with a load of"):
        sessions.started(lambda: never.wait(PATIENCE_S), 0.01, give_up=gone.set)
    assert gone.is_set()
    never.set()


def test_what_goes_wrong_at_the_start_is_raised() -> None:
    def refuse() -> None:
        raise ConfigError("no such master")

    sessions.started(lambda: None, PATIENCE_S, give_up=pytest.fail)
    with pytest.raises(ConfigError, match="no such master"):
        sessions.started(refuse, PATIENCE_S, give_up=pytest.fail)
