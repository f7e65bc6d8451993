#!/usr/bin/env python3
"""The tasks of this repository, with the standard library alone.

Everything runs in .venv, which is made on first use and renewed when pyproject.toml changes.
The network is used by pip, and by `interop` for Kafka's jars; by nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "kraftlib-stamp"
"""Says what .venv holds and what that was made from. Written last, so that a half-made one has none."""

CORE, FULL = "core", "full"
EXTRAS = {CORE: "", FULL: "[cli,uvloop,snappy,spark,kazoo,test,dev,docs]"}

PASSED_ON = {
    "demo": (CORE, ("kraftlib", "demo"), "three voters, 10,000 records, a killed leader, nothing lost: half a minute"),
    "bench": (
        CORE,
        ("python", "-m", "tools.bench"),
        "measure commits per second; --against kafka,etcd-raft,hashicorp,dragonboat (or etcd,zookeeper): beside theirs",
    ),
    "bench-controller": (
        CORE,
        ("python", "-m", "tools.bench_controller"),
        "measure the controller beside Kafka's (--long)",
    ),
    "bench-spark": (FULL, ("python", "-m", "tests.spark.bench"), "measure the data pipeline; --check: with its goals"),
    "elsewhere": (
        FULL,
        ("python", "-m", "tests.spark.elsewhere"),
        "Spark on a cluster and by Connect, kraftlib sent along",
    ),
    "simulate": (CORE, ("python", "-m", "tools.simulate"), "run the simulator on many seeds, or replay one"),
    "campaign": (
        FULL,
        ("python", "-m", "tests.simulation.campaign"),
        "what CI simulates: fresh seeds, figures to reach",
    ),
    "mutants": (FULL, ("python", "-m", "tests.simulation.hunt"), "plant bugs, and see the simulator find every one"),
    "model": (CORE, ("python", "-m", "tests.model"), "the rules as a model, searched state by state; needs cargo"),
    "exhaustive": (CORE, ("python", "-m", "tests.exhaustive"), "all interleavings of a few real cores (--long: hours)"),
    "storage": (
        FULL,
        ("python", "-m", "tests.storage.proof"),
        "prove the storage: crashes, errors, damage, power",
    ),
    "power-cuts": (
        FULL,
        ("python", "-m", "tests.storage.power.cuts"),
        "cut the power of file systems; needs root",
    ),
    "fuzz": (FULL, ("python", "-m", "tests.fuzz.run"), "random bytes for every reader of bytes (--directories: files)"),
    "chaos": (FULL, ("python", "-m", "tests.chaos.run"), "real processes under faults; two judges (--minutes N)"),
    "kazoo": (FULL, ("python", "-m", "tests.compat.kazoo_suite"), "kazoo's own tests, on our client: how many pass"),
    "kazoo-programs": (
        FULL,
        ("python", "-m", "tests.compat.programs"),
        "tests of programs that others wrote for kazoo, on our client",
    ),
    "recipes": (
        FULL,
        ("python", "-m", "tests.chaos.recipes"),
        "increments and watches through leaders that are killed (--kills N)",
    ),
    "schemas": (CORE, ("python", "-m", "tools.schemas"), "compare the messages with Kafka's schemas"),
}
"""Tasks that hand their arguments on to a program: what it needs, its command, and what it is for."""

KAFKA = "4.3.1,3.9.2"
"""Releases that `interop` tries."""

LIBRARIES = {"kafka", "etcd-raft", "hashicorp", "dragonboat"}
"""Peers of `bench --against` that are libraries; the others are services."""

PARALLEL = ("-n", "2", "--dist", "worksteal")
"""How tests are shared out. Not loadgroup or loadscope: xdist 3.8 then waits for ever after the loss of a worker."""

SPARK_TESTS = "tests/spark"
"""Run by themselves: they share one session, which uses all processors on its own."""

TYPED = ("kraftlib", "dev.py", "hatch_build.py", "examples", "tools")
SOURCES = ("kraftlib", "tests", "tools", "examples", "docs")
BUILT = ("dist", "build", "docs/_build", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


class TaskError(Exception):
    """A task cannot run; the message is for the person at the terminal."""


# The environment ----------------------------------------------------------------------------------


def ensure_environment(kind: str) -> None:
    """Make or renew `.venv` so that it holds at least `kind`. Two callers at once wait for each other."""
    check_version()
    if environment_fits(kind):
        return
    with alone():
        if environment_fits(kind):
            return
        STAMP.unlink(missing_ok=True)
        if not works(PYTHON):
            check_venv()
            say(f"making {VENV.name} with Python {sys.version.split()[0]}")
            run([sys.executable, "-m", "venv", "--clear", str(VENV)])
        say(f"installing kraftlib{EXTRAS[kind]} into {VENV.name}: once, a minute or so")
        run([str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--editable", f"{ROOT}{EXTRAS[kind]}"])
        STAMP.write_text(f"{kind} {fingerprint()}\n", encoding="ascii")


def environment_fits(kind: str) -> bool:
    """Whether `.venv` is there, complete, and made from the present `pyproject.toml`."""
    if not PYTHON.exists() or not STAMP.exists():
        return False
    made_as, _, made_from = STAMP.read_text(encoding="ascii").strip().partition(" ")
    return made_as in (kind, FULL) and made_from == fingerprint()


def fingerprint() -> str:
    """Return what an environment depends on, as a hash: what pip reads of the project file, our extras, our place."""
    import tomllib  # not at the top: an older Python is to be told kindly

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [project["build-system"], project["project"], project["tool"]["hatch"], EXTRAS, str(ROOT)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep other callers of this repository out. The lock is on the directory itself, so it leaves no file."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: best effort
        yield
        return
    directory = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another dev.py that is making the environment")
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def check_version() -> None:
    """Refuse a Python that is too old, before it trips over something."""
    if sys.version_info < OLDEST_PYTHON:
        newer = [name for name in ("python3.14", "python3.13", "python3.12", "python3.11") if shutil.which(name)]
        hint = f"this machine has one: {newer[0]} dev.py …" if newer else "install a newer one"
        raise TaskError(f"kraftlib needs Python 3.11 or newer, this is {sys.version.split()[0]}; {hint}")


def check_venv() -> None:
    """Refuse a Python that cannot make environments: some distributions sell that part separately."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise TaskError(
            f"this Python comes without {' and '.join(missing)}, with which the environment is made; "
            f"on Debian and Ubuntu: apt install {package}"
        )


def works(python: Path) -> bool:
    """Whether `python` starts and has pip."""
    try:
        return subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# Running things -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Tell the person at the terminal what goes on. Stdout is for the result of a task."""
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


def call(command: Sequence[str]) -> int:
    """Run `command` at the root of the repository, its output shown as it comes, and return its exit status."""
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def run(command: Sequence[str]) -> None:
    """Run `command`, which must succeed; what it prints is no result of a task."""
    status = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    if status:
        raise TaskError(f"exit status {status} from: {' '.join(command)}")


def tool(name: str, *arguments: str) -> list[str]:
    """Return the command line of a program of the environment."""
    return [str(BIN / name), *arguments]


def call_pytest(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest and return its exit status and its last line, the summary."""
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    command = tool("python", "-m", "pytest", *colour, *arguments)
    end = b""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        output = process.stdout.fileno() if process.stdout else -1
        while chunk := os.read(output, 65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            end = (end + chunk)[-4096:]
    return process.returncode, end.decode(errors="replace").rstrip().rpartition("\n")[2]


def beside(command: Sequence[str]) -> Callable[[], int]:
    """Start `command` beside what follows; return what waits for it, shows its output and returns its exit status."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by the wait
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    def wait() -> int:
        with process, output:
            process.wait()
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
        return process.returncode

    return wait


# Tasks --------------------------------------------------------------------------------------------


def env(options: argparse.Namespace) -> int:
    """make .venv with everything that development needs"""
    ensure_environment(FULL)
    say(f"{BIN.relative_to(ROOT)} is ready")
    return 0


def lint(options: argparse.Namespace) -> int:
    """check format and style with ruff (--fix: put right what can be)"""
    ensure_environment(FULL)
    if getattr(options, "fix", False):
        call(tool("ruff", "format", "."))
        return call(tool("ruff", "check", "--fix", "."))
    return call(tool("ruff", "format", "--check", ".")) | call(tool("ruff", "check", "."))


def types(options: argparse.Namespace) -> int:
    """check the types of kraftlib, dev.py and the examples with mypy, strictly"""
    ensure_environment(FULL)
    targets = [name for name in TYPED if (ROOT / name).is_file() or any((ROOT / name).rglob("*.py"))]
    return call(tool("mypy", *targets))


def docs(options: argparse.Namespace) -> int:
    """build the documentation into docs/_build; a warning is an error"""
    ensure_environment(FULL)
    return call(sphinx())


def sphinx() -> list[str]:
    """Return the command that builds the documentation."""
    return tool("sphinx-build", "-W", "--keep-going", "-n", "-E", "-q", "docs", "docs/_build")


def test(options: argparse.Namespace) -> int:
    """check everything: lint, types, docs and tests (--fast: without docs and Spark; --all: slow tests as well)"""
    ensure_environment(FULL)
    every = options.all or (options.pytest and not options.fast)  # slow tests run where they are asked for, too
    chosen = ["--hypothesis-profile=all"] if every else ["-m", "not slow"]
    summaries = []

    def pytest(*arguments: str) -> int:
        status, summary = call_pytest([*arguments, *chosen, *options.pytest])
        summaries.append(summary)
        return status

    steps: dict[str, Callable[[], int]] = {"lint": lambda: lint(options), "types": lambda: types(options)}
    if not options.fast:
        steps["docs"] = beside(sphinx())  # it takes one processor, and so do the types
    if options.pytest:
        steps["pytest"] = lambda: pytest(*PARALLEL)
    else:
        steps["pytest"] = lambda: pytest(*PARALLEL, f"--ignore={SPARK_TESTS}")
        if not options.fast:
            steps["spark"] = lambda: pytest(SPARK_TESTS)

    rows = []
    for name, step in steps.items():
        say(f"-- {name}")
        began = time.monotonic()
        status = step()
        rows.append((name, time.monotonic() - began, "ok" if status == 0 else "FAILED"))
    print("\nstep       seconds  result")
    for name, seconds, result in rows:
        print(f"{name:<10} {seconds:7.1f}  {result}")
    # The very last lines are pytest's own summaries, so that whoever reads only the end sees what was run.
    print(*summaries, sep="\n", flush=True)
    return int(any(result != "ok" for _, _, result in rows))


def interop(options: argparse.Namespace) -> int:
    """try everything against real Kafka; needs a JDK and Maven"""
    ensure_environment(FULL)
    if options.install:
        os.environ["KRAFTLIB_INSTALL"] = "1"
    if call(tool("python", "-m", "tests.interop.jars", *options.kafka.split(","))):
        return 1
    os.environ["KRAFTLIB_INTEROP"] = "long" if options.long else "1"
    os.environ["KRAFTLIB_KAFKA"] = options.kafka
    if not options.pytest:
        (ROOT / "build" / "interop.json").unlink(missing_ok=True)  # what single tests show is added to it
    chosen = [] if any(word.startswith("tests") for word in options.pytest) else [*PARALLEL, "tests/interop"]
    # A test may start processes for minutes here; each of its waits is bounded by itself.
    status = call(tool("python", "-m", "pytest", "-o", "faulthandler_timeout=900", *chosen, *options.pytest))
    return status or (call(tool("python", "-m", "tests.interop.page")) if options.write_page else 0)


def wheel(options: argparse.Namespace) -> int:
    """build a wheel into dist (--compiled: with compiled modules, for this Python and platform; needs a C compiler)"""
    ensure_environment(FULL)
    if options.test:
        return call(tool("python", "-m", "pytest", "-n", "0", "tests/compiled.py"))
    os.environ["KRAFTLIB_COMPILE"] = "1" if options.compiled else "0"
    return call(tool("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."))


def clean(options: argparse.Namespace) -> int:
    """remove what was built and cached (--all: .venv too)"""
    doomed = [ROOT / name for name in BUILT]
    doomed += [path for top in SOURCES for path in (ROOT / top).rglob("__pycache__")]
    for path in [*doomed, *([VENV] if options.all else [])]:
        shutil.rmtree(path, ignore_errors=True)
    return 0


def side_by_side(arguments: Sequence[str]) -> int:
    """Measure others and ours in turn: libraries of Raft, or services with their clients (`bench --against NAMES`)."""
    ensure_environment(FULL)
    named = arguments.index("--against") + 1
    peers = set(arguments[named].split(",")) if named < len(arguments) else set()
    if not peers & LIBRARIES:
        return call(tool("python", "-m", "tests.interop.coordination_bench", *arguments))
    if "kafka" in peers:
        named = arguments.index("--kafka") + 1 if "--kafka" in arguments else len(arguments)
        release = arguments[named] if named < len(arguments) else KAFKA.partition(",")[0]
        if call(tool("python", "-m", "tests.interop.jars", release)):
            return 1
    return call(tool("python", "-m", "tests.interop.side_by_side", *arguments))


def main(arguments: Sequence[str]) -> int:
    """Run one task; the exit status is the task's."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles all of kraftlib and of the tests again
    try:
        if arguments[:1] == ["bench"] and "--against" in arguments:
            return side_by_side(arguments[1:])
        if arguments and arguments[0] in PASSED_ON:
            kind, command, _ = PASSED_ON[arguments[0]]
            ensure_environment(kind)
            return call([*tool(*command), *arguments[1:]])
        options = parse(arguments)
        status: int = options.run(options)
        return status
    except TaskError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or print the help and exit."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    tasks = parser.add_subparsers(metavar="TASK", required=True)
    for name, (_, _, text) in PASSED_ON.items():
        tasks.add_parser(name, help=text)
    made = {}
    for task in (test, env, lint, types, docs, interop, wheel, clean):
        made[task.__name__] = tasks.add_parser(task.__name__, help=task.__doc__, description=task.__doc__)
        made[task.__name__].set_defaults(run=task)
    extent = made["test"].add_mutually_exclusive_group()
    extent.add_argument("--fast", action="store_true", help="without the docs and the tests of Spark")
    extent.add_argument("--all", action="store_true", help="with the tests marked slow, as in CI")
    made["test"].add_argument("pytest", nargs="*", metavar="-- ARGUMENTS", help="for pytest, after --")
    made["interop"].add_argument(
        "--kafka", default=KAFKA, metavar="LIST", help=f"releases, the main one first ({KAFKA})"
    )
    made["interop"].add_argument("--long", action="store_true", help="every test on every release; takes many minutes")
    made["interop"].add_argument("--install", action="store_true", help="install what is missing (done in CI anyway)")
    made["interop"].add_argument("--write-page", action="store_true", help="put the results into the documentation")
    made["interop"].add_argument("pytest", nargs="*", metavar="-- ARGUMENTS", help="for pytest, after --")
    made["lint"].add_argument("--fix", action="store_true", help="format, and apply ruff's fixes")
    form = made["wheel"].add_mutually_exclusive_group()
    form.add_argument("--compiled", action="store_true", help="with the modules that hatch_build.py lists compiled")
    form.add_argument("--test", action="store_true", help="build the compiled one elsewhere, install it and test it")
    made["clean"].add_argument("--all", action="store_true", help="remove .venv too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
