"""Taking a record out of what is applied: which ones, and what is refused before anything changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import ConfigError
from kraftlib.offline.skipping import skip_record
from kraftlib.storage import names
from kraftlib.storage.skips_file import read_skips
from tests.storage.replicas import make_replica


@pytest.mark.parametrize(
    ("offset", "reason", "message"),
    [
        (99, "why not", "offset=99 is not in the log .* which has 0 to 10"),
        (0, "why not", "offset=0 is a control record"),
        (3, " ", "reason=' ' must say why"),
        (3, "x" * 501, "reason='x+' must say why"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, offset: int, reason: str, message: str) -> None:
    directory = make_replica(tmp_path / "1", 1, records=10, checkpoint=None)
    with pytest.raises(ConfigError, match=message):
        skip_record(directory, offset, reason=reason, now_ms=1)
    assert read_skips(directory / names.PARTITION_DIRECTORY) == []


def test_the_record_is_said_with_its_epoch(tmp_path: Path) -> None:
    directory = make_replica(tmp_path / "1", 1, records=10, checkpoint=None)
    done = [skip_record(directory, offset, reason="why", now_ms=1) for offset in (4, 3)]
    assert done[0].value != done[1].value
    assert [(each.offset, each.epoch) for each in read_skips(directory / names.PARTITION_DIRECTORY)] == [
        (3, done[1].skip.epoch),
        (4, done[0].skip.epoch),
    ]
