"""The form in which kraftlib runs: pure Python, or with compiled modules.

A wheel that was built with `KRAFTLIB_COMPILE=1` has an extension beside the source of each hot module, which mypyc
compiled from that source (`hatch_build.py` lists them). Python imports the extension if there is one. `KRAFTLIB_PURE=1`
in the environment of the process makes it import the sources. Both forms behave alike.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

PURE: Final = "KRAFTLIB_PURE"
_HOT: Final = "kraftlib.records.batch"
"""A module that every compiled wheel has as an extension."""


def is_compiled() -> bool:
    """Whether this process runs the compiled modules."""
    spec = importlib.util.find_spec(_HOT)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def describe() -> str:
    """Return the form in words, for people."""
    return "compiled" if is_compiled() else "pure Python"


class SourcesOnly:
    """A finder that sees the sources of this package and nothing else; modules without a source here are left to other
    finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module below `kraftlib` as a source file."""
        if not name.startswith("kraftlib."):
            return None
        found = (FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target) for entry in path or ())
        return next(filter(None, found), None)


def obey_environment() -> None:
    """Import the rest of this package from its sources only, if `KRAFTLIB_PURE` is set to anything but 0 or nothing."""
    if os.environ.get(PURE, "0") not in ("", "0"):
        sys.meta_path.insert(0, SourcesOnly)
