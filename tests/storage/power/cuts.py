"""`python3 dev.py power-cuts`: real power cuts, a hundred and more, and nothing that was acknowledged may be missing.

Disks are ext4 on loop images, and the cut is the file system's own shutdown: what was not synced is gone. One replica
alone, and three that form a quorum, write through the real storage; they are cut at a random moment, of all disks at
once or of one and then all, the disks are mounted again, and the real recovery must find everything. The same again
with a storage that forgets to sync must be caught losing data: else this would prove nothing.

It needs root or sudo, and loop devices, and does everything in a mount namespace of its own. Elsewhere it says so, and
that is an error where CI is set. --seed N repeats a run's choices; moments differ.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from kraftlib.errors import KraftError
from kraftlib.storage import files
from tests.storage.power import cluster, single
from tests.storage.power.disk import NAMESPACE, Cut, PowerDisk, in_a_namespace, why_impossible
from tests.storage.power.process import Child

ANEW_BYTES = 12 << 20
"""A disk that is fuller begins anew."""
NOTHING_TO_DO = 0


@attrs.define
class Result:
    """What came of a number of cuts."""

    name: str
    cuts: int = 0
    acknowledged: int = 0
    """Records that were said to be durable."""
    votes: int = 0
    losses: list[str] = attrs.Factory(list)
    seconds: float = 0.0


def single_cuts(top: Path, count: int, seed: int, *, name: str = "one replica") -> Result:
    """Cut the power of one replica so often."""
    result, chance = Result(name), random.Random(seed)
    with _disks(top, 1) as (disk,):
        disk.mount()
        directory = disk.path / "replica"
        single.prepare(directory)
        promises = single.Promises()
        for number in range(count):
            if _used(disk.path) > ANEW_BYTES:
                shutil.rmtree(directory)
                single.prepare(directory)
                promises = single.Promises()
            child = Child(lambda reports, number=number: single.write(directory, seed * 1_000 + number, reports))
            if chance.random() < 0.9:
                child.listen_until("ready")
            child.listen(chance.uniform(0.0, 0.15))  # else perhaps in the midst of its recovery
            _cut([disk], [child], chance)
            lines = child.lines()
            promises.take(lines)
            result.acknowledged += sum(line[0] == "flushed" for line in lines)
            result.votes += sum(line[0] == "voted" for line in lines)
            _count(result, number, lines, functools.partial(single.losses, directory, promises))
        disk.unmount()
    return result


def cluster_cuts(top: Path, count: int, seed: int, *, name: str = "three replicas") -> Result:
    """Cut the power of a whole quorum so often, at times of one replica first."""
    result, chance = Result(name), random.Random(seed)
    with _disks(top, 3) as disks:
        directories = {number: disk.path / "replica" for number, disk in enumerate(disks, start=1)}
        for disk in disks:
            disk.mount()
        cluster.prepare(directories)
        promises = cluster.ClusterPromises()
        for number in range(count):
            if _used(disks[0].path) > ANEW_BYTES:
                for directory in directories.values():
                    shutil.rmtree(directory)
                cluster.prepare(directories)
                promises = cluster.ClusterPromises()
            child = Child(lambda reports, number=number: cluster.write(directories, seed * 1_000 + number, reports))
            child.listen_until("committed")
            child.listen(chance.uniform(0.0, 0.3))
            if chance.random() < 0.4:
                chance.choice(disks).cut(chance.choice(list(Cut)))
                result.cuts += 1
                child.listen(chance.uniform(0.0, 0.4))
            _cut(disks, [child], chance)
            lines = child.lines()
            promises.take(lines)
            result.acknowledged += sum(line[0] == "committed" for line in lines)
            result.votes += sum(line[0] == "voted" for line in lines)
            _count(result, number, lines, functools.partial(cluster.losses, directories, promises))
        for disk in disks:
            disk.unmount()
    return result


def _cut(disks: Sequence[PowerDisk], children: Sequence[Child], chance: random.Random) -> None:
    """Cut the power of these disks, let nobody survive, and give it back."""
    for disk in disks:
        disk.cut(chance.choice(list(Cut)))
    for child in children:
        child.listen(chance.choice([0.0, 0.01]))  # what is said after the cut counts, too: it must not be
        child.kill()
    for disk in disks:
        disk.unmount()
        disk.mount()


def _count(result: Result, number: int, lines: Sequence[Sequence[str]], look: Callable[[], Iterator[str]]) -> None:
    result.cuts += 1
    try:
        losses = list(look())
    except KraftError as error:
        losses = [f"it does not open: {type(error).__name__}: {error}"]
    ended = [" ".join(line) for line in lines if line[0] == "ended" and not _of_a_dead_disk(line)]
    result.losses += [f"cut {number}: {what}" for what in losses + ended]


def _of_a_dead_disk(line: Sequence[str]) -> bool:
    """Whether a child has ended as it must when nothing can be written any more, or read."""
    return line[1] == "StorageError" or (line[1] == "CorruptBatchError" and line[2].endswith("Input/output_error'"))


class _disks:  # noqa: N801 - used as a function
    """New disks, freed at the end whatever happens."""

    def __init__(self, top: Path, count: int) -> None:
        self._top = Path(tempfile.mkdtemp(dir=top))
        self._disks = [PowerDisk(self._top, f"disk{number}") for number in range(count)]

    def __enter__(self) -> list[PowerDisk]:
        return self._disks

    def __exit__(self, *error: object) -> None:
        for disk in self._disks:
            disk.free()
        shutil.rmtree(self._top, ignore_errors=True)


def _used(path: Path) -> int:
    stats = os.statvfs(path)
    return (stats.f_blocks - stats.f_bfree) * stats.f_frsize


def without_sync(work: Callable[[], Result]) -> Result:
    """Do it with a storage that syncs nothing."""

    class Os:
        def __getattr__(self, name: str) -> object:
            return (lambda descriptor: None) if name in ("fsync", "fdatasync") else getattr(os, name)

    from kraftlib.storage.damage import recovery
    from kraftlib.storage.log import chain as segments
    from kraftlib.storage.snapshots import snapshot_files

    modules = (files, recovery, segments, snapshot_files)
    sync_data = files.sync_data
    try:
        for module in modules:
            module.os = Os()  # type: ignore[assignment, attr-defined]
        files.sync_data = lambda descriptor: None  # type: ignore[misc]
        return work()
    finally:
        for module in modules:
            module.os = os  # type: ignore[attr-defined]
        files.sync_data = sync_data  # type: ignore[misc]


def main(arguments: Sequence[str]) -> int:
    """Cut; 0 if nothing was lost, and everything by the storage that does not sync."""
    parser = argparse.ArgumentParser(
        prog="power-cuts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--single", type=int, default=80, help="cuts of one replica (80)")
    parser.add_argument("--cluster", type=int, default=30, help="cuts of three replicas (30)")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices (random, and printed)")
    parser.add_argument("--directory", type=Path, default=None, help="where the images go (temporary)")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    why = why_impossible()
    if why is not None:
        print(f"POWER CUTS SKIPPED: {why}", file=sys.stderr, flush=True)
        return 1 if os.environ.get("CI") == "true" else NOTHING_TO_DO
    if os.environ.get(NAMESPACE) is None:
        return subprocess.run(in_a_namespace(__spec__.name, arguments), check=False).returncode
    logging.disable(logging.CRITICAL)
    seed = random.randrange(10_000) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="kraftlib-power-") as place:
        top = Path(place)
        results = [
            _timed(lambda: single_cuts(top, options.single, seed)),
            _timed(lambda: cluster_cuts(top, options.cluster, seed)),
        ]
        careless = [
            _timed(lambda: without_sync(lambda: single_cuts(top, 5, seed, name="one replica, never synced"))),
            _timed(lambda: without_sync(lambda: cluster_cuts(top, 2, seed, name="three replicas, never synced"))),
        ]
    _print(results, careless, seed, as_json=options.output == "json")
    return int(any(result.losses for result in results) or not all(result.losses for result in careless))


def _timed(work: Callable[[], Result]) -> Result:
    began = time.monotonic()
    result = work()
    result.seconds = time.monotonic() - began
    print(f"{result.name}: {result.cuts} cuts in {result.seconds:.0f} s", file=sys.stderr, flush=True)
    return result


def _print(results: Sequence[Result], careless: Sequence[Result], seed: int, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"seed": seed, "results": [attrs.asdict(result) for result in [*results, *careless]]}))
        return
    print(f"\npower cuts, seed {seed}\n{'':<30} {'cuts':>5} {'acknowledged':>13} {'votes':>6} {'losses':>7} {'s':>6}")
    for result in [*results, *careless]:
        print(
            f"{result.name:<30} {result.cuts:>5} {result.acknowledged:>13,} {result.votes:>6} {len(result.losses):>7}"
            f" {result.seconds:>6.0f}"
        )
    for result in results:
        for loss in result.losses[:20]:
            print(f"LOST  {result.name}, {loss}")
    for result in careless:
        if not result.losses:
            print(f"NOT CAUGHT  {result.name}: nothing was missing, so these cuts prove nothing")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
