"""Tries every small change of the core (`changes`), one at a time, and says which ones nobody notices.

    python -m tests.simulation.sweep --modules fetch_follower,vote --seeds 8 --results sweep.jsonl

Mutants (`mutants`) are bugs that somebody thought of; these are all the small ones that nobody thought of. What gets
away is a question: is there a test or a check that we lack, or does it not matter?

The tests are collected once, and run once to see which lines of the core each of them reaches. Each change is then
planted in a child process of its own, which runs the tests that reach its line, those of its module first and the
quickest first, and then seeds of the simulator, until one of them notices. `--results` is appended to, and what stands
in it is not tried again, so that a long sweep can be cut into pieces (`--minutes`, `--every`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from kraftlib.testing.campaign import Finding
from tests.simulation.changes import Change, changes
from tests.simulation.mutation import replaced
from tools.simulate.seeds import run_seed

CORE: Final = Path(__file__).parents[2] / "kraftlib" / "consensus"
MODULES: Final = (
    "vote", "quorum_epoch", "transitions", "fetch_leader", "fetch_follower", "outstanding", "requests", "responses",
    "poll", "deadlines", "log_view", "voter_changes", "joining", "voters", "fetch_snapshot", "snapshots", "received",
    "state", "repair", "replica", "roles", "describe", "extensions.read_index", "extensions.priority",
    "extensions.failed_state_machine", "extensions.snapshot_hash",
)  # fmt: skip
TESTS: Final = ("tests/consensus", "tests/conversations", "tests/checklist")
TOO_SLOW: Final = ("test_storms.py",)
"""Long tests of one property that others guard, too: they would be run to the end for every change that gets away."""

PROFILES: Final = ("swarm", "membership", "disks", "network")
CPU_SECONDS: Final = 15
WALL_SECONDS: Final = 120
"""What a change gets. One that takes longer has been noticed: something does not come to an end."""

Reach = dict[str, tuple[float, list[str]]]
"""Of each test by its id: how long it takes, and which lines it reaches, `module:line`."""


def noticed_by_seeds(change: Change, seeds: int, first: int) -> str | None:
    """Run seeds with the change planted; return what noticed it, None if nothing did."""
    try:
        with replaced(change.where, change.source):
            for number in range(seeds):
                result = run_seed(first + number, profile=PROFILES[number % len(PROFILES)])
                if isinstance(result, Finding):
                    return f"{number + 1} seeds, {result.invariant}: {result.what[:80]}"
    except Exception as error:  # noqa: BLE001 - whatever the change does: it shows
        return f"{type(error).__name__}: {str(error)[:80]}"
    return None


def noticed_by_tests(change: Change, tests: Sequence[pytest.Item]) -> str | None:
    """Run tests with the change planted; return the first that fails, None if none does."""
    with replaced(change.where, change.source):
        for test in tests:
            if any(report.failed for report in runtestprotocol(test, nextitem=None, log=False)):
                return test.nodeid
    return None


class Sweep:
    """A plugin of pytest that takes the place of the loop over the tests."""

    def __init__(self, found: Sequence[Change], options: argparse.Namespace) -> None:
        self.found = found
        self.options = options
        self.got_away = 0

    def pytest_collection(self) -> None:
        import hypothesis  # not earlier: pytest looks at its plugins first

        # Shrinking takes long and says nothing here; and every change is to meet the same examples.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "sweep", deadline=None, max_examples=60, phases=phases, database=None, derandomize=True
        )
        hypothesis.settings.load_profile("sweep")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = {test.nodeid: test for test in session.items if not test.nodeid.partition("::")[0].endswith(TOO_SLOW)}
        reach = reached_lines(session.config.cache, tests)
        end = time.monotonic() + 60 * self.options.minutes
        children: dict[int, tuple[Change, int]] = {}
        todo = iter(self.found)
        while (change := next(todo, None)) is not None and time.monotonic() < end:
            module = module_of(change.where)
            places = {f"{module}:{line}" for line in range(change.line, change.end_line + 1)}
            own = f"test_{module.rpartition('/')[2]}.py"
            order = sorted(
                (own not in name, seconds, name)
                for name, (seconds, lines) in reach.items()
                if not places.isdisjoint(lines)
            )
            while len(children) >= self.options.jobs:
                self.reap(children)
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                run_child(change, [tests[name] for _, _, name in order], self.options, writer)
            os.close(writer)
            children[pid] = change, reader
        while children:
            self.reap(children)
        return True

    def reap(self, children: dict[int, tuple[Change, int]]) -> None:
        """Wait for a child, and write down what it says."""
        pid, status = os.wait()
        change, reader = children.pop(pid)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        noticed = said or (f"ended by signal {status & 0x7F}" if status else "")
        row = {"where": change.where, "line": change.line, "what": change.what, "noticed": noticed}
        with open(self.options.results, "a", encoding="utf-8") as results:
            results.write(json.dumps(row) + "\n")
        if not noticed:
            self.got_away += 1
            print(f"GOT AWAY  {change.where}:{change.line}  {change.what}", file=sys.__stdout__, flush=True)


def run_child(change: Change, tests: Sequence[pytest.Item], options: argparse.Namespace, writer: int) -> None:
    """Try one change, tell the parent, and end."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)  # both end the process
    signal.alarm(WALL_SECONDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    said = "an exception"
    try:
        said = noticed_by_tests(change, tests) or noticed_by_seeds(change, options.seeds, options.first) or ""
    except BaseException as error:  # noqa: BLE001 - whatever the change does: it shows
        said = f"{type(error).__name__}: {str(error)[:80]}"
    finally:
        os.write(writer, said.encode()[:4000])
        os._exit(0)


def module_of(where: str) -> str:
    """Return the path of a module of the core, without its ending: `extensions/priority`."""
    return "/".join(where.split(".")[1 : 3 if where.startswith("consensus.extensions.") else 2])


def reached_lines(cache: Any, tests: dict[str, pytest.Item]) -> Reach:
    """Return what each test reaches; what was seen before, with the same core, is not looked at again."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(CORE.rglob("*.py")))).hexdigest()
    known = cache.get("kraftlib/reach", {})
    reach: Reach = known.get("reach", {}) if known.get("digest") == digest else {}
    for number, (name, test) in enumerate(tests.items(), start=1):
        if name not in reach:
            reach[name] = trace(test)
            if number % 50 == 0 or number == len(tests):
                cache.set("kraftlib/reach", {"digest": digest, "reach": reach})
    return {name: reach[name] for name in tests}


def trace(test: pytest.Item) -> tuple[float, list[str]]:
    """Run a test, and note which lines of the core it reaches."""
    lines: set[str] = set()
    prefix = str(CORE) + os.sep

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(prefix):
            return None
        module = name[len(prefix) : -3]

        def line(frame: FrameType, event: str, _: Any) -> Any:
            lines.add(f"{module}:{frame.f_lineno}")
            return line

        return line(frame, event, None)

    began = time.process_time()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        reports = runtestprotocol(test, nextitem=None, log=False)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    if any(report.failed for report in reports):
        raise AssertionError(f"{test.nodeid} fails already:\n{reports[-1].longreprtext}")
    return time.process_time() - began, sorted(lines)


def wanted(options: argparse.Namespace) -> Iterator[Change]:
    """Yield the changes that are to be tried."""
    path = Path(options.results)
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    tried = {(row["where"], row["line"], row["what"]) for row in rows}
    for module in options.modules.split(","):
        for number, change in enumerate(changes(module)):
            key = (change.where, change.line, change.what)
            if number % options.every == 0 and key not in tried and options.match in f"{change.where} {change.what}":
                tried.add(key)
                yield change


def main(arguments: Sequence[str]) -> int:
    """Try the changes of some modules; print those that nobody notices."""
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__)
    parser.add_argument("--modules", default=",".join(MODULES))
    parser.add_argument("--seeds", type=int, default=8, help="seeds for what no test notices")
    parser.add_argument("--first", type=int, default=50_000, help="the first of them")
    parser.add_argument("--tests", default=",".join(TESTS), help="where the tests are")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth change of a module")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--match", default="", help="only changes whose place or text contains this")
    parser.add_argument("--results", default=".pytest_cache/sweep.jsonl", help="written to, and read to go on")
    options = parser.parse_args(arguments)
    Path(options.results).parent.mkdir(exist_ok=True)
    sweep = Sweep(list(wanted(options)), options)
    print(f"{len(sweep.found)} changes to try", flush=True)
    pytest.main([*options.tests.split(","), "-q", "-s", "-p", "no:xdist"], plugins=[sweep])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
