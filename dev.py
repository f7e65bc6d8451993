#!/usr/bin/env python3
"""The tasks of this repository, with the standard library alone: `python3 dev.py --help`.

Everything runs in `.venv`, which is made on first use and renewed when `pyproject.toml` changes.
The network is used by pip only, and only for that.
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
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "kraftlib-stamp"
"""What `.venv` holds: the kind of install and what it was made from. Written last, so a half-made one has none."""

CORE, FULL = "core", "full"
EXTRAS = {CORE: "", FULL: "[cli,uvloop,snappy,prometheus,opentelemetry,test,dev,docs]"}
OLDEST_PYTHON = (3, 11)

COMMAND = "kraftlib"
"""The installed command; `demo`, `bench` and `simulate` are its subcommands."""


class TaskError(Exception):
    """A task cannot run; the message is for the person at the terminal."""


# The environment ----------------------------------------------------------------------------------


def ensure_environment(kind: str) -> None:
    """Make or renew `.venv` so that it holds at least `kind`. Two callers at once wait for each other."""
    if environment_fits(kind):
        return
    check_python()
    with alone():
        if environment_fits(kind):
            return
        STAMP.unlink(missing_ok=True)
        if not works(PYTHON):
            say(f"making {VENV.relative_to(ROOT)} with Python {sys.version.split()[0]}")
            run([sys.executable, "-m", "venv", "--clear", VENV])
        say(f"installing kraftlib{EXTRAS[kind]} into it (once; takes a minute or two)")
        run([PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--editable", f"{ROOT}{EXTRAS[kind]}"])
        STAMP.write_text(f"{kind} {fingerprint()}\n", encoding="ascii")


def environment_fits(kind: str) -> bool:
    """Whether `.venv` is there, complete, and made from the present `pyproject.toml`."""
    if not PYTHON.exists() or not STAMP.exists():
        return False
    made_as, _, made_from = STAMP.read_text(encoding="ascii").strip().partition(" ")
    return made_as in (kind, FULL) and made_from == fingerprint()


def fingerprint() -> str:
    """Return what an environment depends on, as a hash: the project file, what we install, and where we stand."""
    parts = [(ROOT / "pyproject.toml").read_bytes(), repr(EXTRAS).encode(), str(ROOT).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


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


def check_python() -> None:
    """Say what is missing before the standard library says it less kindly."""
    if sys.version_info < OLDEST_PYTHON:
        newer = [name for minor in (14, 13, 12, 11) if (name := shutil.which(f"python3.{minor}"))]
        hint = f"this machine has {newer[0]}: run it as `{newer[0]} dev.py …`" if newer else "install a newer one"
        raise TaskError(f"kraftlib needs Python 3.11 or newer, this is {sys.version.split()[0]}; {hint}")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise TaskError(
            f"this Python comes without {' and '.join(missing)}, which make the environment; "
            f"on Debian and Ubuntu: apt install python{version}-venv"
        )


def works(python: Path) -> bool:
    """Whether `python` starts and has pip."""
    try:
        return subprocess.run([python, "-c", "import pip"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


# Running things -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Tell the person at the terminal what goes on."""
    print(f"dev.py: {text}", flush=True)


def run(command: Sequence[str | os.PathLike[str]]) -> None:
    """Run `command` at the root of the repository, its output shown as it comes."""
    status = call(command)
    if status:
        raise TaskError(f"exit status {status} from: {' '.join(map(os.fspath, command))}")


def call(command: Sequence[str | os.PathLike[str]]) -> int:
    """Run `command` at the root of the repository and return its exit status."""
    return subprocess.run([os.fspath(part) for part in command], cwd=ROOT, check=False).returncode


# Tasks --------------------------------------------------------------------------------------------


def task_env(options: argparse.Namespace) -> int:
    """Make .venv with everything that development needs."""
    ensure_environment(FULL)
    say(f"{BIN.relative_to(ROOT)} is ready")
    return 0


def task_clean(options: argparse.Namespace) -> int:
    """Remove what was built, and caches; .venv stays (--all removes it too)."""
    doomed = [
        ROOT / name
        for name in ("dist", "build", "docs/_build", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
    ]
    doomed += [path for top in ("kraftlib", "tests", "examples", "docs") for path in (ROOT / top).rglob("__pycache__")]
    if options.all:
        doomed.append(VENV)
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    return 0


TASKS: dict[str, Callable[[argparse.Namespace], int]] = {"env": task_env, "clean": task_clean}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task; the exit status is the task's."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    commands = parser.add_subparsers(dest="task", required=True)
    for name, task in TASKS.items():
        command = commands.add_parser(name, help=(task.__doc__ or "").strip())
        if name == "clean":
            command.add_argument("--all", action="store_true", help="remove .venv too")
    options = parser.parse_args(arguments)
    try:
        return TASKS[options.task](options)
    except TaskError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
