"""Options that Spark's own sources have are refused with what stands for them here."""

from __future__ import annotations

import pytest

from kraftlib.analysis.options import OPTION_NAMES, parse_options
from kraftlib.analysis.other_names import instead_of
from kraftlib.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("inferSchema", "leave it out"),
        ("recursiveFileLookup", "everything below the path is read"),
        ("pathGlobFilter", "the path may be a glob"),
        ("startingOffsets", "a table has startOffset and endOffset"),
        ("endingoffsets", "a table has endOffset"),
        ("subscribe", "path says where the files are"),
        ("versionAsOf", "endOffset"),
        ("timestampAsOf", "endTimestamp"),
        ("maxOffsetsPerTrigger", "it is for a stream"),
    ],
)
def test_the_remedy_is_named_in_one_line(name: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no option '{name}': .*{remedy}") as caught:
        parse_options({"path": "/tmp", name: "1"})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150


def test_no_option_of_ours_is_refused() -> None:
    assert [name for name in OPTION_NAMES if instead_of(name) is not None] == []
