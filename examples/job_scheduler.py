"""A job scheduler of several processes, of which one runs the jobs; when it dies, the next one does.

Every process is a replica. They elect a scheduler, and the jobs stand in a replicated map, so that nothing but these
processes is needed. The results go to a database that knows nothing of quorums, here SQLite.

A leader may be paused (SIGSTOP, a laptop's lid, a long collection of garbage) in the middle of a job and wake up when
another one leads. It finds out soon, but its thread may write first. So each write carries the token of the term, which
grows with every election, and the database refuses a token below the greatest one that it has seen: `Ledger` does that
in the transaction of the write. With PostgreSQL it is the same two statements.

`run` starts one process, on a directory that `kraftlib format -c replica-1.toml` has made; `add` gives them a job:

    python examples/job_scheduler.py run replica-1.toml runs.db
    python examples/job_scheduler.py add 127.0.0.1:9191 hello 60000 echo hello
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

import kraftlib
import kraftlib.blocking
from kraftlib import KraftError
from kraftlib.coordination.access import STALE
from kraftlib.recipes.kraft import Kraft
from kraftlib.recipes.map import Entry
from kraftlib.recipes.terms import Term

TTL_MS = 2_000
"""A scheduler that is not heard of for so long is replaced."""

TICK_S = 0.1


class StaleTokenError(Exception):
    """Somebody with a newer token has written."""


class Ledger:
    """The results of jobs, and the greatest token that has written. Every method is one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction() as database:
            database.execute("CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY, token INTEGER NOT NULL)")
            database.execute("INSERT OR IGNORE INTO fence VALUES (1, -1)")
            database.execute(
                "CREATE TABLE IF NOT EXISTS runs "
                "(job TEXT, slot INTEGER, token INTEGER, status INTEGER, output TEXT, PRIMARY KEY (job, slot))"
            )

    @contextlib.contextmanager
    def _transaction(self, *, token: int | None = None) -> Iterator[sqlite3.Connection]:
        """Begin and commit. With a token: raise the fence to it. Raises: StaleTokenError, and nothing is written."""
        with contextlib.closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # from here on nobody else writes
            if token is not None:
                raised = database.execute("UPDATE fence SET token = ? WHERE token <= ?", (token, token))
                if raised.rowcount == 0:
                    raise StaleTokenError(f"token {token} is out of date")
            yield database
            database.execute("COMMIT")

    def take_over(self, token: int) -> dict[str, int]:
        """Raise the fence, so that no former scheduler writes any more; return the last slot of each job."""
        with self._transaction(token=token) as database:
            return dict(database.execute("SELECT job, max(slot) FROM runs GROUP BY job").fetchall())

    def record(self, job: Job, slot: int, status: int, output: str, *, token: int) -> None:
        """Keep the result of a run."""
        with self._transaction(token=token) as database:
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", (job.name, slot, token, status, output))


@attrs.frozen
class Job:
    """A command that is due once in each slot of `every_ms`, counted from 1970."""

    name: str
    every_ms: int
    command: list[str]

    @classmethod
    def of(cls, entry: Entry) -> Job:
        """Return the job of an entry of the map."""
        return cls(entry.key, **json.loads(entry.value))

    def value(self) -> bytes:
        """Return the value of the entry."""
        return json.dumps({"every_ms": self.every_ms, "command": self.command}).encode()

    def run(self, slot: int, ledger: Ledger, token: int) -> None:
        """Run the command in this thread, which nothing can cancel, and record what it has printed."""
        try:
            done = subprocess.run(self.command, capture_output=True, text=True, check=False)
            status, output = done.returncode, done.stdout + done.stderr
        except OSError as error:
            status, output = 127, str(error)
        try:
            ledger.record(self, slot, status, output, token=token)
        except StaleTokenError as error:
            say(f"the result of {self.name} was refused: {error}")
        else:
            say(f"ran {self.name}")


async def schedule(kraft: Kraft, ledger: Ledger, term: Term) -> None:
    """Run what is due, for as long as the term lasts: then this is cancelled."""
    started = ledger.take_over(term.token)
    running: set[str] = set()

    async def run_once(job: Job, slot: int) -> None:
        await asyncio.to_thread(job.run, slot, ledger, term.token)
        running.remove(job.name)

    async with asyncio.TaskGroup() as tasks:
        while True:
            for job in map(Job.of, await kraft.map("jobs").range(consistency=STALE)):
                slot = time.time_ns() // 1_000_000 // job.every_ms
                if slot > started.get(job.name, -1) and job.name not in running:
                    started[job.name] = slot
                    running.add(job.name)
                    tasks.create_task(run_once(job, slot))
            await asyncio.sleep(TICK_S)


async def run(config: str, ledger: Ledger) -> None:
    """Take part in the quorum, and schedule whenever this process is elected."""
    async with kraftlib.open(config, owner=config, ttl_ms=TTL_MS) as kraft:
        while True:
            try:
                async with kraft.election("scheduler") as term:
                    say(f"leads with token {term.token}")
                    await schedule(kraft, ledger, term)
            except KraftError as error:  # the term is lost, or no quorum was reached
                say(f"does not lead: {error}")


def add(servers: str, job: Job) -> None:
    """Put a job into the map, or replace it."""
    with kraftlib.blocking.connect(servers) as kraft:
        kraft.map("jobs").put(job.name, job.value())


def say(text: str) -> None:
    """Print at once, whole lines, from any thread."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", config, database]:
            asyncio.run(run(config, Ledger(Path(database))))
        case ["add", servers, name, every_ms, *command] if command:
            add(servers, Job(name, int(every_ms), command))
        case _:
            sys.exit(__doc__)
