"""Standing between a package and the operating system: nothing is missed, and nothing is left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.storage_proof.file_trace import FileTrace
from tools.storage_proof.os_watch import Call, UnwatchedCallError, aliases_in, let_through, modules_of, watching


def test_afterwards_the_package_is_as_it_was(package: ModuleType, tmp_path: Path) -> None:
    with FileTrace(tmp_path, package=package.__name__):
        assert package.os is not os

    assert package.os is os
    assert package.sync is os.fdatasync


def test_a_function_that_was_another_one_the_last_time_is_watched_again(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leads out of a package is looked for once, and again when any global of it has changed since."""
    heard = []

    def hear(call: Call, really: Callable[..., Any]) -> Any:
        heard.append(call.name)
        return really(*call.arguments, **call.keywords)

    with monkeypatch.context() as planted:
        planted.setattr(package, "sync", lambda descriptor: None)
        with watching(package.__name__, hear):
            package.sync(-1)
    with watching(package.__name__, hear), open(tmp_path / "a", "wb") as file:
        package.sync(file.fileno())

    assert heard == ["fdatasync"]


def test_a_call_that_nobody_knows_is_refused(package: ModuleType, tmp_path: Path) -> None:
    with FileTrace(tmp_path, package=package.__name__), pytest.raises(UnwatchedCallError, match="mkfifo"):
        package.unknown(tmp_path / "a")


def test_a_package_that_is_not_imported_is_refused() -> None:
    with pytest.raises(UnwatchedCallError, match="import there_is_none first"):
        modules_of("there_is_none")


def test_functions_under_other_names_are_watched_too(package: ModuleType) -> None:
    assert aliases_in(package) == {"sync": "fdatasync"}


def test_a_handler_hears_which_lines_led_to_a_call(package: ModuleType, tmp_path: Path) -> None:
    heard = []

    def handler(call: object, really: object) -> object:
        heard.append(call)
        return let_through(call, really)

    with watching(package.__name__, handler, with_stacks=True):
        package.make(tmp_path / "a", b"x")

    assert [call.name for call in heard] == ["open", "pwrite", "fdatasync", "close"]
    lines = Path(sys.modules[package.__name__].__file__).read_text(encoding="ascii").splitlines()
    assert "pwrite" in lines[heard[1].stack[0].line - 1]
