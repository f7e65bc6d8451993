"""The public names of kraftlib and of kraftlib.testing: all there, said once, and loaded when used."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kraftlib
import kraftlib.testing

PACKAGES = pytest.mark.parametrize("package", [kraftlib, kraftlib.testing], ids=lambda package: package.__name__)


@PACKAGES
def test_every_public_name_resolves(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(getattr(package, name), "__name__", name) == name


def test_what_type_checkers_see_is_what_runs() -> None:
    """The imports for type checkers, the table of homes and `__all__` name the same things."""
    imported = {
        (alias.name, node.module)
        for node in ast.walk(ast.parse(Path(kraftlib.__file__).read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and node.module != "typing"
        for alias in node.names
    }
    assert imported == set(kraftlib._HOME_OF.items())
    assert set(kraftlib.__all__) == {*kraftlib._HOME_OF, "__version__"}
    assert set(kraftlib.__all__) <= set(dir(kraftlib))


def test_the_top_has_what_a_service_needs_and_not_more() -> None:
    """About thirty names can be read at once; the rest is imported from the module that defines it."""
    assert len(kraftlib.__all__) <= 35
    config = kraftlib.RaftConfig(
        node_id=1, voters=(kraftlib.StaticVoter(1, kraftlib.Endpoint("127.0.0.1", 19_700)),), fetch_timeout_ms=900
    )
    assert config.voters[0].endpoint.port == 19_700


def test_every_public_name_is_on_the_page_of_names() -> None:
    page = (Path(kraftlib.__file__).parents[1] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page.partition("```")[0]))
    assert listed == set(kraftlib.__all__) - {"__version__"} | {"kraftlib"}


@PACKAGES
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Zookeeper'"):
        _ = package.Zookeeper


@PACKAGES
def test_importing_it_loads_nothing_else(package: ModuleType) -> None:
    loaded = modules_after(f"import {package.__name__}")

    assert {name for name in loaded if name.startswith("kraftlib")} == {"kraftlib", package.__name__}
    assert not loaded & {"asyncio", "attrs", "attr", "ssl", "socket"}


def test_a_client_loads_no_metadata_records_no_command_and_no_messages_of_brokers() -> None:
    loaded = modules_after("from kraftlib import RaftClient")

    unneeded = ("kraftlib.metadata", "kraftlib.cli", "kraftlib.testing", "kraftlib.wire.messages.broker")
    assert [name for name in loaded if name.startswith(unneeded)] == []


def modules_after(statement: str) -> set[str]:
    """Return the names of the modules that a new interpreter holds after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program]
    return set(json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout))
