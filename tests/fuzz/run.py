"""`dev.py fuzz`: random bytes for every reader of bytes, for so many seconds or so many frames.

A frame is a sample (what real Kafka sent, one of each version of each message, one of the corpus) with a few changes.
It may be read or refused; any other error is a finding, and so are a frame that takes longer than `SLOW_S`, and memory
that grows. Now and then frames are read under a trace of the lines that are reached: a frame that reaches a new one
becomes a sample, so that the changes go on from there. With `--keep` such frames are added to the corpus, which the
next runs begin from.

The frames follow from the seed. A finding is printed with the line that reads it again: `--frame HEX --target NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs

from tests.fuzz import corpus
from tests.fuzz.targets import FRAMES, Directories, Target
from tests.simulation.ledger import code_now
from tools.fuzz import port
from tools.fuzz.mutation import mutated

SLOW_S: Final = 1.0
"""No frame of at most 128 KiB may take this long: it would cost a leader its place."""

HUNG_S: Final = 10.0
"""What is not read by then never will be: a start must end, whatever the directory holds."""

SAMPLES_MAX: Final = 5_000
GUIDED_EVERY: Final = 20_000
GUIDED: Final = 200
MEMORY_RATIO_MAX: Final = 1.1
"""Of the second half of a run. In the first one the caches that are bounded (the templates of Fetch) are filled."""

PRINT_S: Final = 10.0
SHOWN: Final = 10


@attrs.define
class Tally:
    """What one process has tried."""

    tried: Counter[str] = attrs.field(factory=Counter)
    refused: Counter[str] = attrs.field(factory=Counter)
    findings: list[str] = attrs.field(factory=list)
    reached: int = 0
    """Samples that were found on the way."""
    kept: dict[str, set[bytes]] = attrs.field(factory=dict, repr=False)
    """These samples by target."""
    slowest_ms: float = 0.0
    memory_ratio: float = 1.0

    def add(self, other: Tally) -> None:
        """Take over what another process has tried."""
        self.tried += other.tried
        self.refused += other.refused
        self.findings += other.findings
        self.reached += other.reached
        for name, frames in other.kept.items():
            self.kept.setdefault(name, set()).update(frames)
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.memory_ratio = max(self.memory_ratio, other.memory_ratio)


class Fuzzer:
    """Tries one target."""

    def __init__(self, target: Target, seed: int, tally: Tally) -> None:
        self._target: Final = target
        self._chance: Final = random.Random(f"{seed} {target.name}")
        self._tally: Final = tally
        self._samples: Final = [*target.samples, *corpus.read().get(target.name, ())]
        self._lines: Final[set[tuple[object, int]]] = set()

    def run(self, count: int) -> None:
        """Try so many frames; the first of them under the trace."""
        for number in range(count):
            frame = self._target.mend(
                mutated(self._chance.choice(self._samples), self._samples, self._chance), self._chance
            )
            if number < GUIDED:
                self._try_traced(frame)
            else:
                self.try_one(frame)

    def _try_traced(self, frame: bytes) -> None:
        known = len(self._lines)
        with_trace(self._lines, lambda: self.try_one(frame))
        if len(self._lines) > known and len(self._samples) < SAMPLES_MAX:
            self._samples.append(frame)
            self._tally.reached += 1
            self._tally.kept.setdefault(self._target.name, set()).add(frame)

    def try_one(self, frame: bytes) -> None:
        """Read a frame and take note of what came of it."""
        tally, name = self._tally, self._target.name
        tally.tried[name] += 1
        began = time.process_time()
        try:
            with hang_up():
                self._target.read(frame)
        except self._target.allowed:
            tally.refused[name] += 1
        except Exception as error:  # noqa: BLE001  that is what is looked for
            self._found(frame, f"{type(error).__name__}: {error}")
        took = time.process_time() - began
        tally.slowest_ms = max(tally.slowest_ms, took * 1_000)
        if took > SLOW_S:
            self._found(frame, f"it took {took:.1f} s")

    def _found(self, frame: bytes, what: str) -> None:
        if len(self._tally.findings) < SHOWN:
            again = f"python3 dev.py fuzz --target {self._target.name!r} --frame {frame.hex()}"
            self._tally.findings.append(f"{self._target.name}: {what[:300]}\n  again with: {again}")


class HungError(Exception):
    """Something did not end."""


@contextlib.contextmanager
def hang_up() -> Iterator[None]:
    """Let what takes longer than `HUNG_S` end with HungError. Only the main thread of a process may do so."""

    def ring(number: int, frame: FrameType | None) -> None:
        stack = traceback.extract_stack(frame, limit=3)
        raise HungError(f"not over after {HUNG_S:.0f} s, at " + "; ".join(f"{at.name}:{at.lineno}" for at in stack))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HUNG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def with_trace(lines: set[tuple[object, int]], work: Callable[[], object]) -> None:
    """Do `work`, and add the lines of kraftlib that it reaches."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if "kraftlib" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.add((frame.f_code, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


def worth_keeping(target: Target, frames: Iterable[bytes]) -> list[bytes]:
    """Return those of the frames that reach a line which neither the samples nor the ones before them reach."""
    lines: set[tuple[object, int]] = set()

    def reaches_more(frame: bytes) -> bool:
        known = len(lines)
        with contextlib.suppress(*target.allowed):
            with_trace(lines, lambda: target.read(frame))
        return len(lines) > known

    for sample in target.samples:
        reaches_more(sample)
    return [frame for frame in corpus.candidates(frames) if reaches_more(frame)]


def keep(tally: Tally) -> None:
    """Add what was found on the way to the corpus, and drop what says nothing more of the code as it is now."""
    known = corpus.read()
    for target in (make() for make in FRAMES):
        found = tally.kept.get(target.name, set())
        known[target.name] = worth_keeping(target, [*known.get(target.name, ()), *found])
        print(f"corpus: {len(known[target.name])} frames for {target.name}", file=sys.stderr)
    corpus.write(known)


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz_frames(seed: int, seconds: float, frames: int | None, names: Sequence[str]) -> Tally:
    """Try all targets of frames in turn, until the time is over or so many frames were tried."""
    tally = Tally()
    targets = [made for made in (make() for make in FRAMES) if not names or made.name in names]
    fuzzers = [Fuzzer(target, seed, tally) for target in targets]
    memory, began = 0, time.monotonic()
    share = 0.0
    while share < 1.0 and not tally.findings:
        for fuzzer in fuzzers:
            fuzzer.run(max(GUIDED_EVERY // len(fuzzers), 1) if frames is None else max(frames // len(fuzzers) // 10, 1))
            if frames is None and time.monotonic() - began > seconds:
                break
        share = (time.monotonic() - began) / seconds if frames is None else tally.tried.total() / frames
        if not memory and share >= 0.5:
            gc.collect()
            memory = resident_bytes()
    gc.collect()
    tally.memory_ratio = resident_bytes() / memory if memory else 1.0
    return tally


def fuzz_directories(seed: int, seconds: float, count: int | None) -> Tally:
    """Open directories with a changed file, until the time is over or so many were opened."""
    logging.disable(logging.CRITICAL)
    tally, chance = Tally(), random.Random(seed)
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="kraftlib-fuzz-", dir=place) as home:
        directories = Directories(Path(home))
        while (tally.tried.total() < count if count is not None else time.monotonic() < end) and not tally.findings:
            frame = b""

            def change(data: bytes) -> bytes:
                nonlocal frame
                frame = mutated(data, directories.samples, chance)
                return frame

            tally.tried["directories"] += 1
            try:
                with hang_up():
                    tally.refused["directories"] += directories.try_one(chance, change)
            except Exception as error:  # noqa: BLE001  that is what is looked for
                where = f"--directories --seed {seed} --count {tally.tried.total()}"
                tally.findings.append(
                    f"directory: {type(error).__name__}: {error}\n  again with: python3 dev.py fuzz {where}"
                )
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print what was tried, and return 1 if something was found."""
    parser = argparse.ArgumentParser(
        prog="dev.py fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try (60)")
    parser.add_argument("--count", type=int, help="so many frames or directories for each process, instead of seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32), help="default: a new one")
    parser.add_argument("--of-commit", action="store_true", help="draw the seed from the code of the commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a processor)")
    parser.add_argument("--directories", action="store_true", help="directories of a replica instead of frames")
    parser.add_argument("--port", action="store_true", help="the port of a replica in a process of its own")
    parser.add_argument("--controller", action="store_true", help="with --port: of a metadata controller")
    parser.add_argument("--rate", type=int, default=1_000, help="with --port: frames a second; 0: as fast as can be")
    parser.add_argument("--keep", action="store_true", help="add frames that reach new lines to the corpus")
    parser.add_argument("--target", action="append", default=[], help="one reader only; may be given again")
    parser.add_argument("--frame", metavar="HEX", help="with --target: read this frame, and say what comes of it")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the result")
    options = parser.parse_args(arguments)
    known = [make().name for make in FRAMES]
    if unknown := set(options.target) - set(known):
        parser.error(f"--target {unknown.pop()!r}: known are {', '.join(known)}")
    if options.controller and not options.port:
        parser.error("--controller says whose port is attacked: give --port, too")
    if options.frame is not None:
        return _read_again(options)
    if options.of_commit:
        options.seed = random.Random(code_now()).getrandbits(32)
    print(f"seed {options.seed}", file=sys.stderr)
    if options.port:
        return port.report(options)
    if options.directories:
        work: list[tuple[Any, ...]] = [
            (fuzz_directories, job, options.seconds, options.count) for job in _seeds(options)
        ]
    else:
        work = [(fuzz_frames, job, options.seconds, options.count, options.target) for job in _seeds(options)]
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        running = [pool.apply_async(function, given) for function, *given in work]
        began = time.monotonic()
        for each in running:
            while not each.ready():
                each.wait(PRINT_S)
                print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
            tally.add(each.get())
    if options.keep and not tally.findings:
        keep(tally)
    _say(tally, options)
    return 1 if tally.findings or tally.memory_ratio > MEMORY_RATIO_MAX else 0


def _seeds(options: argparse.Namespace) -> list[int]:
    return [options.seed + number for number in range(options.jobs)]


def _read_again(options: argparse.Namespace) -> int:
    if len(options.target) != 1:
        raise SystemExit("dev.py fuzz: --frame needs one --target")
    target = next(made for made in (make() for make in FRAMES) if made.name == options.target[0])
    try:
        print(f"read: {target.read(bytes.fromhex(options.frame))!r}")
    except target.allowed as error:
        print(f"refused: {type(error).__name__}: {error}")
    return 0


def _say(tally: Tally, options: argparse.Namespace) -> None:
    if options.output == "json":
        fields = attrs.asdict(tally, filter=attrs.filters.exclude("kept"))
        print(json.dumps({**fields, "seed": options.seed}))
        return
    for name, count in tally.tried.items():
        print(f"{name}: {count:,} tried, {tally.refused[name]:,} refused")
    print(
        f"{tally.tried.total():,} in all; {tally.reached:,} samples found on the way; the slowest took"
        f" {tally.slowest_ms:.1f} ms; memory {tally.memory_ratio:.2f} times that at half the time (at most"
        f" {MEMORY_RATIO_MAX}); {len(tally.findings)} findings"
    )
    for finding in tally.findings:
        print(finding)


if __name__ == "__main__":
    sys.exit(main())
