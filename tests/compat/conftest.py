"""Without the package whose interface is offered, these tests skip; in CI they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extras import module_unless_missing


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return module_unless_missing(("kazoo",), "kazoo", path=module_path, parent=parent)
