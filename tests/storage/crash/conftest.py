"""Where crash states are laid out."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory: the states are laid out by the thousand, and none of them needs a disk."""
    logger = logging.getLogger("kraftlib.storage")
    logger.setLevel(logging.CRITICAL)  # torn tails by the thousand, too
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as top:
        yield Path(top)
    logger.setLevel(logging.NOTSET)
