"""Modules of tests that cannot even be imported without an extra are skipped, aloud; in CI that is a failure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest


class Unavailable(pytest.Module):
    """A module of tests in whose place stands one skip with the reason."""

    reason: str

    def collect(self) -> Sequence[pytest.Item]:
        pytest.skip(self.reason, allow_module_level=True)


def module_unless_missing(
    packages: Sequence[str], extra: str, *, path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Return what stands for the module at `path`, if one of `packages` is missing; None if all are there."""
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return None
    module: Unavailable = Unavailable.from_parent(parent, path=path)
    module.reason = f"needs {' and '.join(missing)}: pip install 'kraftlib[{extra}]'"
    return module
