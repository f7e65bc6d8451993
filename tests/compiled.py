"""The compiled wheel, built, installed alone and tested there: `dev.py wheel --test`.

Its name keeps pytest from finding it by itself, since compiling takes minutes. The environment has the core
dependencies and nothing else; pytest is lent to it from our own, which has no copy of kraftlib, only a path to it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

import hatch_build
from tests.test_packaging import ROOT, built, installed_alone

MINUTE: Final = 60
CLIENT: Final = ("tests/runtime/client/test_raft_client.py", "tests/runtime/client/test_arguments.py")


def mirror_of(name: str) -> str:
    """Return where the tests of a module are."""
    *packages, module = name.split(".")[1:]
    return "/".join(("tests", *packages, f"test_{module}.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), compiled=True)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_alone(wheel, tmp_path_factory.mktemp("alone"))


def run(*command: str | Path, cwd: Path, minutes: float = 1, **variables: str) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KRAFTLIB_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=minutes * MINUTE,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def origins(python: Path, place: Path, **variables: str) -> dict[str, str]:
    """Import all compiled modules and return by name the file that each came from."""
    program = (
        "import importlib, json\n"
        f"print(json.dumps({{name: importlib.import_module(name).__file__ for name in {hatch_build.COMPILED}}}))"
    )
    found: dict[str, str] = json.loads(run(python, "-c", program, cwd=place, **variables))
    return found


def test_the_wheel_has_an_extension_beside_each_source(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    extensions = {name for name in names if name.endswith((".so", ".pyd"))}
    sources = {f"{name.replace('.', '/')}.py" for name in hatch_build.COMPILED}

    assert sources <= names
    suffix = EXTENSION_SUFFIXES[0]
    assert extensions == {source.removesuffix(".py") + suffix for source in sources} | {f"kraftlib__mypyc{suffix}"}
    assert not wheel.name.endswith("-none-any.whl"), "it is for one Python and one platform"


def test_it_is_the_extensions_that_are_imported(python: Path, tmp_path: Path) -> None:
    found = origins(python, tmp_path)
    assert [name for name, file in found.items() if not file.endswith(EXTENSION_SUFFIXES[0])] == []


def test_a_variable_turns_them_off(python: Path, tmp_path: Path) -> None:
    found = origins(python, tmp_path, KRAFTLIB_PURE="1")
    assert [name for name, file in found.items() if not file.endswith(".py")] == []


def test_the_version_says_the_form(python: Path, tmp_path: Path) -> None:
    command = python.with_name("kraftlib")
    assert run(command, "--version", cwd=tmp_path).endswith(" (compiled)\n")
    assert run(command, "--version", cwd=tmp_path, KRAFTLIB_PURE="1").endswith(" (pure Python)\n")


def test_three_voters_commit_and_survive_their_leader(python: Path, tmp_path: Path) -> None:
    said = run(python.with_name("kraftlib"), "demo", cwd=tmp_path, minutes=3)
    assert "equal byte for byte on all three disks" in " ".join(said.split())


def test_the_compiled_modules_pass_their_tests(python: Path, tmp_path: Path) -> None:
    for name in ("tests", "tools", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "target"))
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path)
    lent = {"PYTHONPATH": sysconfig.get_path("purelib")}
    where = run(python, "-c", "import kraftlib.form as form; print(form.describe())", cwd=tmp_path, **lent)
    assert where == "compiled\n"
    chosen = [path for path in map(mirror_of, hatch_build.COMPILED) if (tmp_path / path).exists()]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "not slow", *chosen, *CLIENT]
    print(run(*command, cwd=tmp_path, minutes=10, **lent), file=sys.stderr)
