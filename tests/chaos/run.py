"""`dev.py chaos`: real processes, real sockets and disks, and everything that may befall them, for minutes or days.

Replicas embed `RaftClient`; a relay in front of each is their network. Clients call registers while faults come; after
each round all is repaired, the quorum must get on, every replica must show the same, and two independent judges look
for an order of the calls that explains every answer. `--planted` puts bugs into the service, which must be found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.chaos.clients import Clients
from tests.chaos.faults import NEEDS_CLOCK, NEEDS_DISK, Faults
from tests.chaos.fleet import Fleet, Stopped, build_clock_shim, can_mount, enter_namespace
from tests.chaos.history import Operation
from tests.chaos.judges import JudgeError, Judges, self_test
from tests.chaos.replica import PLANTS

ROUND_S: Final = 20.0
RECOVERY_S: Final = 90.0
"""After a round everything is repaired; a quorum that has not got on by then is stuck."""
POLL_S: Final = 0.2
PLANTED_ROUNDS: Final = 6


class Violation(Exception):
    """Something that must never happen; the message says what."""


@attrs.define
class Result:
    """What a run has seen."""

    seed: int
    seconds: float = 0.0
    rounds: int = 0
    operations: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    registers: int = 0
    undecided: int = 0
    rejected: int = 0
    """Registers whose history no order explains."""
    epochs: int = 0
    faults: dict[str, int] = attrs.field(factory=dict)
    violation: str | None = None

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.seconds:.0f} s, {self.rounds} rounds, {self.operations:,} operations "
            f"({self.acknowledged:,} writes acknowledged, {self.unknown:,} unknown, {self.refused:,} refused), "
            f"{self.registers:,} registers judged, {self.undecided} undecided, {self.epochs:,} leaders, "
            f"{sum(self.faults.values()):,} faults ({faults}): {self.violation or 'no violation'}"
        )


class Run:
    """One fleet, its clients and faults, and what must hold meanwhile."""

    def __init__(self, fleet: Fleet, judges: Judges, *, seed: int, options: argparse.Namespace) -> None:
        self._fleet: Final = fleet
        self._judges: Final = judges
        self._talkative: Final = options.verbose
        self._began: Final = time.monotonic()
        self.clients: Final = Clients(fleet, count=options.clients, seed=seed)
        self.faults: Final = Faults(fleet, seed=seed, tell=self._note, without=options.without)
        self.result: Final = Result(seed=seed)
        self._leaders: dict[int, int] = {}
        self.history: list[Operation] = []

    def _note(self, text: str) -> None:
        if self._talkative:
            say(f"{time.monotonic() - self._began:8.1f} s  {text}")

    async def round(self, seconds: float) -> None:
        """Let clients and faults go on for a while, repair everything, and judge. Raises: Violation, Stopped."""
        over, quiet = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(self.clients.work(quiet))
            harming = tasks.create_task(self.faults.go_on(over))
            watching = tasks.create_task(self._watch())
            await asyncio.sleep(seconds)
            over.set()
            await harming
            self._fleet.network.heal()
            await asyncio.sleep(1.0)  # calls on a network that is whole again belong to the history, too
            quiet.set()
            await working
            await self._agree()
            watching.cancel()
        await self._judge()

    async def _watch(self) -> None:
        """Look at the replicas all the time: one leader an epoch, and none that has ended."""
        while True:
            for replica in self._fleet.replicas.values():
                replica.check()
            for number, status in (await self._fleet.statuses()).items():
                if status["failure"]:
                    raise Violation(f"replica {number} has stopped itself: {status['failure']}")
                if status["role"] == "leader" and self._leaders.setdefault(status["epoch"], number) != number:
                    raise Violation(
                        f"epoch {status['epoch']} has two leaders, {self._leaders[status['epoch']]}, {number}"
                    )
            await asyncio.sleep(POLL_S)

    async def _agree(self) -> None:
        """Wait until every replica shows every register, and the same. Raises: Violation, if they do not get there."""
        try:
            async with asyncio.timeout(RECOVERY_S):
                await self.clients.read_everything(self._fleet.running)
        except TimeoutError:
            statuses = await self._fleet.statuses()
            seen = {n: (s["role"], s["epoch"], s["high_watermark"], s["log_end_offset"]) for n, s in statuses.items()}
            raise Violation(
                f"all is repaired, and after {RECOVERY_S:.0f} s not every replica answers reads: {seen}"
            ) from None
        values = {
            replica.number: (await replica.ask("values", timeout_ms=10_000))["ok"] for replica in self._fleet.running
        }
        if len(values) != len(self._fleet.replicas):
            raise Violation(f"only replicas {sorted(values)} run after the repair")
        first = min(values)
        for number, shown in values.items():
            differing = sorted(
                key for key in shown.keys() | values[first].keys() if shown.get(key) != values[first].get(key)
            )
            if differing:
                raise Violation(f"replicas {first} and {number} differ in registers {some(differing)}")

    async def _judge(self) -> None:
        self.history = self.clients.end_round()
        judgement = await asyncio.to_thread(self._judges.judge, self.history)
        result = self.result
        result.rounds += 1
        result.operations += len(self.history)
        result.unknown += sum(operation.ended is None for operation in self.history)
        result.registers += len(judgement.ours)
        result.undecided += judgement.undecided
        result.rejected += len(judgement.violations)
        self.count()
        if judgement.disagreements:
            raise Violation(f"the judges disagree about {some(judgement.disagreements)}")
        if judgement.violations:
            raise Violation(f"no order of the calls explains what was answered about {some(judgement.violations)}")

    def count(self) -> None:
        """Put what is counted elsewhere into the result."""
        self.result.acknowledged = self.clients.acknowledged
        self.result.refused = self.clients.refused
        self.result.epochs = len(self._leaders)
        self.result.faults = dict(self.faults.counts)
        self.result.seconds = time.monotonic() - self._began


def some(keys: Sequence[str]) -> str:
    """Return the first few of many names."""
    return f"{', '.join(keys[:5])}{f' and {len(keys) - 5} more' if len(keys) > 5 else ''}"


async def play(
    judges: Judges, directory: Path, *, seed: int, seconds: float, options: argparse.Namespace, plant: str | None = None
) -> Result:
    """Run one fleet for so long, in rounds; return what was seen. What a violation needs to be read is kept."""
    arguments = ["--plant", plant] if plant else []
    async with Fleet(
        directory, voters=3, observers=options.replicas - 3, arguments=arguments, clock_shim=options.clock_shim
    ) as fleet:
        run = Run(fleet, judges, seed=seed, options=options)
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                await run.round(min(ROUND_S, max(left, ROUND_S / 4)))
                if options.output == "text" and not plant:
                    say(str(run.result))
        except* (Violation, Stopped) as errors:
            run.count()
            run.result.violation = "; ".join(map(str, leaves(errors)))
            if not plant:
                keep(directory, run.clients.history or run.history)
        return run.result


def leaves(errors: BaseExceptionGroup[Any]) -> Iterable[BaseException]:
    """Yield the errors of a group and of the groups in it."""
    for error in errors.exceptions:
        yield from leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)


def keep(directory: Path, history: Iterable[Operation]) -> None:
    """Copy the directories and the history of a run that went wrong to where they outlive its file systems."""
    kept = directory.with_name(f"{directory.name}-kept")
    shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("balloon"), dirs_exist_ok=True)
    (kept / "history.jsonl").write_text("".join(json.dumps(attrs.asdict(call)) + "\n" for call in history))
    say(f"directories, logs and history are in {kept}")


def say(text: str) -> None:
    """Tell the person at the terminal what goes on; programs read stdout."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if nothing was violated, or every planted bug was found."""
    parser = argparse.ArgumentParser(prog="dev.py chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (5); hours are welcome")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices (random, and printed)")
    parser.add_argument("--replicas", type=int, default=5, help="three voters first, the others observers (5)")
    parser.add_argument("--clients", type=int, default=8, help="how many call at once (8)")
    parser.add_argument("--planted", action="store_true", help="plant the bugs first, each until it is found")
    parser.add_argument(
        "--if-possible", action="store_true", help="go on without the faults that need root or a C compiler"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="FAULT", help="leave a fault out (repeatable)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--verbose", action="store_true", help="tell every fault")
    options = parser.parse_args(arguments)
    if options.replicas < 4:
        parser.error(f"--replicas {options.replicas}: at least 4, so that voters can be replaced")
    enter_namespace()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="kraftlib-chaos-") as build:
        options.clock_shim = build_clock_shim(Path(build))
        needed = {f"{NEEDS_DISK} (root)": can_mount(), f"{NEEDS_CLOCK} (a C compiler)": options.clock_shim is not None}
        missing = [name for name, there in needed.items() if not there]
        if missing:
            say(f"chaos: NOT POSSIBLE HERE: {', '.join(missing)}")
            if not options.if_possible:
                return 1
        judges = Judges(Path(build))
        try:
            judges.build()
            self_test(judges)
        except JudgeError as error:
            say(f"chaos: {error}")
            return 1
        results = [*(_planted(judges, seed, options) if options.planted else ()), _sound(judges, seed, options)]
    failed = [result for result in results if result.pop("failed")]
    if options.output == "json":
        print(json.dumps(results, indent=2))
    return int(bool(failed))


def _planted(judges: Judges, seed: int, options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    for plant in PLANTS:
        result = _play(judges, seed, PLANTED_ROUNDS * ROUND_S, options, plant)
        found = result.rejected > 0
        say(f"planted {plant}: {'found' if found else 'NOT FOUND'}; {result}")
        yield {"planted": plant, "failed": not found, **attrs.asdict(result)}


def _sound(judges: Judges, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    result = _play(judges, seed, options.minutes * 60, options, None)
    say(f"chaos: {result}")
    return {"failed": result.violation is not None, **attrs.asdict(result)}


def _play(judges: Judges, seed: int, seconds: float, options: argparse.Namespace, plant: str | None) -> Result:
    directory = Path(tempfile.mkdtemp(prefix=f"kraftlib-chaos-{seed}-"))
    try:
        return asyncio.run(play(judges, directory, seed=seed, seconds=seconds, options=options, plant=plant))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
