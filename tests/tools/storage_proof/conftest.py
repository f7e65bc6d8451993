"""A module that works on files, to be watched."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

SOURCE = """
import os
sync = os.fdatasync

def make(path, data):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
        sync(fd)
    finally:
        os.close(fd)

def replace(old, new):
    os.replace(old, new)
    fd = os.open(os.path.dirname(new), os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def rest(path):
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 1)
    os.close(fd)
    os.unlink(path)

def seen(path):
    return os.stat(path).st_ino, os.stat(path).st_mtime_ns

def unknown(path):
    os.mkfifo(path)
"""


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A module that works on files."""
    path = tmp_path_factory.mktemp("code") / "watched_for_a_test.py"
    path.write_text(SOURCE, encoding="ascii")
    spec = importlib.util.spec_from_file_location("watched_for_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[module.__name__]
