"""The SQLite log keeps what it promises, by the kit that is there for everybody's logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.custom_log import SqliteElections, SqliteLog
from kraftlib import StorageError
from kraftlib.testing.durability_contract import DURABILITY_CHECKS
from kraftlib.testing.log_contract import LOG_CHECKS, STORE_CHECKS


@pytest.mark.parametrize("check", LOG_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_log_keeps_the_contract(check: Callable[[Any], None], tmp_path: Path) -> None:
    check(lambda: SqliteLog(tmp_path / "log.db"))


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_elections_keep_the_contract(check: Callable[[Any], None], tmp_path: Path) -> None:
    check(lambda: SqliteElections(tmp_path / "votes.db"))


@pytest.mark.parametrize("check", DURABILITY_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_log_outlives_its_process(check: Callable[[Any], None], tmp_path: Path) -> None:
    check(lambda: SqliteLog(tmp_path / "log.db"))


def test_what_sqlite_complains_of_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"this is no database, and long enough to be sure of it" * 20)

    with pytest.raises(StorageError, match=r"log\.db"):
        SqliteLog(tmp_path / "log.db")
