"""The names of kraftlib.testing are loaded when first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kraftlib.testing


@pytest.mark.parametrize("name", kraftlib.testing.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(kraftlib.testing, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = kraftlib.testing.Nonsense


def test_the_package_itself_loads_nothing() -> None:
    program = "import sys, kraftlib.testing; print([n for n in sys.modules if n.startswith('kraftlib.')])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert process.stdout.strip() == "['kraftlib.testing']"
