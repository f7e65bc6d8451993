"""Options that Spark's own sources have stand for ours, or are refused with what stands for them here."""

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
        ("subscribe", "path says where the files are"),
        ("versionAsOf", "endOffset"),
        ("timestampAsOf", "endTimestamp"),
        ("maxOffsetsPerTrigger", "it is for a stream"),
        ("maxFilesPerTrigger", "a stream has maxRecordsPerTrigger and maxBytesPerTrigger"),
        ("latestFirst", "startingOffsets says where it begins"),
    ],
)
def test_the_remedy_is_named_in_one_line(name: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no option '{name}': .*{remedy}") as caught:
        parse_options({"path": "/tmp", name: "1"})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150


def test_no_option_of_ours_is_refused() -> None:
    assert [name for name in OPTION_NAMES if instead_of(name) is not None] == []


@pytest.mark.parametrize(
    ("options", "ours"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "Latest"}, {}),
        ({"startingoffsets": "3", "endingOffsets": "9"}, {"startOffset": "3", "endOffset": "9"}),
        (
            {"startingOffsets": "2026-11-21T10:08:58Z", "endingOffsets": "2026-11-22"},
            {"startTimestamp": "2026-11-21T10:08:58Z", "endTimestamp": "2026-11-22"},
        ),
        (
            {"startingTimestamp": "1763719738000", "endingTimestamp": "1763719739000"},
            {"startTimestamp": "1763719738000", "endTimestamp": "1763719739000"},
        ),
    ],
)
def test_bounds_have_the_names_of_sparks_source_of_kafka_too(options: dict[str, str], ours: dict[str, str]) -> None:
    assert parse_options({"path": "/a", **options}) == parse_options({"path": "/a", **ours})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets='latest': no record of a table lies there"),
        ({"endingOffsets": "earliest"}, "endingOffsets='earliest': no record of a table lies there"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "must be earliest, an offset, or a time"),
        ({"startingOffsets": "3", "startoffset": "4"}, "startingOffsets is startOffset under another name"),
        ({"endingOffsets": "9", "endOffset": "9"}, "give one of them"),
        ({"startingOffsets": "2026-11-21", "startingTimestamp": "2026-11-21"}, "give one of them"),
    ],
)
def test_a_bound_that_says_nothing_or_is_given_twice_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_options({"path": "/a", **options})


def test_what_a_table_does_anyway_may_be_asked_for() -> None:
    asked = {
        "inferSchema": "true",
        "mergeSchema": "False",
        "recursiveFileLookup": "true",
        "ignoreCorruptFiles": "false",
    }
    assert parse_options({"path": "/a", **asked}) == parse_options({"path": "/a"})
    for name in ("recursiveFileLookup", "ignoreCorruptFiles"):
        with pytest.raises(ConfigError, match=f"there is no option '{name}'"):
            parse_options({"path": "/a", name: "false" if name == "recursiveFileLookup" else "true"})
