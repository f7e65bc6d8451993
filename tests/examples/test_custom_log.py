"""The SQLite log keeps what it promises, by the kit that is there for everybody's logs."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.custom_log import SqliteElections, SqliteLog
from kraftlib import StorageError
from kraftlib.errors import CorruptBatchError
from kraftlib.testing.log_contract import LOG_CHECKS, STORE_CHECKS, fill, read_all


@pytest.mark.parametrize("check", LOG_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_log_keeps_the_contract(check: Callable[[Any], None], tmp_path: Path) -> None:
    check(lambda: SqliteLog(tmp_path / "log.db"))


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_elections_keep_the_contract(check: Callable[[Any], None], tmp_path: Path) -> None:
    check(lambda: SqliteElections(tmp_path / "votes.db"))


def test_what_was_flushed_survives_a_killed_process(tmp_path: Path) -> None:
    """And what was not is gone, from the end only."""
    program = (
        "import os, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "from examples.custom_log import SqliteLog; from kraftlib.testing.log_contract import fill;"
        "log = SqliteLog(Path(sys.argv[1])); fill(log, 1, 1, 2); log.flush(); fill(log, 2, 3);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "log.db"
    command = [sys.executable, "-c", program, str(path), str(Path(__file__).parents[2])]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9

    log = SqliteLog(path)
    assert [batch.epoch for batch in read_all(log)] == [1, 1, 2]
    log.close()


def test_a_damaged_batch_is_noticed(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    fill(log, 1, 1)
    log.close()
    with sqlite3.connect(tmp_path / "log.db") as database:
        (data,) = database.execute("SELECT data FROM batches WHERE base_offset = 1").fetchone()
        database.execute("UPDATE batches SET data = ? WHERE base_offset = 1", (data[:-5] + b"-" + data[-4:],))
    database.close()

    log = SqliteLog(tmp_path / "log.db")
    with pytest.raises(CorruptBatchError):
        read_all(log)
    log.close()


def test_what_sqlite_complains_of_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"this is no database, and long enough to be sure of it" * 20)

    with pytest.raises(StorageError, match=r"log\.db"):
        SqliteLog(tmp_path / "log.db")
