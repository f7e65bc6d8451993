"""dev.py, the tasks of the repository."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "dev.py"


@pytest.fixture
def dev(tmp_path: Path) -> ModuleType:
    """The module of dev.py, with an empty directory for a repository and an environment that counts as made."""
    spec = importlib.util.spec_from_file_location("dev", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    project = SCRIPT.with_name("pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    module.ROOT, module.VENV = tmp_path, tmp_path / ".venv"
    module.PYTHON, module.STAMP = module.VENV / "python", module.VENV / "stamp"
    module.VENV.mkdir()
    module.PYTHON.touch()
    module.STAMP.write_text(f"{module.FULL} {module.fingerprint()}\n")
    return module


def test_the_help_names_every_task() -> None:
    shown = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True, timeout=60)
    for task in "env demo lint types docs test bench bench-spark simulate schemas interop clean".split():
        assert f"\n    {task} " in shown.stdout or f"\n    {task}\n" in shown.stdout


def test_it_needs_nothing_but_the_standard_library() -> None:
    subprocess.run([sys.executable, "-I", "-S", SCRIPT, "--help"], capture_output=True, check=True, timeout=60)


def test_an_environment_is_renewed_when_its_dependencies_change_and_not_when_the_linter_does(dev: ModuleType) -> None:
    project = dev.ROOT / "pyproject.toml"
    assert dev.environment_fits(dev.FULL)

    project.write_text(project.read_text() + "\n[tool.other]\nx = 1\n")
    assert dev.environment_fits(dev.FULL)

    project.write_text(project.read_text().replace('"attrs>=', '"another", "attrs>='))
    assert not dev.environment_fits(dev.FULL)


def test_a_full_environment_serves_the_demo_and_a_core_one_does_not_serve_the_tests(dev: ModuleType) -> None:
    assert dev.environment_fits(dev.CORE)
    dev.STAMP.write_text(f"{dev.CORE} {dev.fingerprint()}\n")
    assert dev.environment_fits(dev.CORE)
    assert not dev.environment_fits(dev.FULL)


def test_a_half_made_environment_does_not_count(dev: ModuleType) -> None:
    dev.STAMP.unlink()
    assert not dev.environment_fits(dev.CORE)


def test_the_second_of_two_callers_waits_and_then_finds_it_made(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = dev.STAMP.read_text()
    dev.STAMP.unlink()
    waits = threading.Event()
    monkeypatch.setattr(dev, "say", lambda text: waits.set() if "waiting" in text else None)
    monkeypatch.setattr(dev, "run", lambda command: pytest.fail(f"nothing was left to do, yet it ran {command}"))
    directory = os.open(dev.ROOT, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)  # the first caller

    second = threading.Thread(target=dev.ensure_environment, args=(dev.FULL,))
    second.start()
    assert waits.wait(timeout=30)
    dev.STAMP.write_text(stamp)
    os.close(directory)
    second.join(timeout=30)

    assert not second.is_alive()


def test_an_old_python_is_told_so(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "OLDEST_PYTHON", (99, 0))
    assert dev.main(["env"]) == 1
    assert "kraftlib needs Python 3.11 or newer" in capsys.readouterr().err


def test_a_python_without_venv_is_told_which_package_has_it(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(dev.TaskError, match=r"apt install python3\.\d+-venv"):
        dev.check_venv()


def test_arguments_of_a_program_are_passed_on_as_they_are(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: called.append(command) or 3)

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    assert dev.main(["bench", "--output", "json", "--", "-x"]) == 3
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ, "a process of ours would compile everything again"
    assert [command[1:] for command in called] == [["-m", "tools.bench", "--output", "json", "--", "-x"]]


@pytest.mark.parametrize(("more", "release"), [([], "4.3.1"), (["--kafka", "4.1.2"], "4.1.2")])
def test_the_bench_against_kafka_fetches_kafka_first(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, more: list[str], release: str
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: called.append(command[1:]) or 0)
    monkeypatch.setattr(dev, "ensure_environment", lambda kind: None)

    assert dev.main(["bench", "--against", "kafka", *more]) == 0
    assert called == [
        ["-m", "tests.interop.jars", release],
        ["-m", "tests.interop.side_by_side", "--against", "kafka", *more],
    ]


@pytest.mark.parametrize(
    ("peers", "module"),
    [
        ("etcd-raft,dragonboat", "tests.interop.side_by_side"),
        ("etcd,zookeeper", "tests.interop.coordination_bench"),
        ("", "tests.interop.coordination_bench"),
    ],
)
def test_libraries_and_services_have_benches_of_their_own(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, peers: str, module: str
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: called.append(command[1:]) or 0)
    monkeypatch.setattr(dev, "ensure_environment", lambda kind: None)

    assert dev.main(["bench", "--against", peers]) == 0
    assert called == [["-m", module, "--against", peers]]


def test_the_last_line_of_pytest_is_found_however_it_is_cut(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.stdout.write('one\\n== 2 pa'); sys.stdout.flush(); print('ssed ==\\n'); sys.exit(1)"
    monkeypatch.setattr(dev, "tool", lambda *command: [sys.executable, "-c", program])
    assert dev.call_pytest([]) == (1, "== 2 passed ==")


def test_what_runs_beside_other_steps_is_shown_when_it_is_waited_for(
    dev: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    wait = dev.beside([sys.executable, "-c", "import sys; print('warned', file=sys.stderr); sys.exit(3)"])

    assert capfd.readouterr().out == ""
    assert wait() == 3
    assert capfd.readouterr().out == "warned\n"


@pytest.mark.parametrize(
    ("words", "steps", "slow"),
    [
        ([], ["lint", "types", "docs", "pytest", "spark"], False),
        (["--fast"], ["lint", "types", "pytest"], False),
        (["--all"], ["lint", "types", "docs", "pytest", "spark"], True),
        (["--", "-k", "election"], ["lint", "types", "docs", "pytest"], True),
        (["--fast", "--", "-k", "election"], ["lint", "types", "pytest"], False),
    ],
)
def test_slow_tests_run_where_they_are_asked_for(
    dev: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    steps: list[str],
    slow: bool,
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: 0)
    monkeypatch.setattr(dev, "beside", lambda command: lambda: 0)
    monkeypatch.setattr(dev, "call_pytest", lambda arguments: ran.append(arguments) or (0, "== 1 passed =="))

    assert dev.main(["test", *words]) == 0
    assert [
        line.split()[-1] for line in capsys.readouterr().err.splitlines() if line.startswith("dev.py: -- ")
    ] == steps
    assert ran
    assert all(("not slow" not in arguments) == slow for arguments in ran)
    assert all(("--hypothesis-profile=all" in arguments) == slow for arguments in ran)


def test_interop_fetches_the_releases_and_runs_the_tests_against_them(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: called.append(command[1:]) or 0)
    for name in ("KRAFTLIB_INTEROP", "KRAFTLIB_KAFKA"):
        monkeypatch.setenv(name, "")

    assert dev.main(["interop", "--kafka", "4.3.1", "--long", "--", "-k", "tools"]) == 0
    assert called == [
        ["-m", "tests.interop.jars", "4.3.1"],
        ["-m", "pytest", "-o", "faulthandler_timeout=900", *dev.PARALLEL, "tests/interop", "-k", "tools"],
    ]
    assert (os.environ["KRAFTLIB_INTEROP"], os.environ["KRAFTLIB_KAFKA"]) == ("long", "4.3.1")


def test_interop_ends_where_the_jars_cannot_be_had(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(dev, "call", lambda command: called.append(command[1:]) or 1)

    assert dev.main(["interop"]) == 1
    assert len(called) == 1


@pytest.mark.slow
def test_a_test_that_hangs_fails_the_run_and_the_others_still_run(dev: ModuleType, tmp_path: Path) -> None:
    """How tests are shared out decides it: with some ways, the loss of a worker leaves the others waiting for ever."""
    text = "import pytest, threading\n"
    text += "@pytest.mark.parametrize('n', range(9))\ndef test_before(n): pass\n"
    text += "def test_hangs(): threading.Event().wait()\n"
    text += "@pytest.mark.parametrize('n', range(9))\ndef test_after(n): pass\n"
    (tmp_path / "test_one.py").write_text(text)
    limits = "faulthandler_timeout = 1\nfaulthandler_exit_on_timeout = true\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{limits}")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *dev.PARALLEL, tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 18 passed" in done.stdout, done.stdout
