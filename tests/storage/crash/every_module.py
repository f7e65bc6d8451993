"""Imports all of `kraftlib.storage`, so that all of it can be watched, also what is added later."""

from __future__ import annotations

import importlib
import pkgutil

import kraftlib.storage

for info in pkgutil.walk_packages(kraftlib.storage.__path__, prefix="kraftlib.storage."):
    importlib.import_module(info.name)
