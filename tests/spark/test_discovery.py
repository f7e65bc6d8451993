"""Spark finds the format by itself; and what keeps it from working costs nobody else his session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kraftlib.spark import discovery
from kraftlib.spark.source import KraftDataSource

LOOKED_UP = """
import sys
from importlib import import_module
from pkgutil import iter_modules
sys.path.insert(0, sys.argv[1])
mod = import_module(next(info.name for info in iter_modules([sys.argv[1]]) if info.name.startswith("pyspark_")))
from pyspark.sql.datasource import DataSource
assert issubclass(mod.DefaultSource, DataSource)
print(mod.DefaultSource.name())
try:
    mod.DefaultSource(options={"path": "/nowhere"}).schema()
except ImportError as error:
    print(error)
"""
"""What Spark does before the first Python data source is used (pyspark.sql.worker.lookup_data_sources)."""


def looked_up(directory: Path, broken: str, text: str) -> list[str]:
    """Return what is printed where a package is as `text` has it."""
    (directory / "pyspark_kraft.py").write_text(Path(discovery.__file__).read_text())
    if broken:
        (directory / f"{broken}.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-I", "-c", LOOKED_UP, str(directory)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_the_format_is_found_by_its_name(tmp_path: Path) -> None:
    assert looked_up(tmp_path, "", "") == ["kraft"]
    assert discovery.DefaultSource is KraftDataSource


def test_the_search_for_data_sources_imports_neither_numpy_nor_pyarrow() -> None:
    """Spark searches in a process of its own, for every session that uses any Python data source, ours or not."""
    program = (
        "import kraftlib.spark.discovery as d, sys; d.DefaultSource(options={'path': '/x'});"
        "print(d.DefaultSource.name(), sorted({'numpy', 'pyarrow', 'kraftlib.analysis'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "kraft []\n"


def test_a_package_that_cannot_be_imported_at_all_is_named_when_the_format_is_used(tmp_path: Path) -> None:
    found = looked_up(tmp_path, "attrs", "raise ValueError('half an installation')")
    assert found[0] == "kraft"
    assert "what kraftlib[spark] installs" in found[1]


def test_a_missing_or_broken_package_is_named_when_the_format_is_used_and_not_before(tmp_path: Path) -> None:
    missing = "ImportError: kraftlib.analysis needs numpy and pyarrow: pip install 'kraftlib[spark]'"
    for name, text, reason in (
        ("pyarrow", "raise ImportError", missing),
        ("numpy", "raise ValueError('binary incompatibility')", "ValueError: binary incompatibility"),
    ):
        (tmp_path / name).mkdir()
        found = looked_up(tmp_path / name, name, text)
        assert found == ["kraft", f"the format kraft needs what kraftlib[spark] installs: {reason}"]
