"""The wheel, installed alone: four dependencies are enough for all that the core install promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
CORE: Final = {"attrs", "crc32c", "lz4", "zstandard"}
NEEDS_AN_EXTRA: Final[dict[str, str]] = {
    "kraftlib.testing.pytest_plugin": "test",
    "kraftlib.analysis": "spark",
    "kraftlib.compat.kazoo": "kazoo",
    "kraftlib.migration.checkpoint": "kazoo",
    "kraftlib.migration.nodes": "kazoo",
    "kraftlib.migration.records": "kazoo",
    "kraftlib.spark": "spark",
}
"""Module, or package with all below it -> the extra without which it does not import."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. The build backend of the environment is used, so that nothing is downloaded."""
    return built(tmp_path_factory.mktemp("wheel"), compiled=False)


def built(directory: Path, *, compiled: bool) -> Path:
    """Build a wheel into `directory`; a compiled one as pip does, with nothing but the dependencies of its build."""
    environment = os.environ | {"KRAFTLIB_COMPILE": "1" if compiled else "0"}
    alone = () if compiled else ("--no-isolation",)
    command = (sys.executable, "-m", "build", "--wheel", *alone, "--outdir", str(directory), str(ROOT))
    run(*command, environment=environment, seconds=1_200 if compiled else 170)
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_alone(wheel, tmp_path_factory.mktemp("bare"))


def installed_alone(wheel: Path, directory: Path) -> Path:
    """Make an environment with the wheel and its core dependencies, and nothing else; return its python.

    The dependencies are copied from our own environment, where pip has put them: no network. `pip check` then vouches
    that nothing is missing, by the wheel's own account.
    """
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    paths = {"base": str(directory), "platbase": str(directory)}
    site_packages = Path(sysconfig.get_path("purelib", vars=paths))
    for name in CORE:
        for source, target in installed_files(name):
            (site_packages / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, site_packages / target)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run(*pip, "install", "--no-deps", "--no-index", str(wheel))
    run(*pip, "check")
    return python


def installed_files(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield where each file of an installed distribution is, and its path below site-packages."""
    for file in metadata.distribution(name).files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield Path(str(file.locate())), Path(*file.parts)


def run(
    *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None, seconds: float = 170
) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "kraftlib").rglob("*.py")}

    assert {name.split("/")[0] for name in names} == {
        "kraftlib",
        "pyspark_kraft.py",  # Spark finds the format by this name
        next(n for n in names if "dist-info" in n).split("/")[0],
    }
    assert sources - {"kraftlib/spark/discovery.py"} <= names  # that one is the module pyspark_kraft
    assert "kraftlib/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".pyc", ".so", ".pyd"))]
    assert wheel.name.endswith("-py3-none-any.whl"), "it needs no compiler, and runs everywhere"


def test_the_wheel_holds_no_tests_tools_or_benchmarks_of_our_own(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    about_us = r"(^|/)(tests?|tools)/|/bench|/core_fuzz|/rules/|/scenarios|/mutants|testing/schema"
    assert [name for name in names if "dist-info" not in name and re.search(about_us, name)] == []


def test_the_module_that_spark_finds_is_small_and_stands_alone(wheel: Path) -> None:
    """A wheel cannot leave a module out where an extra is not asked for; it does nothing without PySpark."""
    text = zipfile.ZipFile(wheel).read("pyspark_kraft.py").decode()
    assert len(text.splitlines()) < 50
    assert text == (ROOT / "kraftlib" / "spark" / "discovery.py").read_text(encoding="utf-8")


def test_the_core_install_asks_for_four_packages(wheel: Path) -> None:
    text = zipfile.ZipFile(wheel).read(next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA")))
    required = [
        line for line in text.decode().splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]

    assert {re.split(r"[ <>=!~;\[]", line.removeprefix("Requires-Dist: "))[0] for line in required} == CORE


def test_every_module_of_the_core_install_imports_with_nothing_else_installed(bare: Path, tmp_path: Path) -> None:
    modules = [
        name for name in module_names() if not any(f"{name}.".startswith(f"{start}.") for start in NEEDS_AN_EXTRA)
    ]
    program = (
        f"import importlib, kraftlib\nfor name in {modules}: importlib.import_module(name)\nprint(kraftlib.__file__)"
    )

    origin = run(str(bare), "-I", "-W", "error", "-c", program, cwd=tmp_path)

    assert Path(origin.strip()).is_relative_to(bare.parent.parent), "it was the wheel that was imported"


def test_modules_that_need_an_extra_say_which(bare: Path, tmp_path: Path) -> None:
    program = (
        f"import importlib, json\nfailed = []\nfor name in {sorted(NEEDS_AN_EXTRA)}:\n"
        "    try: importlib.import_module(name)\n    except ImportError: failed.append(name)\n"
        "print(json.dumps(failed))"
    )
    assert json.loads(run(str(bare), "-I", "-c", program, cwd=tmp_path)) == sorted(NEEDS_AN_EXTRA)


def test_the_command_answers(bare: Path, tmp_path: Path) -> None:
    assert "usage: kraftlib" in run(str(bare.with_name("kraftlib")), "--help", cwd=tmp_path)


def module_names() -> list[str]:
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "kraftlib").rglob("*.py")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__")
