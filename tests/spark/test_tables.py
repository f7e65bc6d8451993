"""Opening tables checks what is asked for before Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib import spark as kraft
from kraftlib.errors import ConfigError
from tests.captured import DATA


def test_a_wrong_option_is_an_error_of_ours_at_once(spark: Any) -> None:
    with pytest.raises(ConfigError, match="did you mean 'startOffset'"):
        kraft.read(spark, DATA, startOfset=3)


def test_a_pin_names_files_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"12345")
    assert kraft.pin(tmp_path) == f'[["{path}",5]]'
