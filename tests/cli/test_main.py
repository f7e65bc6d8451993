"""The command line itself: help, errors as one line, exit statuses, and nothing loaded that is not asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib import __version__
from kraftlib.cli import COMMANDS, HIDDEN, INTERRUPTED, load, main
from kraftlib.cli import random_uuid as random_uuid_module
from kraftlib.errors import ConfigError, InvariantError
from kraftlib.form import describe
from kraftlib.types import parse_uuid
from tests.cli.conftest import Command


def test_the_version_is_that_of_the_package_and_says_its_form(kraftlib: Command) -> None:
    result = kraftlib("--version")

    assert (result.status, result.out) == (0, f"kraftlib {__version__} ({describe()})\n")


def test_the_package_is_the_command_as_well() -> None:
    result = subprocess.run([sys.executable, "-m", "kraftlib", "--version"], capture_output=True, text=True, timeout=60)

    assert (result.returncode, result.stdout) == (0, f"kraftlib {__version__} ({describe()})\n")


def test_help_names_every_command_that_is_for_people(kraftlib: Command) -> None:
    result = kraftlib("--help")

    assert result.status == 0
    assert all(f"  {name}" in result.out for name in COMMANDS)
    assert not any(f"  {name} " in result.out for name in HIDDEN)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, kraftlib: Command) -> None:
    result = kraftlib(name, "--help")

    assert result.status == 0
    assert "example" in result.out


@pytest.mark.parametrize("name", [*COMMANDS, *HIDDEN])
def test_every_command_has_a_module(name: str) -> None:
    assert callable(load(name).run)


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["random-uuid", "--no-such-option"], ["dump-log"]])
def test_a_wrong_command_line_ends_with_2_and_says_why(arguments: list[str], kraftlib: Command) -> None:
    result = kraftlib(*arguments)

    assert result.status == 2
    assert result.out == ""
    assert "kraftlib" in result.err


def test_an_error_of_the_library_is_one_line_and_1(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("dump-log", tmp_path / "nothing.log")

    assert (result.status, result.out) == (1, "")
    assert result.err == f"kraftlib: {tmp_path / 'nothing.log'} is no file\n"


@pytest.mark.parametrize("place", [0, 2])
def test_debug_lets_the_traceback_through(place: int, tmp_path: Path) -> None:
    arguments = ["dump-log", str(tmp_path / "nothing.log")]
    arguments.insert(place, "--debug")

    with pytest.raises(ConfigError):
        main(arguments)


def test_an_error_of_several_lines_is_printed_as_one(kraftlib: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_uuid_module, "run", raising(ConfigError("first\n  second")))

    assert kraftlib("random-uuid").err == "kraftlib: first second\n"


def test_a_bug_of_ours_is_called_one(kraftlib: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_uuid_module, "run", raising(InvariantError("two leaders")))
    result = kraftlib("random-uuid")

    assert result.status == 1
    assert "bug of kraftlib: two leaders" in result.err


def test_ctrl_c_ends_quietly(kraftlib: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_uuid_module, "run", raising(KeyboardInterrupt()))
    result = kraftlib("random-uuid")

    assert (result.status, result.err) == (INTERRUPTED, "")


def raising(error: BaseException) -> object:
    def run(options: object) -> int:
        raise error

    return run


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """`kraftlib dump-log … | head -1`: the pipe breaks, and nobody wants to read about it."""
    source = Path(__file__).parents[1] / "data/kafka-4.3.1/n1/__cluster_metadata-0/00000000000000000000.log"
    with subprocess.Popen(
        [sys.executable, "-m", "kraftlib.cli", "dump-log", *[str(source)] * 20],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=60)

    assert errors == b""


def test_only_the_module_of_the_command_is_loaded() -> None:
    program = (
        "import sys; from kraftlib.cli import main; main(['random-uuid']);"
        "print(sorted(n for n in sys.modules if n.startswith('kraftlib.')), 'asyncio' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout

    assert "kraftlib.cli.random_uuid" in out
    assert "dump" not in out
    assert out.endswith("False\n")


def test_every_random_uuid_is_one_and_another(kraftlib: Command) -> None:
    first, second = (kraftlib("random-uuid").out.strip() for _ in range(2))

    assert parse_uuid(first) != parse_uuid(second)


def test_it_runs_without_stdout_and_stderr(tmp_path: Path) -> None:
    """A service manager may close both. No file that is opened later may take their numbers."""
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = f'exec "$0" "$@" {closed}'
        for arguments, status in ((["random-uuid"], 0), (["verify-dir", str(tmp_path)], 1)):
            command = ["sh", "-c", shell, sys.executable, "-m", "kraftlib", *arguments]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert result.returncode == status
            assert "Traceback" not in result.stderr
            assert ("kraftlib: " in result.stdout, result.stdout == "") == (False, status == 1 or closed != "2>&-")


def test_a_terminal_that_lacks_a_character_gets_its_number() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    command = [sys.executable, "-m", "kraftlib", "backup", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "HOST:PORT,\\u2026" in result.stdout
