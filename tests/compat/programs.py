"""Programs that others wrote for kazoo, on our client: `python -m tests.compat.programs [tooz taskflow]`.

Each is installed into the cache, with one import of it changed as docs/howto/run-a-kazoo-program.md says. Then its own
tests of ZooKeeper run, unchanged, on three replicas of kraftlib.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs

from tests.compat.kazoo_suite import Cluster
from tests.interop.jars import cache
from tests.interop.ours import ROOT

IMPORT: Final = "from kazoo import client\n"
OURS: Final = "from kraftlib.compat import kazoo as client\n"
PATIENCE_S: Final = 900


@attrs.frozen
class Program:
    """A package of the index: what its tests need, the file with the import, its tests, and how they find a server."""

    needs: tuple[str, ...]
    file: str
    tests: tuple[str, ...]
    place: tuple[str, str]
    """A variable of the environment, and what it says where {hosts} or {port} are to go."""


PROGRAMS: Final = {
    "tooz": Program(
        ("tooz==9.1.0", "testtools", "fixtures", "ddt", "etcd3gw", "sysv_ipc", "pymemcache", "redis"),
        "tooz/drivers/zookeeper.py",
        ("tooz.tests.test_coordination", "tooz.tests.test_partitioner"),
        ("TOOZ_TEST_URL", "zookeeper://{hosts}?timeout=5"),
    ),
    "taskflow": Program(
        (
            "taskflow==6.5.0",
            "oslotest",
            "etcd3gw",
            "testscenarios",
            "sqlalchemy",
            "sqlalchemy-utils",
            "alembic",
            "pydot",
            "redis",
        ),
        "taskflow/utils/kazoo_utils.py",
        (
            "taskflow.tests.unit.jobs.test_zk_job",
            "taskflow.tests.unit.persistence.test_zk_persistence",
            "taskflow.tests.unit.test_conductors",
            "taskflow.tests.unit.test_listeners",
        ),
        ("TASKFLOW_TEST_ZOOKEEPER_PORT", "{port}"),
    ),
}
"""OpenStack's coordination between services (locks, groups, elections), and its workflows (jobs, their owners and their
state)."""


def installed(name: str) -> Path:
    """Return the directory that has a program with its import changed; make it first, where it is not there."""
    program = PROGRAMS[name]
    mark = hashlib.sha256(repr((program, sys.version_info[:2])).encode()).hexdigest()[:16]
    place = cache() / f"{name}-{mark}"
    if place.exists():
        return place
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), ignore_cleanup_errors=True) as made:
        print(f"installing {name} into {place}: once, a minute or so", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", made]
        subprocess.run([*command, *program.needs], check=True, timeout=PATIENCE_S)
        file = Path(made, program.file)
        text = file.read_text()
        if (times := text.count(IMPORT)) != 1:
            raise SystemExit(f"{program.needs[0]}: {program.file} has {IMPORT!r} {times} times, not once")
        file.write_text(text.replace(IMPORT, OURS))
        Path(made).rename(place)
    return place


def run(name: str, *, replicas: int) -> tuple[int, int, int]:
    """Run the tests of a program; return how many there are, are skipped, and fail."""
    program, place = PROGRAMS[name], installed(name)
    with Cluster(replicas) as cluster:
        hosts = ",".join(server.address for server in cluster)
        variable, value = program.place
        said = value.format(hosts=hosts, port=cluster[0].address.rpartition(":")[2])
        done = subprocess.run(
            [sys.executable, "-m", "unittest", *program.tests],
            cwd=place,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{place}", variable: said},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    ran = re.search(r"^Ran (\d+) tests?", done.stderr, re.MULTILINE)
    outcome = done.stderr.rpartition("\n\n")[2] if done.returncode == 0 else done.stderr[-20_000:]
    if ran is None or (done.returncode and "FAILED" not in outcome):
        raise SystemExit(f"the tests of {name} did not run:\n{outcome}")
    if done.returncode:
        print(outcome, file=sys.stderr)
    counts = [sum(map(int, re.findall(rf"\b{word}=(\d+)", outcome))) for word in ("skipped", "failures", "errors")]
    return int(ran[1]), counts[0], counts[1] + counts[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py kazoo-programs", description=__doc__)
    parser.add_argument("programs", nargs="*", help=f"such as tooz; without any, all ({', '.join(PROGRAMS)})")
    parser.add_argument("--replicas", type=int, default=3)
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.programs) - PROGRAMS.keys()):
        parser.error(f"unknown {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    wrong = 0
    for name in chosen.programs or PROGRAMS:
        count, skipped, failed = run(name, replicas=chosen.replicas)
        wrong += failed
        print(f"{PROGRAMS[name].needs[0]} on kraftlib: {count - skipped - failed} of {count} tests pass, ", end="")
        print(f"{skipped} are skipped by it, {failed} fail", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
