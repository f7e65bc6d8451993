"""The form in which kraftlib runs, and the variable that turns compiled modules off.

Nothing is compiled here: beside the source of a module stands a file with the name of an extension, which Python
prefers and cannot load. `tests/compiled.py` has a real compiled wheel.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import hatch_build
import kraftlib
from kraftlib import form

PACKAGE = Path(kraftlib.__file__).parent
ROOT = PACKAGE.parent


@pytest.fixture
def disguised(tmp_path: Path) -> Path:
    """A directory with kraftlib, in which `records/batch` also has an extension, as far as Python can see."""
    shutil.copytree(PACKAGE, tmp_path / "kraftlib", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "kraftlib" / "records" / f"batch{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    return tmp_path


def run(place: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KRAFTLIB_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


IMPORTED = "from kraftlib.records import batch; from kraftlib import form; print(batch.__file__, form.describe())"


def test_python_prefers_an_extension(disguised: Path) -> None:
    assert run(disguised, "from kraftlib import form; print(form.describe())").stdout == "compiled\n"
    assert "ImportError" in run(disguised, IMPORTED).stderr
    assert "ImportError" in run(disguised, IMPORTED, KRAFTLIB_PURE="0").stderr


def test_a_variable_has_the_sources_imported(disguised: Path) -> None:
    done = run(disguised, IMPORTED, KRAFTLIB_PURE="1")
    assert done.stdout == f"{disguised / 'kraftlib' / 'records' / 'batch.py'} pure Python\n", done.stderr


def test_with_the_variable_packages_and_modules_of_others_are_found_as_before(disguised: Path) -> None:
    program = "import kraftlib.runtime.net.tcp, json, zstandard; print(kraftlib.runtime.net.__file__)"
    done = run(disguised, program, KRAFTLIB_PURE="1")
    assert done.stdout == f"{disguised / 'kraftlib' / 'runtime' / 'net' / '__init__.py'}\n", done.stderr


def test_every_compiled_module_has_a_source() -> None:
    assert "kraftlib.records.batch" in hatch_build.COMPILED, "the module by which the form is told"
    assert sorted(set(hatch_build.COMPILED)) == sorted(hatch_build.COMPILED)
    assert [name for name in hatch_build.COMPILED if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


@pytest.mark.parametrize("name", hatch_build.COMPILED)
def test_no_compiled_module_has_what_mypyc_drops(name: str) -> None:
    """The cause of `raise … from`, and the defaults of `attrs.field`, which fail when the module is imported."""
    tree = ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_bytes())
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.cause is not None] == []
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "field"] == []


def test_what_users_subclass_is_not_compiled() -> None:
    """A compiled class has no interpreted subclasses."""
    homes = {home for names in ("StateMachine", "Listener", "Transport", "ReplicatedLog", "QuorumStateStore",
             "RecordSerde") for home in [getattr(kraftlib, names).__module__]}  # fmt: skip
    assert homes & set(hatch_build.COMPILED) == set()


def test_the_sources_of_a_checkout_are_pure() -> None:
    assert not form.is_compiled()
