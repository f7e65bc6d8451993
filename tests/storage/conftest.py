"""All tests of storage may be run once more with threads that change over quickly: KRAFTLIB_SWITCH_INTERVAL=1e-6."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.laid_out import in_memory

if "KRAFTLIB_SWITCH_INTERVAL" in os.environ:
    sys.setswitchinterval(float(os.environ["KRAFTLIB_SWITCH_INTERVAL"]))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, and silence: damage and torn tails come by the thousand."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with in_memory() as top:
        yield Path(top)
    logging.disable(disabled)
