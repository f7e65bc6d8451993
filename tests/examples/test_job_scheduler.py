"""The scheduler: one runs the jobs, a late result of another one is refused, and a killed one is replaced."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from examples.job_scheduler import Job, Ledger, StaleTokenError
from tests.examples.programs import EXAMPLES, PATIENCE_S, programs, run
from tests.interop.processes import wait_for

NEVER_AGAIN = str(10**12)
"""A slot of thirty years, in ms: the job is due once."""


def runs(path: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT job, token, output FROM runs ORDER BY rowid").fetchall()


def lines(path: Path, count: int) -> None:
    wait_for(f"{count} lines in {path.name}", lambda: path.exists() and path.read_text().count("\n") >= count)


def test_a_scheduler_that_was_paused_in_a_job_writes_too_late_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    database, started, gate = tmp_path / "runs.db", tmp_path / "started", tmp_path / "gate"
    waits = f"echo started >> {started}; while [ ! -e {gate} ]; do sleep 0.02; done; echo done"
    with programs(tmp_path) as three:
        for number in (1, 2, 3):
            three.start(number, str(EXAMPLES / "job_scheduler.py"), "run", str(three.config(number)), str(database))
        run("job_scheduler.py", "add", three.servers, "waits", NEVER_AGAIN, "sh", "-c", waits)
        first = three.that_says("leads with token")
        lines(started, 1)

        three.running[first].signal(signal.SIGSTOP)
        second = three.that_says("leads with token", but=first)
        lines(started, 2)  # it has no result, so it runs again
        gate.touch()
        three.that_says("ran waits")
        three.running[first].signal(signal.SIGCONT)
        three.running[first].wait_for_line("the result of waits was refused", timeout_s=PATIENCE_S)
        three.running[first].wait_for_line("does not lead", timeout_s=PATIENCE_S)
        ((job, token, output),) = runs(database)
        assert (job, output) == ("waits", "done\n")

        three.kill(second)
        run("job_scheduler.py", "add", three.servers, "next", NEVER_AGAIN, "no-such-command")
        three.that_says("ran next")
        _, (_, later, problem) = runs(database)
        assert later > token
        assert "no-such-command" in problem

        for process in three.running.values():
            process.signal(signal.SIGTERM)
        left = three.running.values()
        wait_for("the end of both", lambda: all(process.status is not None for process in left))
        assert [process.status for process in left] == [128 + signal.SIGTERM] * 2


def test_the_ledger_takes_a_token_until_it_has_seen_a_greater_one(tmp_path: Path) -> None:
    ledger, job = Ledger(tmp_path / "runs.db"), Job("j", 1, ["true"])
    assert ledger.take_over(41) == {}
    ledger.record(job, 1, 0, "first", token=41)
    assert Ledger(tmp_path / "runs.db").take_over(57) == {"j": 1}
    with pytest.raises(StaleTokenError, match="41"):
        ledger.record(job, 2, 0, "late", token=41)
    with pytest.raises(StaleTokenError):
        ledger.take_over(56)
    assert runs(tmp_path / "runs.db") == [("j", 41, "first")]
