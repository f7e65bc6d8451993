"""What a table would read is told before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.explain import explain
from kraftlib.errors import ConfigError
from tests.analysis.logs import values_batch, write_log

SIZE = 3_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments of twenty batches each."""
    write_log(tmp_path, [values_batch([bytes(SIZE)], base_offset=n) for n in range(60)], cuts=[20, 40], index=True)
    return tmp_path


def told(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_what_is_left_out_is_told(log: Path) -> None:
    said = told(explain(log, columns=["offset", "value"], startOffset=45, endOffset=46))
    assert said["path"] == str(log)
    assert said["columns"] == "offset, value"
    assert said["options"] == "columns=offset,value, startOffset=45, endOffset=46"
    assert said["tasks"] == "1, 1 splits"
    files, _, sizes = said["reads"].partition(" files, ")
    assert files == "1 of 3"
    assert sizes.endswith(" of 179.9 KiB")
    assert float(sizes.split()[0]) < 4 * (SIZE + 100) / 1_024


def test_without_options_everything_is_read(log: Path) -> None:
    said = told(explain(log, maxPartitionBytes=20_000))
    assert said["reads"] == "3 of 3 files, 179.9 KiB of 179.9 KiB"
    assert int(said["tasks"].partition(",")[0]) > 8
    assert told(explain(log))["options"] == "none"


def test_a_report_is_one_task(log: Path) -> None:
    assert told(explain(log, view="topics"))["reads"].endswith("folded by one task")


def test_a_wrong_option_is_an_error(log: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'startOffset'"):
        explain(log, startOfset=3)
