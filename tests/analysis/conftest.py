"""Where the extra `spark` is not installed, nothing here can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extras import module_unless_missing


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_unless_missing(("numpy", "pyarrow"), "spark", path=module_path, parent=parent)
